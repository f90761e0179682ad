// Operations of the lanes of a warp: synchronisation, shuffles, votes and products of small matrices.
#pragma once

namespace emulated {

struct Shuffle {
    Word value;
    unsigned source;
};

// Gives each lane the value of its source.
inline void combine_shuffle(void** operands, unsigned mask) {
    Word values[32] = {};
    for (unsigned i = 0; i < 32; i++)
        if (operands[i]) values[i] = static_cast<Shuffle*>(operands[i])->value;
    for (unsigned i = 0; i < 32; i++) {
        if (!operands[i]) continue;
        Shuffle* const shuffle = static_cast<Shuffle*>(operands[i]);
        if (!operands[shuffle->source])
            fail("lane %u reads lane %u in a shuffle, which does not take part (mask %08x)", i,
                 shuffle->source, mask);
        shuffle->value = values[shuffle->source];
    }
}

template <class T>
T shuffle(const char* what, unsigned mask, T value, unsigned source) {
    Shuffle mine = {0, source};
    __builtin_memcpy(&mine.value, &value, sizeof(T));
    meet(what, combine_shuffle, mask, &mine);
    __builtin_memcpy(&value, &mine.value, sizeof(T));
    return value;
}

// The last lane of the current lane's segment; segments have a width that is a power of two.
inline unsigned segment_end(int width) { return lane() | ((unsigned)width - 1); }

inline unsigned source_at(int from, int width) {
    const unsigned within = (unsigned)width - 1;
    return (lane() & ~within) | ((unsigned)from & within);
}
inline unsigned source_up(unsigned delta, int width) {
    const unsigned within = lane() & ((unsigned)width - 1);
    return delta > within ? lane() : lane() - delta;
}
inline unsigned source_down(unsigned delta, int width) {
    return delta > segment_end(width) - lane() ? lane() : lane() + delta;
}
inline unsigned source_xor(int with, int width) {
    const unsigned other = lane() ^ (unsigned)with;
    return other > segment_end(width) ? lane() : other;
}

struct Vote {
    bool yes;
    unsigned all;
};

inline void combine_votes(void** operands, unsigned) {
    unsigned all = 0;
    for (unsigned i = 0; i < 32; i++)
        if (operands[i] && static_cast<Vote*>(operands[i])->yes) all |= 1u << i;
    for (unsigned i = 0; i < 32; i++)
        if (operands[i]) static_cast<Vote*>(operands[i])->all = all;
}

inline unsigned vote(const char* what, unsigned mask, bool yes) {
    Vote mine = {yes, 0};
    meet(what, combine_votes, mask, &mine);
    return mine.all;
}

inline void combine_nothing(void**, unsigned mask) { order_warp(mask); }

// A lane's part of D = A B + D; the elements of D are floats or integers.
struct Fragments {
    void* d;
    const unsigned* a;
    const unsigned* b;
};

// Every lane has elements, so that a warp must be whole.
inline void needs_whole_warp(unsigned mask) {
    if (mask != 0xffffffffu) fail("multiplies matrices in a warp of fewer than 32 threads");
}

inline float half_element(unsigned registers, unsigned i) {
    return half_bits_to_float((unsigned short)(registers >> 16 * i));
}
inline float bf16_element(unsigned registers, unsigned i) {
    return __uint_as_float(i ? registers & 0xffff0000u : registers << 16);
}

// Adds the products in `Sum` and converts once: floats in f64, as a device's order of additions is not specified; integers without sign,
// which wrap.
template <typename Sum, typename Element>
void multiply(void** operands, const Element* a, const Element* b, unsigned depth) {
    for (unsigned lane = 0; lane < 32; lane++) {
        for (unsigned i = 0; i < 4; i++) {
            // PTX ISA 9.2, 9.7.14.5.7, 9.7.14.5.8 and 9.7.14.5.11, accumulators: the same for all shapes.
            const unsigned row = (lane >> 2) + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
            Element* const d = (Element*)static_cast<Fragments*>(operands[lane])->d + i;
            Sum sum = (Sum)*d;
            for (unsigned k = 0; k < depth; k++) sum += (Sum)a[row * depth + k] * (Sum)b[k * 8 + column];
            *d = (Element)sum;
        }
    }
}

// PTX ISA 9.2, 9.7.14.5.8, "Matrix Fragments for mma.m16n8k16 with floating point type".
template <float element(unsigned, unsigned)>
void combine_16816(void** operands, unsigned mask) {
    needs_whole_warp(mask);
    float a[16 * 16], b[16 * 8];
    for (unsigned lane = 0; lane < 32; lane++) {
        const Fragments& mine = *static_cast<Fragments*>(operands[lane]);
        const unsigned group = lane >> 2, within = lane % 4;
        for (unsigned i = 0; i < 8; i++) {
            const unsigned row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
            const unsigned column = within * 2 + (i & 1) + (i < 4 ? 0 : 8);
            a[row * 16 + column] = element(mine.a[i / 2], i & 1);
        }
        for (unsigned i = 0; i < 4; i++) {
            const unsigned row = within * 2 + (i & 1) + (i < 2 ? 0 : 8);
            b[row * 8 + group] = element(mine.b[i / 2], i & 1);
        }
    }
    multiply<double>(operands, a, b, 16);
}

// PTX ISA 9.2, 9.7.14.5.7, "Matrix Fragments for mma.m16n8k8", type .tf32: a float's low 13 bits do not count.
inline void combine_1688_tf32(void** operands, unsigned mask) {
    needs_whole_warp(mask);
    float a[16 * 8], b[8 * 8];
    for (unsigned lane = 0; lane < 32; lane++) {
        const Fragments& mine = *static_cast<Fragments*>(operands[lane]);
        const unsigned group = lane >> 2, within = lane % 4;
        for (unsigned i = 0; i < 4; i++) {
            const unsigned row = group + (i & 1 ? 8 : 0), column = within + (i < 2 ? 0 : 4);
            a[row * 8 + column] = __uint_as_float(mine.a[i] & ~0x1fffu);
        }
        for (unsigned i = 0; i < 2; i++)
            b[(within + 4 * i) * 8 + group] = __uint_as_float(mine.b[i] & ~0x1fffu);
    }
    multiply<double>(operands, a, b, 8);
}

inline int byte_element(unsigned registers, unsigned i, bool is_signed) {
    const unsigned byte = registers >> 8 * i & 0xff;
    return is_signed && byte > 127 ? (int)byte - 256 : (int)byte;
}

// PTX ISA 9.2, 9.7.14.5.11, "Matrix Fragments for mma.m16n8k32", integers of 8 bits; sums wrap.
template <bool signed_a, bool signed_b>
void combine_16832(void** operands, unsigned mask) {
    needs_whole_warp(mask);
    int a[16 * 32], b[32 * 8];
    for (unsigned lane = 0; lane < 32; lane++) {
        const Fragments& mine = *static_cast<Fragments*>(operands[lane]);
        const unsigned group = lane >> 2, within = lane % 4;
        for (unsigned i = 0; i < 16; i++) {
            const unsigned row = i < 4 || (8 <= i && i < 12) ? group : group + 8;
            const unsigned column = within * 4 + (i & 3) + (i < 8 ? 0 : 16);
            a[row * 32 + column] = byte_element(mine.a[i / 4], i & 3, signed_a);
        }
        for (unsigned i = 0; i < 8; i++) {
            const unsigned row = within * 4 + (i & 3) + (i < 4 ? 0 : 16);
            b[row * 8 + group] = byte_element(mine.b[i / 4], i & 3, signed_b);
        }
    }
    multiply<unsigned>(operands, a, b, 32);
}

inline void mma(const char* what, Combine* combine, void* d, const unsigned* a, const unsigned* b) {
    Fragments mine = {d, a, b};
    meet(what, combine, 0xffffffffu, &mine);
}

// A lane's row of a matrix of 8 x 8 elements of 16 bits, and what it gets of four such matrices.
struct Rows {
    unsigned short row[8];
    unsigned* to;
};

// PTX ISA 9.2, 9.7.14.5.15, ldmatrix .x4: lanes 8 m to 8 m + 7 bring the rows of the matrix m.
template <bool turned>
void combine_matrices(void** operands, unsigned mask) {
    needs_whole_warp(mask);
    for (unsigned lane = 0; lane < 32; lane++) {
        for (unsigned m = 0; m < 4; m++) {
            unsigned both = 0;
            for (unsigned i = 0; i < 2; i++) {
                const unsigned along = lane % 4 * 2 + i;
                const unsigned row = turned ? along : lane / 4, column = turned ? lane / 4 : along;
                both |= (unsigned)static_cast<Rows*>(operands[8 * m + row])->row[column] << 16 * i;
            }
            static_cast<Rows*>(operands[lane])->to[m] = both;
        }
    }
}

inline void load_matrices(const char* what, Combine* combine, unsigned* to,
                          Pointer<const unsigned short> from) {
    const auto row = load_pack<8>(from);
    Rows mine = {{}, to};
    for (unsigned i = 0; i < 8; i++) mine.row[i] = row.at[i];
    meet(what, combine, 0xffffffffu, &mine);
}

}  // namespace emulated

