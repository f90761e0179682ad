//! Transposes of blocks of eight lines.

use crate::cpu::simd::{VectorLevel, level};

/// Lines of a block.
pub const LINES: usize = 8;

/// `dst[k * width + j] = src[j][k]` for `k` below `depth`, in the order of `k`: where `width` is less than the lines, what the first
/// lines yield is overwritten by what belongs there, but behind the last `k`.
///
/// # Panics
/// If a line is shorter than the depth, or `dst` than what is written.
pub fn transpose_lines(src: [&[f32]; LINES], depth: usize, dst: &mut [f32], width: usize) {
    assert!(src.iter().all(|s| s.len() >= depth), "lines of the depth");
    assert!(depth == 0 || dst.len() >= (depth - 1) * width + LINES, "room for the result");
    let done = match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: both levels have the instructions, and the assertions bound all accesses.
        VectorLevel::V3 | VectorLevel::V4 => unsafe { blocks(src, depth, dst, width) },
        _ => 0,
    };
    for k in done..depth {
        dst[k * width..][..LINES].copy_from_slice(&src.map(|s| s[k]));
    }
}

/// Eight elements of all lines at a time; yields how many of each are done.
///
/// # Safety
/// As [`transpose_lines`] asserts.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn blocks(src: [&[f32]; LINES], depth: usize, dst: &mut [f32], width: usize) -> usize {
    use std::arch::x86_64::*;
    let from = src.map(<[f32]>::as_ptr);
    let to = dst.as_mut_ptr();
    for k in (0..depth / LINES * LINES).step_by(LINES) {
        // SAFETY: every line has these elements.
        let x = from.map(|s| unsafe { _mm256_loadu_ps(s.add(k)) });
        // Pairs of lines, then fours, then both halves.
        let pairs: [__m256; LINES] =
            std::array::from_fn(|i| match (x[i / 2 * 2], x[i / 2 * 2 + 1]) {
                (a, b) if i % 2 == 0 => _mm256_unpacklo_ps(a, b),
                (a, b) => _mm256_unpackhi_ps(a, b),
            });
        let fours: [__m256; LINES] = std::array::from_fn(|i| {
            let first = i / 4 * 4 + i % 4 / 2;
            match (pairs[first], pairs[first + 2]) {
                (a, b) if i % 2 == 0 => _mm256_shuffle_ps::<0b01_00_01_00>(a, b),
                (a, b) => _mm256_shuffle_ps::<0b11_10_11_10>(a, b),
            }
        });
        for j in 0..LINES {
            let (a, b) = (fours[j % 4], fours[j % 4 + LINES / 2]);
            let line = match j < 4 {
                true => _mm256_permute2f128_ps::<0x20>(a, b),
                false => _mm256_permute2f128_ps::<0x31>(a, b),
            };
            // SAFETY: there is room for eight elements at each of these places.
            unsafe { _mm256_storeu_ps(to.add((k + j) * width), line) };
        }
    }
    depth / LINES * LINES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_change_places() {
        for depth in [0, 1, 7, 8, 9, 16, 27] {
            for width in [8, 13, 32] {
                let data: Vec<f32> = (0..LINES * depth).map(|i| i as f32).collect();
                let mut dst = vec![-1.0; depth * width + LINES];
                let lines = std::array::from_fn(|j| &data[j * depth..][..depth]);
                transpose_lines(lines, depth, &mut dst, width);
                for k in 0..depth {
                    for j in 0..LINES {
                        assert_eq!(dst[k * width + j], (j * depth + k) as f32, "{depth} {width}");
                    }
                }
            }
        }
    }
}
