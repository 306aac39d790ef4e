// Exists to compile the header that the tests share.