inline void __syncwarp(unsigned mask = 0xffffffffu) {
    emulated::meet("__syncwarp", emulated::combine_nothing, mask, nullptr);
}

#define EMULATED_SHUFFLES(T)                                                                             \
    inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {                             \
        return emulated::shuffle("__shfl_sync", mask, value, emulated::source_at(from, width));          \
    }                                                                                                    \
    inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {                    \
        return emulated::shuffle("__shfl_up_sync", mask, value, emulated::source_up(delta, width));      \
    }                                                                                                    \
    inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {                  \
        return emulated::shuffle("__shfl_down_sync", mask, value, emulated::source_down(delta, width));  \
    }                                                                                                    \
    inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {                         \
        return emulated::shuffle("__shfl_xor_sync", mask, value, emulated::source_xor(with, width));     \
    }
EMULATED_SHUFFLES(int)
EMULATED_SHUFFLES(unsigned)
EMULATED_SHUFFLES(long)
EMULATED_SHUFFLES(unsigned long)
EMULATED_SHUFFLES(long long)
EMULATED_SHUFFLES(unsigned long long)
EMULATED_SHUFFLES(float)
EMULATED_SHUFFLES(double)
#undef EMULATED_SHUFFLES

inline unsigned __ballot_sync(unsigned mask, int yes) {
    return emulated::vote("__ballot_sync", mask, yes != 0);
}
inline int __any_sync(unsigned mask, int yes) {
    return emulated::vote("__any_sync", mask, yes != 0) != 0;
}
inline int __all_sync(unsigned mask, int yes) {
    return emulated::vote("__all_sync", mask, yes == 0) == 0;
}

