// What generated kernels are written with. Compiled by NVRTC without any header, and by a C++ compiler under the
// emulator, which defines EMULATED and its own meaning of what is inside `#ifndef EMULATED`.

#ifndef EMULATED
// A function that is launched with blocks of so many threads; 128 registers each, where the compiler would take 64, or as many
// as are named.
#define KERNEL(...) KERNEL_CHOICE(__VA_ARGS__, KERNEL_OF, KERNEL_OF_128, )(__VA_ARGS__)
#define KERNEL_CHOICE(threads, registers, name, ...) name
#define KERNEL_OF_128(threads) KERNEL_OF(threads, 128)
#define KERNEL_OF(threads, registers) \
    extern "C" __global__ void __launch_bounds__(threads, 65536 / (registers) / (threads))
// A pointer to global memory; SHARED is an array that the threads of a block share, aligned for accesses to 16 bytes.
#define GLOBAL(T) T* __restrict__
#define SHARED(T, name, n) __shared__ __align__(16) T name[n]
// The only array of a block that may take all memory that there is to share; the launch says how much.
#define LARGE_SHARED(T, name, n)                                        \
    extern __shared__ __align__(1024) unsigned char large_bytes[];      \
    T* const name = reinterpret_cast<T*>(large_bytes)

// For launches that are merged into one: a phase, whose blocks the blocks of the grid take in turns, and what its pointers are, as one phase
// reads what another one writes; the shared memory of all phases, and a part of it from so many bytes on.
#define PHASE_OF(name, ...) static __device__ __forceinline__ void name(__VA_ARGS__, unsigned own_block)
#define PHASE(number)
#define PLAIN(T) T*
#define POOL(bytes) static __shared__ __align__(16) unsigned char pool[bytes];
#define PART(T, name, n, from) T* const name = reinterpret_cast<T*>(pool + (from))
// Waits for all blocks of the grid, which are on the device at once; what they wrote before is seen behind it. What all blocks add to the
// number is its highest bit, which so tells that all have come, and the rest of it is zero again.
static __device__ __forceinline__ void wait_for_grid(unsigned* grid) {
    __syncthreads();
    if (threadIdx.x == 0) {
        volatile unsigned* now = grid;
        unsigned own = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
        __threadfence();
        unsigned before = atomicAdd(grid, own);
        while (((before ^ *now) & 0x80000000u) == 0) {
        }
        __threadfence();
    }
    __syncthreads();
}

// Whether a block is the last one of so many that come here; what the others wrote before is seen behind it. The number is zero before, and again
// after the last one has come.
static __device__ __forceinline__ bool comes_last(unsigned* count, unsigned blocks) {
    unsigned before = 0;
    __syncthreads();
    // What this thread has seen behind the barrier comes before the number, and what all see behind the next one after it.
    if (threadIdx.x == 0) {
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(count), "r"(blocks - 1) : "memory");
    }
    return __syncthreads_or(threadIdx.x == 0 && before == blocks - 1);
}

// How functions begin whose launches may come onto the device before the launch ahead of them has ended: those behind may come likewise, and
// what is behind this call waits until all ahead have ended and what they wrote is seen.
static __device__ __forceinline__ void wait_for_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Has so many bytes, which no launch of a run writes, brought to the cache that all multiprocessors share. Each block asks for a part; those that
// come onto the device late do not. Bytes and their address are multiples of 16.
template <class T>
static __device__ __forceinline__ void fetch_ahead(const T* p, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
    unsigned blocks = min(gridDim.x, 264u);
    unsigned part = ((bytes + blocks - 1) / blocks + 127) / 128 * 128, from = blockIdx.x * part;
    if (threadIdx.x == 0 && blockIdx.x < blocks && from < bytes) {
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"((const char*)p + from), "r"(min(part, bytes - from)) : "memory");
    }
#endif
}

// Accesses to 16 aligned bytes: as float4 from floats, as uint4 from elements of any type.
#define LOAD4(p) (*reinterpret_cast<const float4*>(p))
#define STORE4(p, value) (*reinterpret_cast<float4*>(p) = (value))
#define LOAD16(p) (*reinterpret_cast<const uint4*>(p))
#define STORE16(p, value) (*reinterpret_cast<uint4*>(p) = (value))

