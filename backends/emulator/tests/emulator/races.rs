//! Data races, on random accesses: a launch reports one exactly if two accesses race by definition.

use crate::{Buffer, compiles, launch};

const STEPS: usize = 5;
const THREADS: usize = 64;
const BLOCKS: usize = 3;

/// Per step and thread: nothing, or four times the element, and 1 to read, 2 to write, 3 to update it atomically. After
/// a step each warp does nothing, synchronises (1), or all wait at a barrier (2).
const KERNEL: &str = "
KERNEL(64) f(GLOBAL(const int) accesses, GLOBAL(const int) orders, GLOBAL(int) y) {
    for (int step = 0; step < 5; step++) {
        const int access = accesses[(blockIdx.x * 64 + threadIdx.x) * 5 + step];
        const int element = access / 4, kind = access % 4;
        if (kind == 1) { int v = y[element]; }
        if (kind == 2) y[element] = 1;
        if (kind == 3) atomicAdd(y + element, 1);
        const int order = orders[step * 2 + threadIdx.x / 32];
        if (order == 1) __syncwarp();
        if (order == 2) __syncthreads();
    }
}";

#[derive(Clone, Copy, Debug)]
struct Access {
    block: usize,
    thread: usize,
    step: usize,
    element: i32,
    kind: i32,
}

fn in_a_race(a: Access, b: Access, orders: &[i32; 2 * STEPS]) -> bool {
    if a.element != b.element || (a.kind == b.kind && a.kind != 2) {
        return false;
    }
    if a.block != b.block {
        return true;
    }
    let between = a.step.min(b.step)..a.step.max(b.step);
    let warp = a.thread / 32;
    let within = warp == b.thread / 32;
    let orders =
        |step: usize| orders[step * 2 + warp] == 2 || within && orders[step * 2 + warp] == 1;
    a.thread != b.thread && !between.into_iter().any(orders)
}

#[test]
fn are_found_exactly_where_they_are() {
    if !compiles() {
        return;
    }
    let mut seed = 1u64;
    let mut below = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    let mut found = 0;
    for _ in 0..4000 {
        let mut orders = [0; 2 * STEPS];
        for step in 0..STEPS {
            let barrier = below(4) == 0;
            let mut order = || if barrier { 2 } else { i32::from(below(2) == 0) };
            (orders[2 * step], orders[2 * step + 1]) = (order(), order());
        }
        // Mostly one block, and few elements: otherwise nearly every launch has a race.
        let blocks = if below(6) == 0 { BLOCKS } else { 1 };
        let (others, writes) = ([&[1][..], &[3], &[1, 3]][below(3)], below(4) > 0);
        let count = 2 + below(9);
        let mut accesses: Vec<Access> = Vec::new();
        for _ in 0..count {
            let access = Access {
                block: below(blocks),
                thread: [0, 1, 2, 32, 33][below(5)],
                step: below(STEPS),
                element: below(3) as i32,
                kind: if writes && below(3) == 0 { 2 } else { others[below(others.len())] },
            };
            let same = |a: &Access| {
                (a.block, a.thread, a.step) == (access.block, access.thread, access.step)
            };
            if !accesses.iter().any(same) {
                accesses.push(access);
            }
        }
        let mut script = vec![0; BLOCKS * THREADS * STEPS];
        for a in &accesses {
            script[(a.block * THREADS + a.thread) * STEPS + a.step] = a.element * 4 + a.kind;
        }
        let pairs = accesses.iter().flat_map(|&a| accesses.iter().map(move |&b| (a, b)));
        let expected = pairs.into_iter().any(|(a, b)| in_a_race(a, b, &orders));
        let (mut x, mut o, mut y) =
            (Buffer::new(&script), Buffer::new(&orders), Buffer::new(&[0; 3]));
        let grid = [BLOCKS as u32, 1, 1];
        let result = launch(KERNEL, grid, THREADS as u32, &[x.region(), o.region(), y.region()]);
        assert_eq!(result.is_err(), expected, "{accesses:?} {orders:?} {result:?}");
        assert!(result.err().is_none_or(|e| e.to_string().contains("race")));
        found += i32::from(expected);
    }
    assert!((1000..3000).contains(&found), "{found} of 4000 launches have a race");
}
