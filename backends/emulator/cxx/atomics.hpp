// Atomic operations. Threads run one at a time, so that an access is atomic by itself.
#pragma once

namespace emulated {

// A type that is not deduced: `atomicAdd(p, 1)` on floats adds a float.
template <class T>
struct Given {
    typedef T Type;
};

template <class T, class... Allowed>
struct Among;
template <class T>
struct Among<T> {
    static const bool value = false;
};
template <class T, class First, class... Rest>
struct Among<T, First, Rest...> {
    static const bool value = Same<T, First>::value || Among<T, Rest...>::value;
};

template <class T, class Update>
T atomic(const Pointer<T>& p, Update update) {
    void* const at = access(*p.memory, p.at, sizeof(T), Access::Atomic);
    T before;
    __builtin_memcpy(&before, at, sizeof(T));
    const T after = update(before);
    __builtin_memcpy(at, &after, sizeof(T));
    return before;
}

}  // namespace emulated

// The types are those for which a device has the operation.
#define EMULATED_ATOMIC(name, expression, ...)                                               \
    template <class T>                                                                       \
    T name(const emulated::Pointer<T>& p, typename emulated::Given<T>::Type by) {            \
        static_assert(emulated::Among<T, __VA_ARGS__>::value, #name " on this type");        \
        return emulated::atomic(p, [by](T was) -> T { return expression; });                 \
    }
EMULATED_ATOMIC(atomicAdd, was + by, int, unsigned, unsigned long long, float, double)
EMULATED_ATOMIC(atomicSub, was - by, int, unsigned)
EMULATED_ATOMIC(atomicInc, was >= by ? 0 : was + 1, unsigned)
EMULATED_ATOMIC(atomicMax, was < by ? by : was, int, unsigned, long long, unsigned long long)
EMULATED_ATOMIC(atomicMin, by < was ? by : was, int, unsigned, long long, unsigned long long)
EMULATED_ATOMIC(atomicExch, (static_cast<void>(was), by), int, unsigned, unsigned long long, float)
EMULATED_ATOMIC(atomicAnd, was & by, int, unsigned, unsigned long long)
EMULATED_ATOMIC(atomicOr, was | by, int, unsigned, unsigned long long)
EMULATED_ATOMIC(atomicXor, was ^ by, int, unsigned, unsigned long long)
#undef EMULATED_ATOMIC

template <class T>
T atomicCAS(const emulated::Pointer<T>& p, typename emulated::Given<T>::Type expected,
            typename emulated::Given<T>::Type value) {
    static_assert(emulated::Among<T, int, unsigned, unsigned short, unsigned long long>::value,
                  "atomicCAS on this type");
    return emulated::atomic(p, [=](T was) -> T { return was == expected ? value : was; });
}

namespace emulated {

// `comes_last` of the prelude, in this line.
inline bool comes_last_at(const Pointer<unsigned>& count, unsigned blocks, unsigned line) {
    static bool is_last;
    barrier(line);
    if (threadIdx.x == 0) {
        is_last = atomicInc(count, blocks - 1) + 1 == blocks;
        meet_blocks(count.memory->base + count.at, is_last);
    }
    barrier(line);
    return is_last;
}

}  // namespace emulated