// Elements side by side, in up to 16 bytes accessed at once.
template <class T, int n>
struct __align__(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
    T at[n];
};
template <int n, class T>
static __device__ __forceinline__ Pack<T, n> load_pack(const T* p) {
    return *reinterpret_cast<const Pack<T, n>*>(p);
}
template <class T, int n>
static __device__ __forceinline__ void store_pack(T* p, const Pack<T, n>& values) {
    *reinterpret_cast<Pack<T, n>*>(p) = values;
}
// Loads 16 bytes, or one element, of what other blocks of the launch have written: not what this multiprocessor has kept of it from before.
template <int n, class T>
static __device__ __forceinline__ Pack<T, n> load_fresh(const T* p) {
    static_assert(n * sizeof(T) == 16, "16 bytes at once");
    union {
        uint4 bits;
        Pack<T, n> values;
    } both = {__ldcg(reinterpret_cast<const uint4*>(p))};
    return both.values;
}
template <class T>
static __device__ __forceinline__ T load_one_fresh(const T* p) {
    return __ldcg(p);
}
// Copies 16 bytes from global to shared memory, or zeros where `inside` is false, without a register and without waiting. A thread's
// copies are there when it has waited for all groups but the latest ones; other threads see them behind a barrier.
template <class T>
static __device__ __forceinline__ void copy_async(T* to, const T* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(inside ? 16 : 0) : "memory");
#else
    *reinterpret_cast<uint4*>(to) = inside ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
#endif
}
// The same of n elements, of 4 or 8 bytes together.
template <int n, class T>
static __device__ __forceinline__ void copy_part_async(T* to, const T* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    const int bytes = n * (int)sizeof(T);
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(bytes), "r"(inside ? bytes : 0) : "memory");
#else
    for (int i = 0; i < n; ++i) to[i] = inside ? from[i] : (T)0;
#endif
}
static __device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int but>
static __device__ __forceinline__ void wait_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(but) : "memory");
#endif
}
// Two elements of 16 bits, or four of 8 bits, the first one in the lowest bits.
template <class T>
static __device__ __forceinline__ unsigned load_word(const T* p) {
    return *reinterpret_cast<const unsigned*>(p);
}

// The value of an f16, exactly.
static __device__ __forceinline__ float half_bits_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// The f16 nearest to a float, of two that are as near the even one. Too large is infinite.
static __device__ __forceinline__ unsigned short float_to_half_bits(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// The bits of the number of tf32 nearest to a float, away from zero of two that are as near.
static __device__ __forceinline__ unsigned tf32_bits(float value) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

// D = A B + D by the 32 lanes of a warp, accumulated in f32. Which elements of the 16 x 16 (tf32: 16 x 8) matrix A, of
// B with 8 columns and of D a lane's registers hold: PTX ISA 9.2, 9.7.14.5.8, "Matrix Fragments for mma.m16n8k16 with
// floating point type", and 9.7.14.5.7, "Matrix Fragments for mma.m16n8k8". Of tf32 the low 13 bits do not count.
#define MMA(name, shape)                                                                                       \
    static __device__ __forceinline__ void name(float d[4], const unsigned a[4], const unsigned b[2]) {        \
        asm volatile("mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "               \
                     "{%0, %1, %2, %3};"                                                                       \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                      \
    }
MMA(mma_16816, "m16n8k16.row.col.f32.f16.f16.f32")
MMA(mma_16816_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA(mma_1688_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef MMA
// The same for 16 x 32 and 32 x 8 integers of 8 bits, with sums that wrap to 32 bits: PTX ISA 9.2, 9.7.14.5.11, "Matrix Fragments for
// mma.m16n8k32".
#define MMA(name, types)                                                                                       \
    static __device__ __forceinline__ void name(int d[4], const unsigned a[4], const unsigned b[2]) {          \
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." types ".s32 {%0, %1, %2, %3}, "                  \
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                           \
                     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                      \
    }
MMA(mma_16832_s8s8, "s8.s8")
MMA(mma_16832_s8u8, "s8.u8")
MMA(mma_16832_u8s8, "u8.s8")
MMA(mma_16832_u8u8, "u8.u8")
#undef MMA
#endif
