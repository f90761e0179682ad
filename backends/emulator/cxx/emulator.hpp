// CUDA's keywords and functions for units that compile on the CPU, with checked memory.
#pragma once

#define __host__
#define __device__
#define __forceinline__
#define __noinline__
#define __launch_bounds__(...)

#define KERNEL(...) static void
#define GLOBAL(T) ::emulated::Pointer<T>
// The site tells declarations apart: all threads of a block that come to one get the same array.
#define SHARED(T, name, n)    \
    static char name##_site;  \
    const ::emulated::Pointer<T> name = ::emulated::shared<T>(&name##_site, #name, n, false)
// The only array of a block that may take all memory that there is to share.
#define LARGE_SHARED(T, name, n) \
    static char name##_site;     \
    const ::emulated::Pointer<T> name = ::emulated::shared<T>(&name##_site, #name, n, true)
// Sums of products by a warpgroup, of which a thread has so many.
#define SUMS(name, n) ::emulated::Sums<n> name

// Phases of a merged launch: their shared arrays are their own here.
#define PHASE_OF(name, ...) static void name(__VA_ARGS__, unsigned own_block)
#define PHASE(number) if (::emulated::in_phase(number))
#define PLAIN(T) ::emulated::Pointer<T>
#define POOL(bytes)
#define PART(T, name, n, from) SHARED(T, name, n)
#define wait_for_grid(grid) ((void)(grid))
#define comes_last(count, blocks) ::emulated::comes_last_at(count, blocks, __LINE__)
// The emulator starts a launch when those before it have ended.
#define wait_for_launch() ((void)0)
#define fetch_ahead(p, bytes) ((void)0)

#define __syncthreads() ::emulated::barrier(__LINE__)
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)
#define __trap() ::emulated::fail("traps at line %d", __LINE__)

typedef __SIZE_TYPE__ size_t;
static const int warpSize = 32;

#include "interface.hpp"
#include "memory.hpp"
#include "atomics.hpp"
#include "arithmetic.hpp"
#include "warp.hpp"
#include "warpgroup.hpp"
#include "launch.hpp"
