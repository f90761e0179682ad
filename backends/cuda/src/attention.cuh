// Matrices in shared memory, and pairs of small floats, as tensor cores take them.

#ifndef EMULATED
// Four matrices of 8 x 8 elements of 16 bits: the lane 8 m + r names row r of the matrix m, 16 aligned bytes. A lane gets two
// elements of each, those of row lane / 4 from column lane % 4 * 2 on; turned, those of column lane / 4 from row lane % 4 * 2 on.
#define LOAD_MATRICES(name, how)                                                                               \
    static __device__ __forceinline__ void name(unsigned to[4], const unsigned short* row) {                   \
        unsigned from = (unsigned)__cvta_generic_to_shared(row);                                               \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];"                 \
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                                      \
                     : "r"(from)                                                                               \
                     : "memory");                                                                              \
    }
LOAD_MATRICES(load_matrices, "")
LOAD_MATRICES(load_matrices_turned, ".trans")
#undef LOAD_MATRICES

// Two floats of 16 bits, the first one in the lower half.
#define PAIR_OF(name, type)                                                                 \
    static __device__ __forceinline__ unsigned name(float low, float high) {                \
        unsigned pair;                                                                      \
        asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));        \
        return pair;                                                                        \
    }
PAIR_OF(pair_of_half, "f16")
PAIR_OF(pair_of_bfloat16, "bf16")
#undef PAIR_OF
#else
DEVICE unsigned pair_of_half(float low, float high) {
  return (unsigned)float_to_half_bits(low) | (unsigned)float_to_half_bits(high) << 16;
}
DEVICE unsigned pair_of_bfloat16(float low, float high) {
  return (unsigned)float_to_bfloat16_bits(low) | (unsigned)float_to_bfloat16_bits(high) << 16;
}
#endif
