// What generated kernels are written with. Compiled by NVRTC without any header, and by a C++ compiler under the
// emulator, which defines EMULATED and its own meaning of what is inside `#ifndef EMULATED`.

#ifndef EMULATED
// A function that is launched with blocks of so many threads.
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
// A pointer to global memory; SHARED is an array that the threads of a block share.
#define GLOBAL(T) T* __restrict__
#define SHARED(T, name, n) __shared__ T name[n]
#endif
