// Products of matrices in shared memory by warpgroups of 128 threads, which compute capability 9.0 alone has. Rows of 128 bytes hold 8 units
// of 16 bytes, which change places by the row's number (PTX ISA 9.2, 9.7.15.5.1.2, "128B swizzling"): threads that read or write a column of
// units find them in different banks. Eight rows are a pattern, which begins at a multiple of 1024 bytes.

#ifndef EMULATED
#if __CUDA_ARCH_FEAT_SM90_ALL
// Sums of products by a warpgroup, of which a thread has so many.
#define SUMS(name, n) float name[n] = {}
template <class T>
static __device__ __forceinline__ unsigned shared_address(const T* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}
// Orders what this thread has written to shared memory before what products read behind the next barrier.
static __device__ __forceinline__ void fence_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Keeps the compiler from moving accesses to sums over this.
template <int n>
static __device__ __forceinline__ void keep_sums(float (&sum)[n]) {
    #pragma unroll
    for (int i = 0; i < n; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}
// Precedes products whose sums were written otherwise. Products are begun in groups; behind a wait those of all groups but the latest ones
// are in the sums, and what they read may be written.
template <int n>
static __device__ __forceinline__ void begin_products(float (&sum)[n]) {
    keep_sums(sum);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int but, int n>
static __device__ __forceinline__ void wait_products(float (&sum)[n]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(but) : "memory");
    keep_sums(sum);
}

// D += A B for 64 rows and twice as many columns as a thread has sums, a step of 32 bytes deep, of which A and B have descriptors. A factor is
// turned if its lines lie side by side in rows that are steps. A thread has the sums of lane / 4 + 8 in (i / 2 % 2), 8 (i / 4) + lane % 4 * 2 +
// i % 2, and the warp w of the warpgroup the rows from 16 w on (PTX ISA 9.2, 9.7.15.5.1.1).
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12)
#define SUMS_32(i) SUMS_16(i), SUMS_16(i + 16)
#define SUMS_64(i) SUMS_32(i), SUMS_32(i + 32)
#define SUMS_128(i) SUMS_64(i), SUMS_64(i + 64)
#define NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_128 NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA(name, n, shape, rest)                                                                            \
    template <int left_turned, int right_turned>                                                               \
    static __device__ __forceinline__ void name(float (&d)[n], word left, word right) {                        \
        asm volatile("{\n.reg .pred all;\nsetp.eq.u32 all, 0, 0;\n"                                            \
                     "wgmma.mma_async.sync.aligned." shape " {" NAMES_##n "}, " rest ";\n}"                    \
                     : SUMS_##n(0)                                                                             \
                     : "l"(left), "l"(right), "n"(left_turned), "n"(right_turned));                            \
    }
WGMMA(wgmma_f16, 32, "m64n64k16.f32.f16.f16", "%32, %33, all, 1, 1, %34, %35")
WGMMA(wgmma_f16, 64, "m64n128k16.f32.f16.f16", "%64, %65, all, 1, 1, %66, %67")
WGMMA(wgmma_f16, 128, "m64n256k16.f32.f16.f16", "%128, %129, all, 1, 1, %130, %131")
WGMMA(wgmma_bf16, 32, "m64n64k16.f32.bf16.bf16", "%32, %33, all, 1, 1, %34, %35")
WGMMA(wgmma_bf16, 64, "m64n128k16.f32.bf16.bf16", "%64, %65, all, 1, 1, %66, %67")
WGMMA(wgmma_bf16, 128, "m64n256k16.f32.bf16.bf16", "%128, %129, all, 1, 1, %130, %131")
#undef WGMMA
#endif
#endif

// The place of an element of 2 bytes in such rows.
DEVICE int swizzled(int row, int at) { return row * 64 + (at / 8 ^ row % 8) * 8 + at % 8; }
#if defined(EMULATED) || __CUDA_ARCH_FEAT_SM90_ALL
// The descriptor of a matrix that begins here: bytes from its first units of lines to the next ones, if it is turned, and from eight rows to the
// next (PTX ISA 9.2, 9.7.15.5.1.2, "Matrix Descriptor Format").
template <class P>
DEVICE word matrix_at(const P& p, unsigned leading, unsigned stride) {
  return (word)((shared_address(p) & 0x3ffffu) >> 4) | (word)(leading >> 4) << 16 | (word)(stride >> 4) << 32 | (word)1 << 62;
}
#endif
