//! Last-block reduction (fence and atomic counter): the last block sees what the others wrote before they counted, and nothing else.

use crate::{Buffer, compiles, error, launch};

/// Two tiles of three blocks of 32 threads: each block writes its own part; all but the last one of a tile do `between`, that one does `last`.
fn kernel(before: &str, between: &str, last: &str) -> String {
    format!(
        "KERNEL(32) f(PLAIN(int) parts, PLAIN(unsigned) counts, GLOBAL(int) y) {{
            const int tile = blockIdx.x % 2, own = (tile * 3 + blockIdx.x / 2) * 32 + threadIdx.x;
            parts[own] = (int)blockIdx.x + 1;
            {before}
            if (!comes_last(counts + tile, 3)) {{ {between} return; }}
            {last}
        }}"
    )
}

const ADD: &str = "y[tile * 32 + threadIdx.x] = load_one_fresh(parts + (tile * 96 + threadIdx.x)) + load_one_fresh(parts + (tile * 96 + 32 + threadIdx.x)) + load_one_fresh(parts + (tile * 96 + 64 + threadIdx.x));";

#[test]
fn the_last_one_sees_what_all_wrote() {
    if !compiles() {
        return;
    }
    // The one that comes last adds from the first part on, whichever it is.
    let source = kernel("", "", ADD);
    let (mut parts, mut counts, mut y) =
        (Buffer::new(&[0i32; 192]), Buffer::new(&[0u32; 2]), Buffer::new(&[0i32; 64]));
    for _ in 0..2 {
        let regions = [parts.region(), counts.region(), y.region()];
        launch(&source, [6, 1, 1], 32, &regions).expect("runs");
        assert_eq!(y.elements()[..32], [1 + 3 + 5; 32]);
        assert_eq!(y.elements()[32..], [2 + 4 + 6; 32]);
        // As before the launch.
        assert_eq!(counts.elements(), [0, 0]);
    }
}

#[test]
fn what_is_not_behind_the_meeting_is_a_race() {
    if !compiles() {
        return;
    }
    let read = "y[tile * 32 + threadIdx.x] = parts[tile * 96 + threadIdx.x];";
    let check = |source: String, reader: &str, writer: &str| {
        let (mut parts, mut counts, mut y) =
            (Buffer::new(&[0i32; 192]), Buffer::new(&[0u32; 2]), Buffer::new(&[0i32; 64]));
        let regions = [parts.region(), counts.region(), y.region()];
        let found = error(&source, [6, 1, 1], 32, &regions);
        let told = found.starts_with(&format!("f, block {reader}"))
            && found.contains("race: reads parameter 0")
            && found.contains(&format!("of block {writer} has written in the same launch"));
        assert!(told, "{found}");
    };
    // Ahead of it, of another tile, and what was written behind it.
    check(kernel(read, "", ""), "(2, 0, 0)", "(0, 0, 0)");
    let other = "y[threadIdx.x] = parts[(1 - tile) * 96 + threadIdx.x];";
    check(kernel("", "", other), "(4, 0, 0)", "(1, 0, 0)");
    check(kernel("", "parts[own] = 0;", ADD), "(4, 0, 0)", "(0, 0, 0)");
}
