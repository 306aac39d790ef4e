// PTX that the Hopper attention is made of, besides asynchronous copies: register budgets and
// products of whole warpgroups (sm_90a).
//
// Matrices that products read from shared memory are stored as panels of 64 columns: row r of a
// panel is 128 bytes, its 16-byte vectors permuted, vector c lying at place c ^ (r % 8). A panel
// starts at a multiple of 1024 bytes. Each eight of its rows follow one another; the next eight may
// lie farther on.
#pragma once

#include "kernels/cuda/async_copies.cuh"

namespace coppice::cuda::hopper {

inline constexpr int warpgroup_threads = 128;

// --- registers --------------------------------------------------------------------------------

template <int count>
__device__ inline void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(count));
}
template <int count>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(count));
}

// --- products ---------------------------------------------------------------------------------

/// Products read shared memory by another path than stores write it.
__device__ inline void make_visible_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

/// The lower half of the descriptor of a matrix in shared memory whose rows run along the sum:
/// `panel_bytes` apart where it has several panels of columns.
__device__ inline std::uint32_t matrix_descriptor(std::uint32_t address, int panel_bytes) {
  return static_cast<std::uint32_t>(panel_bytes >> 4) << 16 | (address & 0x3ffff) >> 4;
}
/// The descriptor of the matrix so many bytes behind one's, `eight_rows_bytes` from each eight rows
/// to the next. Its upper half, the same for all, is put on last: products wait for every
/// instruction that finds where the next one's operands are.
template <int eight_rows_bytes = 1024>
__device__ inline std::uint64_t moved_descriptor(std::uint32_t matrix, int bytes) {
  constexpr std::uint64_t permuted_128_bytes = std::uint64_t{1} << 62;
  constexpr std::uint64_t eight_rows = std::uint64_t{eight_rows_bytes >> 4} << 32;
  return permuted_128_bytes | eight_rows | (matrix + static_cast<std::uint32_t>(bytes >> 4));
}

/// Before the first product after registers that products use were written.
__device__ inline void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}
/// Waits for all but the last `pending` committed groups.
template <int pending>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(pending) : "memory");
}
/// Keeps the compiler from moving uses of registers across.
template <int count>
__device__ inline void pin(float (&registers)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int count>
__device__ inline void pin(std::uint32_t (&registers)[count][4]) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) asm volatile("" : "+r"(registers[i][k])::"memory");
  }
}

