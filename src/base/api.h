// COPPICE_API marks what libcoppice.so exports; everything else is hidden in it.
#pragma once

#if __cplusplus < 202002L
#error "coppice needs C++20: compile with -std=c++20 or later"
#endif

#define COPPICE_API __attribute__((visibility("default")))
