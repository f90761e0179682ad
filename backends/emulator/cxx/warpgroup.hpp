// Asynchronous matrix products (wgmma) of matrices in shared memory by the four warps of a warpgroup.
#pragma once

namespace emulated {

// Sums of a thread. What products add to them is there once the products are waited for.
template <int n>
class Sums {
    float values[n] = {};

public:
    SumsOf state = {values, 0, fences_of_products()};

    Sums() {}
    Sums(const Sums&) = delete;

    float& operator[](int i) {
        if (state.pending) fail("accesses the sum %d of products that are not waited for", i);
        return values[i];
    }
};

inline float half_at(const void* at) {
    unsigned short bits;
    __builtin_memcpy(&bits, at, 2);
    return half_bits_to_float(bits);
}
inline float bf16_at(const void* at) {
    unsigned short bits;
    __builtin_memcpy(&bits, at, 2);
    return __uint_as_float((unsigned)bits << 16);
}
// The low bits of a number of tf32 do not count.
inline float tf32_at(const void* at) {
    unsigned bits;
    __builtin_memcpy(&bits, at, 4);
    return __uint_as_float(bits & ~0x1fffu);
}

}  // namespace emulated

template <class T>
unsigned shared_address(const emulated::Pointer<T>& p) {
    return emulated::shared_address(*p.memory, p.at);
}
inline void fence_shared() { emulated::fence_writes(); }
template <int n>
void begin_products(emulated::Sums<n>&) {
    emulated::fence_products();
}
inline void end_products() { emulated::end_products(); }
template <int but, int n>
void wait_products(emulated::Sums<n>&) {
    emulated::wait_for_products(but);
}

#define EMULATED_PRODUCT(name, depth, bytes, element)                                                         \
    template <int left_turned, int right_turned, int n>                                                       \
    void name(emulated::Sums<n>& sum, emulated::Word left, emulated::Word right) {                            \
        static_assert(bytes == 2 || (!left_turned && !right_turned), "only elements of 16 bits are turned");  \
        emulated::Product product = {#name, left,          right,           2 * n,             depth,         \
                                     bytes, !!left_turned, !!right_turned, emulated::element, &sum.state};    \
        emulated::begin_product(product);                                                                     \
    }
EMULATED_PRODUCT(wgmma_f16, 16, 2, half_at)
EMULATED_PRODUCT(wgmma_bf16, 16, 2, bf16_at)
EMULATED_PRODUCT(wgmma_tf32, 8, 4, tf32_at)
#undef EMULATED_PRODUCT