// A product's sums as the first operands of its instruction.
#define COPPICE_REGISTERS_12 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"
#define COPPICE_REGISTERS_16 COPPICE_REGISTERS_12 ", %12, %13, %14, %15"
#define COPPICE_REGISTERS_20 COPPICE_REGISTERS_16 ", %16, %17, %18, %19"
#define COPPICE_REGISTERS_24 COPPICE_REGISTERS_20 ", %20, %21, %22, %23"
#define COPPICE_REGISTERS_32 COPPICE_REGISTERS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define COPPICE_REGISTERS_36 COPPICE_REGISTERS_32 ", %32, %33, %34, %35"
#define COPPICE_REGISTERS_40 COPPICE_REGISTERS_36 ", %36, %37, %38, %39"
#define COPPICE_REGISTERS_48 COPPICE_REGISTERS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define COPPICE_REGISTERS_64                 \
  COPPICE_REGISTERS_48                       \
  ", %48, %49, %50, %51, %52, %53, %54, %55" \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define COPPICE_SUMS_4(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define COPPICE_SUMS_8(i) COPPICE_SUMS_4(i), COPPICE_SUMS_4(i + 4)
#define COPPICE_SUMS_12 COPPICE_SUMS_8(0), COPPICE_SUMS_4(8)
#define COPPICE_SUMS_16 COPPICE_SUMS_12, COPPICE_SUMS_4(12)
#define COPPICE_SUMS_20 COPPICE_SUMS_16, COPPICE_SUMS_4(16)
#define COPPICE_SUMS_24 COPPICE_SUMS_20, COPPICE_SUMS_4(20)
#define COPPICE_SUMS_32 COPPICE_SUMS_24, COPPICE_SUMS_8(24)
#define COPPICE_SUMS_36 COPPICE_SUMS_32, COPPICE_SUMS_4(32)
#define COPPICE_SUMS_40 COPPICE_SUMS_36, COPPICE_SUMS_4(36)
#define COPPICE_SUMS_48 COPPICE_SUMS_40, COPPICE_SUMS_8(40)
#define COPPICE_SUMS_64 COPPICE_SUMS_48, COPPICE_SUMS_8(48), COPPICE_SUMS_8(56)

// The instruction of a product of 64 rows of a and `columns` of b, whose operands are those behind
// the `count` sums. `layouts`: 1 for what lies in shared memory by its columns, 0 otherwise.
#define COPPICE_PRODUCT(columns, count, at_a, at_b, at_add, layouts)         \
  "{\n"                                                                      \
  ".reg .pred add;\n"                                                        \
  "setp.ne.b32 add, " at_add                                                 \
  ", 0;\n"                                                                   \
  "wgmma.mma_async.sync.aligned.m64n" #columns                               \
  "k16.f32.bf16.bf16 "                                                       \
  "{" COPPICE_REGISTERS_##count "}, " at_a ", " at_b ", add, 1, 1, " layouts \
                                ";\n"                                        \
                                "}"

// multiply_add_shared(sum, a, b, add): sum = a b^T, or sum += a b^T.
#define COPPICE_MULTIPLY_SHARED(columns, count, at_a, at_b, at_add)                                \
  __device__ inline void multiply_add_shared(float(&sum)[count], std::uint64_t a, std::uint64_t b, \
                                             bool add) {                                           \
    asm volatile(COPPICE_PRODUCT(columns, count, at_a, at_b, at_add, "0, 0")                       \
                 : COPPICE_SUMS_##count                                                            \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                    \
  }
COPPICE_MULTIPLY_SHARED(32, 16, "%16", "%17", "%18")
COPPICE_MULTIPLY_SHARED(48, 24, "%24", "%25", "%26")
COPPICE_MULTIPLY_SHARED(64, 32, "%32", "%33", "%34")
COPPICE_MULTIPLY_SHARED(72, 36, "%36", "%37", "%38")
COPPICE_MULTIPLY_SHARED(80, 40, "%40", "%41", "%42")
COPPICE_MULTIPLY_SHARED(96, 48, "%48", "%49", "%50")
COPPICE_MULTIPLY_SHARED(128, 64, "%64", "%65", "%66")

// The same, a being in registers: multiply_add_rows() where b lies by the rows of b^T, and
// multiply_add_registers(), sum = a b or sum += a b, where it lies by its columns.
#define COPPICE_MULTIPLY_REGISTERS(name, columns, count, at_a, at_b, at_add, layout)           \
  __device__ inline void name(float(&sum)[count], const std::uint32_t(&a)[4], std::uint64_t b, \
                              bool add) {                                                      \
    asm volatile(COPPICE_PRODUCT(columns, count, at_a, at_b, at_add, layout)                   \
                 : COPPICE_SUMS_##count                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                         \
                   "r"(static_cast<int>(add)));                                                \
  }
COPPICE_MULTIPLY_REGISTERS(multiply_add_rows, 24, 12, "{%12, %13, %14, %15}", "%16", "%17", "0")
COPPICE_MULTIPLY_REGISTERS(multiply_add_rows, 40, 20, "{%20, %21, %22, %23}", "%24", "%25", "0")
COPPICE_MULTIPLY_REGISTERS(multiply_add_rows, 48, 24, "{%24, %25, %26, %27}", "%28", "%29", "0")
COPPICE_MULTIPLY_REGISTERS(multiply_add_rows, 64, 32, "{%32, %33, %34, %35}", "%36", "%37", "0")
COPPICE_MULTIPLY_REGISTERS(multiply_add_rows, 72, 36, "{%36, %37, %38, %39}", "%40", "%41", "0")
COPPICE_MULTIPLY_REGISTERS(multiply_add_rows, 96, 48, "{%48, %49, %50, %51}", "%52", "%53", "0")
COPPICE_MULTIPLY_REGISTERS(multiply_add_registers, 64, 32, "{%32, %33, %34, %35}", "%36", "%37",
                           "1")
COPPICE_MULTIPLY_REGISTERS(multiply_add_registers, 128, 64, "{%64, %65, %66, %67}", "%68", "%69",
                           "1")

#undef COPPICE_PRODUCT
#undef COPPICE_MULTIPLY_SHARED
#undef COPPICE_MULTIPLY_REGISTERS
#undef COPPICE_REGISTERS_12
#undef COPPICE_REGISTERS_16
#undef COPPICE_REGISTERS_20
#undef COPPICE_REGISTERS_24
#undef COPPICE_REGISTERS_32
#undef COPPICE_REGISTERS_36
#undef COPPICE_REGISTERS_40
#undef COPPICE_REGISTERS_48
#undef COPPICE_REGISTERS_64
#undef COPPICE_SUMS_4
#undef COPPICE_SUMS_8
#undef COPPICE_SUMS_12
#undef COPPICE_SUMS_16
#undef COPPICE_SUMS_20
#undef COPPICE_SUMS_24
#undef COPPICE_SUMS_32
#undef COPPICE_SUMS_36
#undef COPPICE_SUMS_40
#undef COPPICE_SUMS_48
#undef COPPICE_SUMS_64

}  // namespace coppice::cuda::hopper
