// Functions of single elements with the meaning that the reference interpreter gives them, and sums over blocks.

#define DEVICE __device__ __forceinline__
#define INFINITE_F __int_as_float(0x7f800000)
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
#define NOT_A_NUMBER __int_as_float(0x7fc00000)

// The upper half of a float, rounded to nearest even; a NaN stays one.
DEVICE unsigned short float_to_bfloat16_bits(float v) {
  unsigned bits = __float_as_uint(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((bits >> 16) | 0x40u);
  return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
DEVICE float bfloat16_bits_to_float(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

// Floats of at most 8 bits, by the bits of exponent and mantissa, the bias, and what codes beyond the largest number mean.
enum Special { INFINITY_IS_SPECIAL, LAST_IS_NAN, ZERO_IS_NAN, FINITE };
// The magnitude of the largest number.
template <int E, int M, Special S> DEVICE int last_code() {
  int ones = (1 << (E + M)) - 1;
  return S == LAST_IS_NAN ? ones - 1 : S == INFINITY_IS_SPECIAL ? ones - (1 << M) : ones;
}
// 2^e of an exponent that normal floats have.
DEVICE float power_of_two(int e) { return __int_as_float((e + 127) << 23); }
template <int E, int M, int BIAS, Special S> DEVICE float small_bits_to_float(unsigned char bits) {
  int code = bits & ((1 << (E + M)) - 1), exponent = code >> M, fraction = code & ((1 << M) - 1);
  bool is_negative = (bits >> (E + M) & 1) != 0;
  if (S == ZERO_IS_NAN && is_negative && code == 0) return NOT_A_NUMBER;
  if (code > last_code<E, M, S>()) {
    if (S != INFINITY_IS_SPECIAL || code > last_code<E, M, S>() + 1) return NOT_A_NUMBER;
    return is_negative ? -INFINITE_F : INFINITE_F;
  }
  float v = exponent == 0 ? (float)fraction * power_of_two(1 - BIAS - M)
                          : (float)(fraction + (1 << M)) * power_of_two(exponent - BIAS - M);
  return is_negative ? -v : v;
}
// The code of the nearest number, ties to even; beyond the largest one infinity, or NaN, or the largest one, whichever there is.
template <int E, int M, int BIAS, Special S> DEVICE unsigned char float_to_small_bits(float v) {
  const int last = last_code<E, M, S>();
  unsigned bits = __float_as_uint(v), magnitude = bits & 0x7fffffffu;
  unsigned char sign = (unsigned char)((bits >> 31) << (E + M));
  if (magnitude > 0x7f800000u) {
    if (S == FINITE) return 0;
    if (S == ZERO_IS_NAN) return 1 << (E + M);
    return sign | (unsigned char)(S == LAST_IS_NAN ? last + 1 : last + 3);
  }
  // Numbers below the smallest normal one share its distance.
  int exponent = max((int)(magnitude >> 23) - 127 + BIAS, 1);
  float steps = rintf(__uint_as_float(magnitude) * power_of_two(M + BIAS - exponent));
  float below = (float)(min(exponent - 1, 1 << E) << M);
  int code = (int)fminf(below + steps, (float)(last + 1));
  if (S == FINITE) return sign | (unsigned char)min(code, last);
  if (S == ZERO_IS_NAN && code > last) return 1 << (E + M);
  if (S == ZERO_IS_NAN && code == 0) return 0;
  return sign | (unsigned char)code;
}
// Powers of two without a sign: 2^-127 is no normal float.
DEVICE float power_bits_to_float(unsigned char bits) {
  if (bits == 0xff) return NOT_A_NUMBER;
  return bits == 0 ? __int_as_float(0x00400000) : power_of_two((int)bits - 127);
}
// The nearest one, ties up; NaN outside of the range.
DEVICE unsigned char float_to_power_bits(float v) {
  unsigned bits = __float_as_uint(v);
  if (bits < 0x00400000u || bits > 0x7f000000u) return 0xff;
  if (bits < 0x00800000u) return bits >= 0x00600000u ? 1 : 0;
  return (unsigned char)((bits >> 23) + ((bits & 0x007fffffu) >= 0x00400000u));
}
// A float that rounds to fewer bits as the number does: what is cut off is told by the last bit.
DEVICE float to_odd(float v) { return v; }
DEVICE float to_odd(double v) {
  float near = (float)v;
  if (near != near || near == v) return near;
  unsigned bits = __float_as_uint(near);
  if (fabs((double)near) > fabs(v)) bits -= 1;
  return __uint_as_float(bits | 1u);
}

// The larger and the smaller number: NaN if either is, and 0 is above -0.
template <class T> DEVICE T maximum(T a, T b) {
  if (a > b) return a;
  if (b > a) return b;
  if (a == b) return signbit(a) ? b : a;
  return (T)NOT_A_NUMBER;
}
template <class T> DEVICE T minimum(T a, T b) {
  if (a < b) return a;
  if (b < a) return b;
  if (a == b) return signbit(a) ? a : b;
  return (T)NOT_A_NUMBER;
}
// Below, equal or above; NaN is above all numbers.
template <class T> DEVICE int compare(T a, T b) {
  if (a < b) return -1;
  if (a > b) return 1;
  return (int)(a != a) - (int)(b != b);
}
// The remainder with the sign of the divisor.
template <class T> DEVICE T modulo(T a, T b) {
  T r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class T> DEVICE T sign(T v) { return v > 0 ? (T)1 : v < 0 ? (T)-1 : v; }
template <class T> DEVICE T reciprocal(T v) { return (T)1 / v; }
template <class T> DEVICE T reciprocal_root(T v) { return (T)1 / sqrt(v); }
template <class T> DEVICE T logistic(T v) { return (T)1 / ((T)1 + exp(-v)); }

// Cut towards zero; what does not fit saturates, and NaN is 0.
DEVICE long long truncate_signed(double v) {
  if (v != v) return 0;
  if (v >= 9223372036854775808.0) return 0x7fffffffffffffffLL;
  if (v < -9223372036854775808.0) return -0x7fffffffffffffffLL - 1;
  return (long long)v;
}
DEVICE long long truncate_unsigned(double v) {
  if (v >= 18446744073709551616.0) return -1;
  if (v >= 9223372036854775808.0) return (long long)(unsigned long long)v;
  return truncate_signed(v);
}

// Integers of 64 bits: they wrap, and division by zero yields 0.
typedef unsigned long long word;
DEVICE long long wrap_signed(int bits, long long v) { return (long long)((word)v << (64 - bits)) >> (64 - bits); }
DEVICE long long add_int(long long a, long long b) { return (long long)((word)a + (word)b); }
DEVICE long long sub_int(long long a, long long b) { return (long long)((word)a - (word)b); }
DEVICE long long mul_int(long long a, long long b) { return (long long)((word)a * (word)b); }
DEVICE long long div_int(long long a, long long b) {
  return b == 0 ? 0 : b == -1 ? sub_int(0, a) : a / b;
}
DEVICE long long rem_int(long long a, long long b) { return b == 0 || b == -1 ? 0 : a % b; }
DEVICE long long floor_div(long long a, long long b) {
  long long q = div_int(a, b);
  return rem_int(a, b) != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
DEVICE long long floor_mod(long long a, long long b) {
  return b == 0 ? 0 : sub_int(a, mul_int(b, floor_div(a, b)));
}
DEVICE long long max_int(long long a, long long b) { return a > b ? a : b; }
DEVICE long long min_int(long long a, long long b) { return a < b ? a : b; }
DEVICE long long max_unsigned(long long a, long long b) { return (word)a > (word)b ? a : b; }
DEVICE long long min_unsigned(long long a, long long b) { return (word)a < (word)b ? a : b; }
DEVICE long long div_unsigned(long long a, long long b) { return b == 0 ? 0 : (long long)((word)a / (word)b); }
DEVICE long long rem_unsigned(long long a, long long b) { return b == 0 ? 0 : (long long)((word)a % (word)b); }
DEVICE long long bit_and(long long a, long long b) { return a & b; }
DEVICE long long bit_or(long long a, long long b) { return a | b; }
DEVICE long long bit_xor(long long a, long long b) { return a ^ b; }
DEVICE long long shift_left(long long a, long long b) { return (word)b < 64 ? (long long)((word)a << b) : 0; }
DEVICE long long shift_right(long long a, long long b) { return a >> ((word)b < 64 ? b : 63); }
DEVICE long long shift_right_unsigned(long long a, long long b) {
  return (word)b < 64 ? (long long)((word)a >> b) : 0;
}
DEVICE long long power_unsigned(long long base, long long exponent) {
  long long result = 1;
  for (word e = (word)exponent; e > 0; e >>= 1) {
    if (e & 1) result = mul_int(result, base);
    base = mul_int(base, base);
  }
  return result;
}
DEVICE long long power_int(long long base, long long exponent) {
  if (exponent >= 0) return power_unsigned(base, exponent);
  return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
}
DEVICE long long abs_int(long long v) { return v < 0 ? sub_int(0, v) : v; }
DEVICE long long sign_int(long long v) { return v > 0 ? 1 : v < 0 ? -1 : 0; }

// Records the first index that is out of range.
DEVICE void out_of_range(GLOBAL(unsigned long long) fault, int node, int axis, long long index, long long extent) {
  if (atomicCAS(&fault[0], 0ull, 1ull) == 0ull) {
    fault[1] = (word)node;
    fault[2] = (word)axis;
    fault[3] = (word)index;
    fault[4] = (word)extent;
  }
}

struct Sum {
  template <class T> DEVICE T operator()(T a, T b) const { return a + b; }
  DEVICE long long operator()(long long a, long long b) const { return add_int(a, b); }
};
struct Product {
  template <class T> DEVICE T operator()(T a, T b) const { return a * b; }
  DEVICE long long operator()(long long a, long long b) const { return mul_int(a, b); }
};
struct Maximum {
  template <class T> DEVICE T operator()(T a, T b) const { return maximum(a, b); }
  DEVICE long long operator()(long long a, long long b) const { return max_int(a, b); }
};
struct Minimum {
  template <class T> DEVICE T operator()(T a, T b) const { return minimum(a, b); }
  DEVICE long long operator()(long long a, long long b) const { return min_int(a, b); }
};
struct MaximumUnsigned { DEVICE long long operator()(long long a, long long b) const { return max_unsigned(a, b); } };
struct MinimumUnsigned { DEVICE long long operator()(long long a, long long b) const { return min_unsigned(a, b); } };

// The sum over parts that lie so many elements apart, in their order, of what other blocks of the launch have written.
template <int parts, int apart, class P>
DEVICE auto total_of_parts(P p) {
  auto total = load_one_fresh(p);
  #pragma unroll 8
  for (int k = 1; k < parts; ++k) total += load_one_fresh(p + k * apart);
  return total;
}

// Combines one value of every lane of a warp; every lane gets the result.
template <class Op, class T>
DEVICE T combine_warp(Op op, T v) {
  for (int step = 16; step > 0; step /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, step));
  return v;
}

// Sums of n values over the lanes of a warp, for a power of two of at most 32: the lane l gets that of the value l % n.
template <int n, class T>
DEVICE T scattered_sum(T (&v)[n]) {
  #pragma unroll
  for (int half = n / 2; half > 0; half /= 2) {
    bool upper = (threadIdx.x & half) != 0;
    #pragma unroll
    for (int i = 0; i < half; ++i) {
      T other = __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + half], half);
      v[i] = (upper ? v[i + half] : v[i]) + other;
    }
  }
  T sum = v[0];
  #pragma unroll
  for (int step = n; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

// Combines one value of every thread of a block; every thread gets the result. `parts` holds a value for each warp.
template <class Op, class T, class Parts>
DEVICE T combine_block(Op op, T v, T first, Parts& parts) {
  v = combine_warp(op, v);
  int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  if (warps == 1) return v;
  if (lane == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = combine_warp(op, lane < warps ? (T)parts[lane] : first);
  __syncthreads();
  return v;
}

// Combines the values of all threads up to a thread's own, or before it; `all` becomes the combination of all.
template <class Op, class T, class Parts>
DEVICE T scan_block(Op op, T v, T first, Parts& parts, T& all, bool inclusive) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int step = 1; step < 32; step *= 2) {
    T other = __shfl_up_sync(0xffffffffu, v, step);
    if (lane >= step) v = op(other, v);
  }
  if (lane == 31) parts[warp] = v;
  T own = v;
  if (!inclusive) {
    own = __shfl_up_sync(0xffffffffu, v, 1);
    if (lane == 0) own = first;
  }
  __syncthreads();
  T before = first;
  all = first;
  for (int i = 0; i < warps; ++i) {
    T part = (T)parts[i];
    if (i < warp) before = op(before, part);
    all = op(all, part);
  }
  __syncthreads();
  return op(before, own);
}

// A place along an axis of n elements, between two of them: `part` is the weight of the higher one. No sample is more than one element
// outside.
struct Sample {
  bool is_inside;
  long long low, high;
  double part;
};
DEVICE Sample sample(double place, long long n) {
  Sample s = {n > 0 && -1.0 <= place && place <= (double)n, n - 1, n - 1, 0.0};
  if (!s.is_inside) return s;
  place = place < 0.0 ? 0.0 : place;
  if ((long long)place + 1 < n) s = Sample{true, (long long)place, (long long)place + 1, place - (double)(long long)place};
  return s;
}

// The corners of a box, the lower one first, from two opposite ones, or from centre and extents.
DEVICE void box_corners(double box[4], double a, double b, double c, double d, bool centered) {
  double one[2] = {centered ? a - c / 2.0 : a, centered ? b - d / 2.0 : b};
  double other[2] = {centered ? a + c / 2.0 : c, centered ? b + d / 2.0 : d};
  for (int k = 0; k < 2; ++k) {
    box[k] = fmin(one[k], other[k]);
    box[k + 2] = fmax(one[k], other[k]);
  }
}
// The part of the union of two boxes that is their intersection; 0 if they do not meet.
DEVICE double box_overlap(const double a[4], const double b[4]) {
  double extents[2], areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]);
  for (int k = 0; k < 2; ++k) extents[k] = fmax(fmin(a[k + 2], b[k + 2]) - fmax(a[k], b[k]), 0.0);
  double common = extents[0] * extents[1], all = areas - common;
  return common > 0.0 && all > 0.0 ? common / all : 0.0;
}
