// Checked pointers to global and shared memory, and accesses to 16 bytes.
#pragma once

namespace emulated {

template <class T>
struct Plain {
    typedef T Type;
    static const bool constant = false;
};
template <class T>
struct Plain<const T> {
    typedef T Type;
    static const bool constant = true;
};

template <class A, class B>
struct Same {
    static const bool value = false;
};
template <class A>
struct Same<A, A> {
    static const bool value = true;
};

template <bool condition>
struct When {};
template <>
struct When<true> {
    typedef int Type;
};

template <class T>
T load(const Memory* memory, long long at) {
    T value;
    __builtin_memcpy(&value, access(*memory, at, sizeof(T), Access::Read), sizeof(T));
    return value;
}

template <>
inline bool load<bool>(const Memory* memory, long long at) {
    return *static_cast<const unsigned char*>(access(*memory, at, 1, Access::Read)) != 0;
}

template <class T>
void store(const Memory* memory, long long at, T value) {
    __builtin_memcpy(access(*memory, at, sizeof(T), Access::Write), &value, sizeof(T));
}

template <class T>
class Pointer;

// An element that may be written. Usable only as the temporary that it is made as: `auto v = p[i]` would otherwise read
// later than it does on a device.
template <class T>
class Reference {
    const Memory* memory;
    long long at;

public:
    Reference(const Memory* memory, long long at) : memory(memory), at(at) {}
    // Makes `condition ? p[i] : 0` ambiguous, which would otherwise convert an element of floats to an integer.
    template <class U, typename When<!Same<U, T>::value && !__is_class(U)>::Type = 0>
    Reference(U) = delete;
    Reference(const Reference&) = delete;

    operator T() && { return load<T>(memory, at); }
    Pointer<T> operator&() && { return Pointer<T>(memory, at); }

    T operator=(T value) && {
        store<T>(memory, at, value);
        return value;
    }
    T operator=(Reference&& other) && {
        const T value = static_cast<Reference&&>(other);
        store<T>(memory, at, value);
        return value;
    }
#define EMULATED_UPDATE(op)                                                                 \
    template <class U>                                                                      \
    T operator op##=(U && by) && {                                                     \
        const T value = static_cast<T>(load<T>(memory, at) op static_cast<U&&>(by));        \
        store<T>(memory, at, value);                                                        \
        return value;                                                                       \
    }
    EMULATED_UPDATE(+)
    EMULATED_UPDATE(-)
    EMULATED_UPDATE(*)
    EMULATED_UPDATE(/)
    EMULATED_UPDATE(%)
    EMULATED_UPDATE(&)
    EMULATED_UPDATE(|)
    EMULATED_UPDATE(^)
    EMULATED_UPDATE(<<)
    EMULATED_UPDATE(>>)
#undef EMULATED_UPDATE
    T operator++() && {
        const T value = static_cast<T>(load<T>(memory, at) + 1);
        store<T>(memory, at, value);
        return value;
    }
    T operator--() && {
        const T value = static_cast<T>(load<T>(memory, at) - 1);
        store<T>(memory, at, value);
        return value;
    }
    T operator++(int) && {
        const T value = load<T>(memory, at);
        store<T>(memory, at, static_cast<T>(value + 1));
        return value;
    }
    T operator--(int) && {
        const T value = load<T>(memory, at);
        store<T>(memory, at, static_cast<T>(value - 1));
        return value;
    }
};

// What indexing a pointer gives: a value where the memory is constant.
template <class T>
struct Element {
    typedef Reference<T> Type;
    static Reference<T> at(const Memory* memory, long long at) { return Reference<T>(memory, at); }
};
template <class T>
struct Element<const T> {
    typedef T Type;
    static T at(const Memory* memory, long long at) { return load<T>(memory, at); }
};

// A pointer into a parameter's or a shared array's memory, which knows its bounds. Only accesses are checked: a pointer
// may lead outside.
template <class T>
class Pointer {
public:
    const Memory* memory;
    long long at;

    Pointer(const Memory* memory, long long at) : memory(memory), at(at) {}
    template <class U, typename When<Same<const U, T>::value>::Type = 0>
    Pointer(const Pointer<U>& other) : memory(other.memory), at(other.at) {}

    typename Element<T>::Type operator[](long long i) const {
        return Element<T>::at(memory, at + i * static_cast<long long>(sizeof(T)));
    }
    typename Element<T>::Type operator*() const { return Element<T>::at(memory, at); }

    Pointer operator+(long long i) const {
        return Pointer(memory, at + i * static_cast<long long>(sizeof(T)));
    }
    Pointer operator-(long long i) const { return *this + -i; }
    friend Pointer operator+(long long i, const Pointer& p) { return p + i; }
    Pointer& operator+=(long long i) { return *this = *this + i; }
    Pointer& operator-=(long long i) { return *this = *this - i; }
    Pointer& operator++() { return *this += 1; }
    Pointer& operator--() { return *this -= 1; }
    Pointer operator++(int) {
        const Pointer before = *this;
        *this += 1;
        return before;
    }
    Pointer operator--(int) {
        const Pointer before = *this;
        *this -= 1;
        return before;
    }
    bool operator==(const Pointer& p) const { return memory->base + at == p.memory->base + p.at; }
    bool operator!=(const Pointer& p) const { return !(*this == p); }
};

