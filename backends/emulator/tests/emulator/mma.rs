//! Tensor-core instructions (`mma`) against plain products, on small integers that every type here represents exactly.

use half::{bf16, f16};

use crate::{Buffer, compiles, launch};

/// Small integers, the same in every run.
fn numbers(count: usize, mut seed: u32) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as f32 % 9.0 - 4.0
    };
    (0..count).map(|_| next()).collect()
}

/// A kernel that loads a lane's fragments of A (16 x depth) and B (depth x 8), both row by row, and of D: by register,
/// where the emulator gathers by element.
fn kernel(function: &str, element: &str, depth: usize) -> String {
    let fragments = if depth == 16 {
        "for (int r = 0; r < 4; r++) {
             const int row = group + (r % 2) * 8, column = within * 2 + (r / 2) * 8;
             fa[r] = (unsigned)a[row * 16 + column] | (unsigned)a[row * 16 + column + 1] << 16;
         }
         for (int r = 0; r < 2; r++) {
             const int row = within * 2 + r * 8;
             fb[r] = (unsigned)b[row * 8 + group] | (unsigned)b[(row + 1) * 8 + group] << 16;
         }"
    } else {
        "for (int r = 0; r < 4; r++) fa[r] = a[(group + (r % 2) * 8) * 8 + within + (r / 2) * 4];
         for (int r = 0; r < 2; r++) fb[r] = b[(within + r * 4) * 8 + group];"
    };
    format!(
        "KERNEL(64) f(GLOBAL(const {element}) a, GLOBAL(const {element}) b, GLOBAL(float) d) {{
             const int lane = threadIdx.x % 32, group = lane / 4, within = lane % 4;
             unsigned fa[4], fb[2];
             float fd[4];
             if (threadIdx.x >= 32) return;
             {fragments}
             for (int r = 0; r < 4; r++) fd[r] = d[(group + r / 2 * 8) * 8 + within * 2 + r % 2];
             {function}(fd, fa, fb);
             for (int r = 0; r < 4; r++) d[(group + r / 2 * 8) * 8 + within * 2 + r % 2] = fd[r];
         }}"
    )
}

fn check<T: Copy>(function: &str, element: &str, depth: usize, encode: impl Fn(f32) -> T) {
    if !compiles() {
        return;
    }
    let (a, b, d) = (numbers(16 * depth, 1), numbers(depth * 8, 2), numbers(16 * 8, 3));
    let encoded = |x: &[f32]| Buffer::new(&x.iter().map(|&x| encode(x)).collect::<Vec<T>>());
    let (mut ea, mut eb, mut result) = (encoded(&a), encoded(&b), Buffer::new(&d));
    let regions = [ea.region(), eb.region(), result.region()];
    launch(&kernel(function, element, depth), [1, 1, 1], 64, &regions).unwrap();
    for row in 0..16 {
        for column in 0..8 {
            let product: f32 = (0..depth).map(|k| a[row * depth + k] * b[k * 8 + column]).sum();
            let at = row * 8 + column;
            assert_eq!(result.elements()[at], d[at] + product, "row {row}, column {column}");
        }
    }
}

#[test]
fn of_f16() {
    check("mma_16816", "unsigned short", 16, |x| f16::from_f32(x).to_bits());
}

#[test]
fn of_bf16() {
    check("mma_16816_bf16", "unsigned short", 16, |x| bf16::from_f32(x).to_bits());
}

#[test]
fn of_tf32() {
    // The low bits do not count.
    check("mma_1688_tf32", "unsigned", 8, |x| if x == 0.0 { 0 } else { x.to_bits() | 0x1fff });
}

