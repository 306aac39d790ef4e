// A library that is there when a fake module is linked, and not where it is looked for later.
extern "C" __attribute__((visibility("default"))) int fake_cublas() { return 1; }
