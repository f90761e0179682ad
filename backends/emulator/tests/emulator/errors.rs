//! The errors of incorrect kernels.

use mlc_cuda_emulator::{EmulatorError, Region, Unit};

use crate::{Buffer, compiles, error, launch};

/// The error of a kernel with an array of 64 integers, launched with one block of 64 threads.
fn error_of(body: &str) -> String {
    let source = format!("KERNEL(1024) f(GLOBAL(int) y) {{ const int t = threadIdx.x;\n{body}\n}}");
    let mut y = Buffer::new(&[0i32; 64]);
    error(&source, [1, 1, 1], 64, &[y.region()])
}

#[test]
fn accesses_out_of_bounds() {
    if !compiles() {
        return;
    }
    assert_eq!(
        error_of("y[t + 1] = 0;"),
        "f, block (0, 0, 0), thread 63: writes parameter 0 at index 64 of 64 elements (4 bytes)"
    );
    assert_eq!(
        error_of("int v = y[t - 3];"),
        "f, block (0, 0, 0), thread 0: reads parameter 0 at index -3 of 64 elements (4 bytes)"
    );
    assert_eq!(
        error_of("SHARED(int, s, 32); s[t] = 0;"),
        "f, block (0, 0, 0), thread 32: writes shared array s at index 32 of 32 elements (4 bytes)"
    );
    assert_eq!(
        error_of("if (t == 7) atomicAdd(y - 1, 1);"),
        "f, block (0, 0, 0), thread 7: atomically updates parameter 0 at index -1 of 64 elements (4 bytes)"
    );
    assert_eq!(
        error_of("if (t == 7) LOAD16(y + 61);"),
        "f, block (0, 0, 0), thread 7: reads parameter 0 at index 61 of 64 elements (16 bytes)"
    );
    assert_eq!(
        error_of("if (t == 7) LOAD16(y + 6);"),
        "f, block (0, 0, 0), thread 7: reads 16 bytes of parameter 0 at index 6, at an address that is not a \
         multiple of 16"
    );
}

#[test]
fn a_missing_barrier() {
    if !compiles() {
        return;
    }
    assert_eq!(
        error_of("SHARED(int, s, 64); s[t] = t; if (t == 1) y[0] = s[0];"),
        "f, block (0, 0, 0), thread 1: race: reads shared array s at index 0, which thread 0 has written with no \
         barrier in between"
    );
    assert_eq!(
        error_of(
            "SHARED(int, s, 64); s[t] = t; __syncthreads(); int v = s[(t + 1) % 64]; s[t] = v;"
        ),
        "f, block (0, 0, 0), thread 0: race: writes shared array s at index 0, which thread 63 has read with no \
         barrier in between"
    );
    // Threads of two warps, which `__syncwarp` does not order.
    assert_eq!(
        error_of("int v = y[0]; __syncwarp(); if (t == 40) y[0] = 1;"),
        "f, block (0, 0, 0), thread 40: race: writes parameter 0 at index 0, which thread 0 has read with no \
         barrier in between"
    );
    // Both of two threads of another warp.
    assert_eq!(
        error_of(
            "int v = y[t]; if (t == 9) v = y[8]; __syncwarp(0xffffffffu); if (t == 41) y[8] = 1;"
        ),
        "f, block (0, 0, 0), thread 41: race: writes parameter 0 at index 8, which thread 8 has read with no \
         barrier in between"
    );
    assert_eq!(
        error_of("if (t == 5) y[0] = 1; else if (t > 5) atomicAdd(y, 1);"),
        "f, block (0, 0, 0), thread 6: race: atomically updates parameter 0 at index 0, which thread 5 has written \
         with no barrier in between"
    );
    assert_eq!(
        error_of("if (t < 5) atomicAdd(y, 1); else if (t == 5) { int v = y[0]; }"),
        "f, block (0, 0, 0), thread 5: race: reads parameter 0 at index 0, which thread 0 has atomically updated \
         with no barrier in between"
    );
}

#[test]
fn divergence() {
    if !compiles() {
        return;
    }
    assert_eq!(
        error_of("if (t < 40) __syncthreads();"),
        "f, block (0, 0, 0), thread 0: divergence: waits at the barrier of line 2, thread 40 has ended"
    );
    assert_eq!(
        error_of("if (t < 40)\n__syncthreads();\nelse\n__syncthreads();"),
        "f, block (0, 0, 0), thread 63: waits at the barrier of line 5, thread 0 at that of line 3"
    );
    assert_eq!(
        error_of("if (t == 37) return; __shfl_xor_sync(0xffffffffu, t, 1);"),
        "f, block (0, 0, 0), thread 32: divergence: waits in __shfl_xor_sync with the mask ffffffff, thread 37 has ended"
    );
    assert_eq!(
        error_of("if (t < 5) __syncwarp(); else __any_sync(0xffffffffu, t);"),
        "f, block (0, 0, 0), thread 0: divergence: waits in __syncwarp with the mask ffffffff, thread 5 waits in \
         __any_sync with the mask ffffffff"
    );
    assert_eq!(
        error_of("if (t == 3) __syncwarp(1u);"),
        "f, block (0, 0, 0), thread 3: calls __syncwarp with the mask 00000001, which does not name the thread's lane"
    );
    assert_eq!(
        error_of("if (t < 2) __shfl_sync(3u, t, 2);"),
        "f, block (0, 0, 0), thread 1: lane 0 reads lane 2 in a shuffle, which does not take part (mask 00000003)"
    );
}