#[test]
fn of_bytes() {
    if !compiles() {
        return;
    }
    for (function, element, other, low, other_low) in [
        ("mma_16832_s8s8", "signed char", "signed char", -128, -128),
        ("mma_16832_s8u8", "signed char", "unsigned char", -128, 0),
        ("mma_16832_u8s8", "unsigned char", "signed char", 0, -128),
        ("mma_16832_u8u8", "unsigned char", "unsigned char", 0, 0),
    ] {
        // All bytes there are, in some order.
        let bytes = |count: usize, low: i32, by: usize| -> Vec<i32> {
            (0..count).map(|i| (i * by % 256) as i32 + low).collect()
        };
        let (a, b) = (bytes(16 * 32, low, 77), bytes(32 * 8, other_low, 91));
        let d: Vec<i32> = (0..16 * 8).map(|i| i - 60).collect();
        let encoded = |x: &[i32]| Buffer::new(&x.iter().map(|&x| x as u8).collect::<Vec<u8>>());
        let (mut ea, mut eb, mut result) = (encoded(&a), encoded(&b), Buffer::new(&d));
        let source = format!(
            "KERNEL(32) f(GLOBAL(const {element}) a, GLOBAL(const {other}) b, GLOBAL(int) d) {{
                 const int lane = threadIdx.x, group = lane / 4, within = lane % 4;
                 unsigned fa[4], fb[2];
                 int fd[4];
                 for (int r = 0; r < 4; r++) fa[r] = load_word(a + (group + r % 2 * 8) * 32 + within * 4 + r / 2 * 16);
                 for (int r = 0; r < 2; r++) {{
                     fb[r] = 0;
                     for (int i = 0; i < 4; i++)
                         fb[r] |= (unsigned)(unsigned char)b[(within * 4 + i + r * 16) * 8 + group] << 8 * i;
                 }}
                 for (int r = 0; r < 4; r++) fd[r] = d[(group + r / 2 * 8) * 8 + within * 2 + r % 2];
                 {function}(fd, fa, fb);
                 for (int r = 0; r < 4; r++) d[(group + r / 2 * 8) * 8 + within * 2 + r % 2] = fd[r];
             }}"
        );
        launch(&source, [1, 1, 1], 32, &[ea.region(), eb.region(), result.region()]).unwrap();
        for (at, was) in d.iter().enumerate() {
            let (row, column) = (at / 8, at % 8);
            let product: i32 = (0..32).map(|k| a[row * 32 + k] * b[k * 8 + column]).sum();
            assert_eq!(
                result.elements()[at],
                was + product,
                "{function}, row {row}, column {column}"
            );
        }
    }
}

#[test]
fn a_warp_that_is_not_whole_multiplies_nothing() {
    if !compiles() {
        return;
    }
    let (mut a, mut d) = (Buffer::new(&[0u16; 256]), Buffer::new(&[0f32; 128]));
    let mut b = Buffer::new(&[0u16; 128]);
    let source = kernel("mma_16816", "unsigned short", 16);
    let message = crate::error(&source, [1, 1, 1], 31, &[a.region(), b.region(), d.region()]);
    assert_eq!(
        message,
        "f, block (0, 0, 0), thread 30: multiplies matrices in a warp of fewer than 32 threads"
    );
}

#[test]
fn four_matrices_come_from_shared_memory_as_products_take_them() {
    if !compiles() {
        return;
    }
    // Each element is its place in four matrices of 8 x 8.
    for (name, turned) in [("load_matrices", false), ("load_matrices_turned", true)] {
        let source = format!(
            "KERNEL(32) f(GLOBAL(const unsigned short) x, GLOBAL(unsigned) y) {{
                 SHARED(unsigned short, tile, 256);
                 for (int at = threadIdx.x; at < 256; at += 32) tile[at] = x[at];
                 __syncthreads();
                 unsigned to[4];
                 {name}(to, tile + (int)threadIdx.x * 8);
                 for (int m = 0; m < 4; m++) y[threadIdx.x * 4 + m] = to[m];
             }}"
        );
        let mut x = Buffer::new(&(0..256).collect::<Vec<u16>>());
        let mut y = Buffer::new(&[0u32; 128]);
        launch(&source, [1, 1, 1], 32, &[x.region(), y.region()]).unwrap();
        for (at, both) in y.elements().iter().enumerate() {
            let (lane, m) = (at as u32 / 4, at as u32 % 4);
            let place = |i: u32| {
                let along = lane % 4 * 2 + i;
                let [row, column] = if turned { [along, lane / 4] } else { [lane / 4, along] };
                m * 64 + row * 8 + column
            };
            assert_eq!([both & 0xffff, both >> 16], [place(0), place(1)], "{name}, lane {lane}");
        }
    }
}
