//! Asynchronous copies to shared memory (`cp.async`): their values, and the error of a thread that does not wait for them.

use crate::{Buffer, compiles, error, launch};

/// A kernel of 32 threads that copies 128 integers in two groups; then what follows.
fn kernel(then: &str) -> String {
    format!(
        "KERNEL(32) f(GLOBAL(const int) x, GLOBAL(int) y) {{
             SHARED(int, s, 256);
             const int t = threadIdx.x;
             copy_async(s + t * 4, x + t * 4, true);
             commit_copies();
             copy_async(s + 128 + t * 4, x + 0, t % 2 == 0);
             commit_copies();
             {then}
         }}"
    )
}

fn buffers() -> (Buffer<i32>, Buffer<i32>) {
    (Buffer::new(&(1..=128).collect::<Vec<i32>>()), Buffer::new(&[0i32; 64]))
}

fn error_of(then: &str) -> String {
    let (mut x, mut y) = buffers();
    error(&kernel(then), [1, 1, 1], 32, &[x.region(), y.region()])
}

#[test]
fn bring_elements_or_zeros() {
    if !compiles() {
        return;
    }
    let (mut x, mut y) = buffers();
    let source = kernel(
        "wait_copies<1>();
         __syncthreads();
         y[t] = s[(t * 4 + 4) % 128];
         wait_copies<0>();
         __syncthreads();
         y[32 + t] = s[128 + t * 4 + 1];",
    );
    launch(&source, [2, 1, 1], 32, &[x.region(), y.region()]).unwrap_err();
    launch(&source, [1, 1, 1], 32, &[x.region(), y.region()]).unwrap();
    let expected: Vec<i32> = (0..32)
        .map(|t| (t * 4 + 4) % 128 + 1)
        .chain((0..32).map(|t| if t % 2 == 0 { 2 } else { 0 }))
        .collect();
    assert_eq!(y.elements(), expected);
}

#[test]
fn may_be_parts_of_4_or_8_bytes() {
    if !compiles() {
        return;
    }
    let source = |from: &str| {
        format!(
            "KERNEL(32) f(GLOBAL(const int) x, GLOBAL(int) y) {{
                 SHARED(int, s, 96);
                 const int t = threadIdx.x;
                 copy_part_async<1>(s + 31 - t, {from}, t % 3 != 0);
                 copy_part_async<2>(s + 32 + t * 2, x + t * 2, true);
                 commit_copies();
                 wait_copies<0>();
                 __syncthreads();
                 y[t] = s[t];
                 y[32 + t] = s[32 + t];
             }}"
        )
    };
    let (mut x, mut y) = buffers();
    launch(&source("x + 3 * t"), [1, 1, 1], 32, &[x.region(), y.region()]).unwrap();
    let single = (0..32).rev().map(|t| if t % 3 != 0 { 3 * t + 1 } else { 0 });
    let expected: Vec<i32> = single.chain(1..=32).collect();
    assert_eq!(y.elements(), expected);
    let outside = error(&source("x + 128 + t"), [1, 1, 1], 32, &[x.region(), y.region()]);
    assert!(outside.contains("reads parameter 0 at index 129 of 128 elements"), "{outside}");
}

#[test]
fn are_not_there_before_they_are_waited_for() {
    if !compiles() {
        return;
    }
    let unwritten = |index: &str| {
        format!(
            "f, block (0, 0, 0), thread 0: reads shared array s at index {index}, which the block has not written"
        )
    };
    assert_eq!(error_of("__syncthreads(); if (t == 0) y[t] = s[t];"), unwritten("0"));
    // The latest group is not waited for.
    assert_eq!(
        error_of("wait_copies<1>(); __syncthreads(); if (t == 0) y[t] = s[128];"),
        unwritten("128")
    );
    // A group that is not closed is not waited for.
    assert_eq!(
        error_of(
            "wait_copies<0>(); __syncthreads(); if (t == 0) { copy_async(s, x, true); wait_copies<0>(); y[0] = s[0]; }"
        ),
        unwritten("0")
    );
}

#[test]
fn are_ordered_by_barriers_alone() {
    if !compiles() {
        return;
    }
    assert_eq!(
        error_of("wait_copies<0>(); y[t] = s[(t * 4 + 4) % 128];"),
        "f, block (0, 0, 0), thread 0: reads shared array s at index 4, which the block has not written"
    );
    assert_eq!(
        error_of(
            "wait_copies<0>(); __syncthreads(); int v = s[(t * 4 + 4) % 128]; copy_async(s + t * 4, x, true);"
        ),
        "f, block (0, 0, 0), thread 0: race: writes shared array s at index 0, which thread 31 has read with no \
         barrier in between"
    );
    assert_eq!(
        error_of(
            "wait_copies<0>(); __syncthreads(); if (t == 0) copy_async(s, x + 124 + 4, true);"
        ),
        "f, block (0, 0, 0), thread 0: reads parameter 0 at index 128 of 128 elements (16 bytes)"
    );
}