#[test]
fn shared_memory_that_is_not_written_or_not_there() {
    if !compiles() {
        return;
    }
    assert_eq!(
        error_of("SHARED(int, s, 64); if (t > 0) s[t] = t; __syncthreads(); y[t] = s[t];"),
        "f, block (0, 0, 0), thread 0: reads shared array s at index 0, which the block has not written"
    );
    assert_eq!(
        error_of("SHARED(int, s, 12280); SHARED(int, u, 20);"),
        "f, block (0, 0, 0), thread 0: shared array u: 2 arrays of 49200 bytes in all, more than the 64 of 49152 \
         that there are"
    );
    // What another block has written is gone.
    let source = "KERNEL(1) f(GLOBAL(int) y) { SHARED(int, s, 1); if (blockIdx.x == 0) s[0] = 1; y[blockIdx.x] = s[0]; }";
    let mut y = Buffer::new(&[0i32; 2]);
    assert_eq!(
        error(source, [2, 1, 1], 1, &[y.region()]),
        "f, block (1, 0, 0), thread 0: reads shared array s at index 0, which the block has not written"
    );
}

#[test]
fn a_race_of_blocks() {
    if !compiles() {
        return;
    }
    let mut y = Buffer::new(&[0i32; 64]);
    let mut of = |body: &str| {
        let source = format!(
            "KERNEL(32) f(GLOBAL(int) y) {{ const int b = blockIdx.x + 3 * blockIdx.y; {body} }}"
        );
        error(&source, [3, 2, 1], 32, &[y.region()])
    };
    assert_eq!(
        of("if (threadIdx.x == 4 && b % 4 == 1) y[7] = b;"),
        "f, block (2, 1, 0), thread 4: race: writes parameter 0 at index 7, which thread 4 of block (1, 0, 0) has \
         written in the same launch"
    );
    // The writer is the last one that has read.
    assert_eq!(
        of("int v = y[7]; __syncthreads(); if (b == 5 && threadIdx.x == 0) y[7] = v;"),
        "f, block (2, 1, 0), thread 0: race: writes parameter 0 at index 7, which thread 0 of block (1, 1, 0) has read \
         in the same launch"
    );
}

#[test]
fn a_race_of_parameters_that_overlap() {
    if !compiles() {
        return;
    }
    let source =
        "KERNEL(8) f(GLOBAL(const float) x, GLOBAL(double) y) { y[threadIdx.x] = x[threadIdx.x]; }";
    let mut memory = Buffer::new(&[0u8; 128]);
    let y = Region { bytes: 64, ..memory.region() };
    let x = Region { pointer: y.pointer.wrapping_add(20), bytes: 32 };
    assert_eq!(
        error(source, [1, 1, 1], 8, &[x, y]),
        "f, block (0, 0, 0), thread 2: race: writes parameter 1 at index 2, which thread 0 has read with no barrier \
         in between"
    );
    let apart = Region { pointer: y.pointer.wrapping_add(64), bytes: 32 };
    launch(source, [1, 1, 1], 8, &[apart, y]).unwrap();
}

#[test]
fn launches_that_a_device_refuses() {
    if !compiles() {
        return;
    }
    let source = "KERNEL(64) f(GLOBAL(float) y) {}";
    let mut y = Buffer::new(&[0f32; 2]);
    let region = y.region();
    let odd = Region { pointer: region.pointer.wrapping_add(2), bytes: 4 };
    assert_eq!(error(source, [1, 1, 1], 65, &[region]), "f, blocks of 65 threads, of 64 at most");
    assert_eq!(
        error(source, [1, 0, 1], 1, &[region]),
        "f, a grid of (1, 0, 1) blocks, which a device does not take"
    );
    assert_eq!(
        error(source, [1, 1, 1], 1, &[]),
        "f, takes 1 parameters (at most 256) and is given 0"
    );
    assert_eq!(
        error(source, [1, 1, 1], 1, &[odd]),
        "f, parameter 0 is not aligned to its elements of 4 bytes"
    );
}

#[test]
fn what_would_not_do_here_what_it_does_on_a_device_does_not_compile() {
    if !compiles() {
        return;
    }
    for body in [
        "auto v = y[0]; int i = v + 1;",
        "double d = y[0] > 0 ? y[1] : 0;",
        "x[0] = 1;",
        "float* p = y;",
        "float a[20000]; for (int i = 0; i < 20000; i++) a[i] = y[i]; y[0] = a[(int)x[0]];",
    ] {
        let source = format!("KERNEL(1) f(GLOBAL(const float) x, GLOBAL(float) y) {{ {body} }}");
        let compiled = Unit::compile(&source).map(drop);
        assert!(matches!(compiled, Err(EmulatorError::Compile(_))), "{body}");
    }
}
