// Arithmetic under CUDA's names. C's functions are declared here rather than included, which keeps units quick to
// compile.
#pragma once

#define EMULATED_UNARY(name)                            \
    extern "C" double name(double) noexcept;            \
    extern "C" float name##f(float) noexcept;           \
    inline float name(float x) { return name##f(x); }
#define EMULATED_BINARY(name)                                               \
    extern "C" double name(double, double) noexcept;                        \
    extern "C" float name##f(float, float) noexcept;                        \
    inline float name(float x, float y) { return name##f(x, y); }           \
    inline double name(float x, double y) { return name((double)x, y); }    \
    inline double name(double x, float y) { return name(x, (double)y); }
EMULATED_UNARY(acos)
EMULATED_UNARY(acosh)
EMULATED_UNARY(asin)
EMULATED_UNARY(asinh)
EMULATED_UNARY(atan)
EMULATED_UNARY(atanh)
EMULATED_UNARY(cbrt)
EMULATED_UNARY(ceil)
EMULATED_UNARY(cos)
EMULATED_UNARY(cosh)
EMULATED_UNARY(erf)
EMULATED_UNARY(erfc)
EMULATED_UNARY(exp)
EMULATED_UNARY(exp2)
EMULATED_UNARY(expm1)
EMULATED_UNARY(fabs)
EMULATED_UNARY(floor)
EMULATED_UNARY(lgamma)
EMULATED_UNARY(log)
EMULATED_UNARY(log10)
EMULATED_UNARY(log1p)
EMULATED_UNARY(log2)
EMULATED_UNARY(nearbyint)
EMULATED_UNARY(rint)
EMULATED_UNARY(round)
EMULATED_UNARY(sin)
EMULATED_UNARY(sinh)
EMULATED_UNARY(sqrt)
EMULATED_UNARY(tan)
EMULATED_UNARY(tanh)
EMULATED_UNARY(tgamma)
EMULATED_UNARY(trunc)
EMULATED_BINARY(atan2)
EMULATED_BINARY(copysign)
EMULATED_BINARY(fdim)
EMULATED_BINARY(fmax)
EMULATED_BINARY(fmin)
EMULATED_BINARY(fmod)
EMULATED_BINARY(hypot)
EMULATED_BINARY(nextafter)
EMULATED_BINARY(pow)
EMULATED_BINARY(remainder)
#undef EMULATED_UNARY
#undef EMULATED_BINARY
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
extern "C" double ldexp(double, int) noexcept;
extern "C" float ldexpf(float, int) noexcept;
inline float ldexp(float x, int e) { return ldexpf(x, e); }
extern "C" long long llrint(double) noexcept;
extern "C" long long llrintf(float) noexcept;
extern "C" int abs(int) noexcept;
inline long abs(long x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float fdividef(float x, float y) { return x / y; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __saturatef(float x) { return x >= 1.0f ? 1.0f : x > 0.0f ? x : 0.0f; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }
inline bool signbit(double x) { return __builtin_signbit(x); }

// Of floats the one that is a number, as on a device.
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax((double)a, b); }
inline double min(float a, double b) { return fmin((double)a, b); }
inline double max(double a, float b) { return fmax(a, (double)b); }
inline double min(double a, float b) { return fmin(a, (double)b); }
#define EMULATED_ORDER(A, B, T)                                           \
    inline T max(A a, B b) { return (T)a < (T)b ? (T)b : (T)a; }          \
    inline T min(A a, B b) { return (T)b < (T)a ? (T)b : (T)a; }
EMULATED_ORDER(int, int, int)
EMULATED_ORDER(unsigned, unsigned, unsigned)
EMULATED_ORDER(int, unsigned, unsigned)
EMULATED_ORDER(unsigned, int, unsigned)
EMULATED_ORDER(long, long, long)
EMULATED_ORDER(unsigned long, unsigned long, unsigned long)
EMULATED_ORDER(long long, long long, long long)
EMULATED_ORDER(unsigned long long, unsigned long long, unsigned long long)
EMULATED_ORDER(long long, unsigned long long, unsigned long long)
EMULATED_ORDER(unsigned long long, long long, unsigned long long)
#undef EMULATED_ORDER

#define EMULATED_BITS(name, From, To)              \
    inline To name(From from) {                    \
        To to;                                     \
        __builtin_memcpy(&to, &from, sizeof(to));  \
        return to;                                 \
    }
EMULATED_BITS(__float_as_int, float, int)
EMULATED_BITS(__int_as_float, int, float)
EMULATED_BITS(__float_as_uint, float, unsigned)
EMULATED_BITS(__uint_as_float, unsigned, float)
EMULATED_BITS(__double_as_longlong, double, long long)
EMULATED_BITS(__longlong_as_double, long long, double)
#undef EMULATED_BITS

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((unsigned long long)a * b >> 32);
}
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// Conversions saturate and take NaN to zero, as on a device; C++ leaves what does not fit undefined.
#define EMULATED_TO_INTEGER(name, From, To, rounded, low, high)      \
    inline To name(From x) {                                         \
        const double r = (double)(rounded);                          \
        if (r != r) return 0;                                        \
        return r <= (low) ? (To)(low) : r >= (high) ? (To)((high) - 1) : (To)r; \
    }
EMULATED_TO_INTEGER(__float2int_rn, float, int, rintf(x), -2147483648.0, 2147483648.0)
EMULATED_TO_INTEGER(__float2int_rz, float, int, truncf(x), -2147483648.0, 2147483648.0)
EMULATED_TO_INTEGER(__float2int_rd, float, int, floorf(x), -2147483648.0, 2147483648.0)
EMULATED_TO_INTEGER(__float2int_ru, float, int, ceilf(x), -2147483648.0, 2147483648.0)
EMULATED_TO_INTEGER(__float2uint_rn, float, unsigned, rintf(x), 0.0, 4294967296.0)
EMULATED_TO_INTEGER(__float2uint_rz, float, unsigned, truncf(x), 0.0, 4294967296.0)
EMULATED_TO_INTEGER(__double2int_rn, double, int, rint(x), -2147483648.0, 2147483648.0)
EMULATED_TO_INTEGER(__double2int_rz, double, int, trunc(x), -2147483648.0, 2147483648.0)
#undef EMULATED_TO_INTEGER
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __double2float_rn(double x) { return (float)x; }

// The value of an f16, exactly.
inline float half_bits_to_float(unsigned short bits) {
    const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    const float magnitude = (float)fraction * 5.9604644775390625e-8f;  // 2^-24
    return __uint_as_float(sign | __float_as_uint(magnitude));
}

// The f16 nearest to a float, of two that are as near the even one. Too large is infinite; NaN is the device's one.
inline unsigned short float_to_half_bits(float x) {
    const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fff;
    if (magnitude >= 0x47800000u) return (unsigned short)(sign | 0x7c00);
    unsigned kept, rest, half;
    if (magnitude >= 0x38800000u) {  // normal: 13 bits of the fraction go
        kept = (magnitude >> 13) - (112 << 10);
        rest = magnitude & 0x1fff;
        half = 0x1000;
    } else {  // subnormal: a multiple of 2^-24
        const unsigned exponent = magnitude >> 23, shift = 126 - exponent;
        if (shift > 24) return (unsigned short)sign;
        const unsigned fraction = (magnitude & 0x7fffffu) | 0x800000u;
        kept = fraction >> shift;
        rest = fraction & ((1u << shift) - 1);
        half = 1u << (shift - 1);
    }
    if (rest > half || (rest == half && (kept & 1))) kept += 1;
    return (unsigned short)(sign | kept);
}