template <class T>
Pointer<T> shared(const void* site, const char* name, long long count, bool is_large) {
    return Pointer<T>(shared_array(site, name, sizeof(T), count, is_large), 0);
}

}  // namespace emulated

template <class T>
T __ldg(const emulated::Pointer<const T>& p) {
    return *p;
}
template <class T>
T __ldg(const emulated::Pointer<T>& p) {
    return *p;
}

#define EMULATED_VECTORS(T, name)                                                      \
    struct name##2 {                                                                   \
        T x, y;                                                                        \
    };                                                                                 \
    struct name##4 {                                                                   \
        T x, y, z, w;                                                                  \
    };                                                                                 \
    inline name##2 make_##name##2(T x, T y) { return name##2{x, y}; }                  \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return name##4{x, y, z, w}; }
EMULATED_VECTORS(float, float)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(unsigned, uint)
#undef EMULATED_VECTORS

// Accesses to 16 aligned bytes.
template <class T>
float4 LOAD4(const emulated::Pointer<T>& p) {
    static_assert(emulated::Same<typename emulated::Plain<T>::Type, float>::value, "LOAD4 reads floats");
    return emulated::load<float4>(p.memory, p.at);
}
inline void STORE4(const emulated::Pointer<float>& p, float4 value) {
    emulated::store<float4>(p.memory, p.at, value);
}
template <class T>
uint4 LOAD16(const emulated::Pointer<T>& p) {
    return emulated::load<uint4>(p.memory, p.at);
}
template <class T>
void STORE16(const emulated::Pointer<T>& p, uint4 value) {
    static_assert(!emulated::Plain<T>::constant, "STORE16 writes");
    emulated::store<uint4>(p.memory, p.at, value);
}

// Elements side by side, in up to 16 bytes accessed at once.
template <class T, int n>
struct Pack {
    T at[n];
};
namespace emulated {
template <int bytes>
struct Bytes {
    unsigned char at[bytes];
};
template <int all>
struct Pieces {
    static const int each = all < 16 ? all : 16;
    typedef Bytes<each> Type;
};
}  // namespace emulated
template <int n, class T>
Pack<typename emulated::Plain<T>::Type, n> load_pack(const emulated::Pointer<T>& p) {
    typedef emulated::Pieces<n * (int)sizeof(T)> Pieces;
    Pack<typename emulated::Plain<T>::Type, n> values;
    for (int at = 0; at < n * (int)sizeof(T); at += Pieces::each) {
        const typename Pieces::Type piece = emulated::load<typename Pieces::Type>(p.memory, p.at + at);
        __builtin_memcpy((unsigned char*)&values + at, &piece, Pieces::each);
    }
    return values;
}
template <int n, class T>
Pack<typename emulated::Plain<T>::Type, n> load_fresh(const emulated::Pointer<T>& p) {
    static_assert(n * sizeof(T) == 16, "16 bytes at once");
    return load_pack<n>(p);
}
template <class T>
typename emulated::Plain<T>::Type load_one_fresh(const emulated::Pointer<T>& p) {
    return *p;
}
template <class T, int n>
void store_pack(const emulated::Pointer<T>& p, const Pack<T, n>& values) {
    typedef emulated::Pieces<n * (int)sizeof(T)> Pieces;
    for (int at = 0; at < n * (int)sizeof(T); at += Pieces::each) {
        typename Pieces::Type piece;
        __builtin_memcpy(&piece, (const unsigned char*)&values + at, Pieces::each);
        emulated::store<typename Pieces::Type>(p.memory, p.at + at, piece);
    }
}
// Two elements of 16 bits, or four of 8 bits, the first one in the lowest bits.
template <class T>
unsigned load_word(const emulated::Pointer<T>& p) {
    static_assert(sizeof(T) <= 2, "load_word reads elements of 8 or 16 bits");
    return emulated::load<unsigned>(p.memory, p.at);
}

// Copies from global to shared memory that threads do not wait for at once.
template <class T>
void copy_async(const emulated::Pointer<T>& to, const emulated::Pointer<const T>& from, bool inside) {
    emulated::begin_copy(*to.memory, to.at, *from.memory, from.at, 16, inside);
}
template <int n, class T>
void copy_part_async(const emulated::Pointer<T>& to, const emulated::Pointer<const T>& from, bool inside) {
    static_assert(n * sizeof(T) == 4 || n * sizeof(T) == 8, "such a copy has 4 or 8 bytes");
    emulated::begin_copy(*to.memory, to.at, *from.memory, from.at, n * sizeof(T), inside);
}
inline void commit_copies() { emulated::end_group(); }
template <int but>
void wait_copies() {
    emulated::wait_groups(but);
}