inline void mma_16816(float d[4], const unsigned a[4], const unsigned b[2]) {
    emulated::mma("mma_16816", emulated::combine_16816<emulated::half_element>, d, a, b);
}
inline void mma_16816_bf16(float d[4], const unsigned a[4], const unsigned b[2]) {
    emulated::mma("mma_16816_bf16", emulated::combine_16816<emulated::bf16_element>, d, a, b);
}
// The nearest number of tf32, away from zero of two that are as near: what is not finite keeps its kind.
inline unsigned tf32_bits(float value) {
    const unsigned bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x7f800000u) return magnitude > 0x7f800000u ? bits | 0x400000u : bits;
    return (bits + 0x1000u) & ~0x1fffu;
}
inline void mma_1688_tf32(float d[4], const unsigned a[4], const unsigned b[2]) {
    emulated::mma("mma_1688_tf32", emulated::combine_1688_tf32, d, a, b);
}
#define EMULATED_BYTES(name, signed_a, signed_b)                                                 \
    inline void name(int d[4], const unsigned a[4], const unsigned b[2]) {                       \
        emulated::mma(#name, emulated::combine_16832<signed_a, signed_b>, d, a, b);              \
    }
EMULATED_BYTES(mma_16832_s8s8, true, true)
EMULATED_BYTES(mma_16832_s8u8, true, false)
EMULATED_BYTES(mma_16832_u8s8, false, true)
EMULATED_BYTES(mma_16832_u8u8, false, false)
#undef EMULATED_BYTES
inline void load_matrices(unsigned to[4], emulated::Pointer<const unsigned short> row) {
    emulated::load_matrices("load_matrices", emulated::combine_matrices<false>, to, row);
}
inline void load_matrices_turned(unsigned to[4], emulated::Pointer<const unsigned short> row) {
    emulated::load_matrices("load_matrices_turned", emulated::combine_matrices<true>, to, row);
}
