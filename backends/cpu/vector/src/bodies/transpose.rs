//! Transposes of blocks of eight lines.

#[cfg(target_arch = "x86_64")]
use crate::arrays::array;
use crate::simd::{VectorLevel, level};
use bytemuck::Pod;

/// Lines of a block.
pub const LINES: usize = 8;

/// `dst[k * width + j] = src[j][k]` for `k` below `depth`, in the order of `k`: where `width` is less than the lines, what the first
/// lines yield is overwritten by what belongs there, but behind the last `k`.
///
/// # Panics
/// If a line is shorter than the depth, or `dst` than what is written.
pub fn transpose_lines<T: Pod>(src: [&[T]; LINES], depth: usize, dst: &mut [T], width: usize) {
    assert!(src.iter().all(|s| s.len() >= depth), "lines of the depth");
    assert!(depth == 0 || dst.len() >= (depth - 1) * width + LINES, "room for the result");
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let done = {
        let (from, to) = (src.map(<[T]>::as_ptr), dst.as_mut_ptr());
        // SAFETY: the level has the instructions, the assertions bound all accesses, and elements are as many bytes.
        unsafe {
            match (size_of::<T>(), level()) {
                (1, _) => bytes(from.map(|s| s.cast()), depth, to.cast(), width),
                (2, _) => halves(from.map(|s| s.cast()), depth, to.cast(), width),
                (4, VectorLevel::Base) => 0,
                (4, _) => blocks(from.map(|s| s.cast()), depth, to.cast(), width),
                _ => 0,
            }
        }
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let done = 0;
    for k in done..depth {
        dst[k * width..][..LINES].copy_from_slice(&src.map(|s| s[k]));
    }
}

/// Eight bytes of all lines at a time; yields how many of each are done.
///
/// # Safety
/// As [`transpose_lines`] asserts, for elements of one byte.
#[cfg(target_arch = "x86_64")]
unsafe fn bytes(from: [*const u8; LINES], depth: usize, to: *mut u8, width: usize) -> usize {
    use std::arch::x86_64::*;
    for k in (0..depth / LINES * LINES).step_by(LINES) {
        // SAFETY: every line has these elements, and there is room for eight at each place. Every machine has the instructions.
        unsafe {
            let x: [_; LINES] = array(|i| _mm_loadl_epi64(from[i].add(k).cast()));
            let pairs: [__m128i; 4] = array(|i| _mm_unpacklo_epi8(x[2 * i], x[2 * i + 1]));
            let fours: [__m128i; 4] = array(|i| {
                let (a, b) = (pairs[i / 2 * 2], pairs[i / 2 * 2 + 1]);
                if i % 2 == 0 { _mm_unpacklo_epi16(a, b) } else { _mm_unpackhi_epi16(a, b) }
            });
            for i in 0..4 {
                let (a, b) = (fours[i / 2], fours[i / 2 + 2]);
                let two =
                    if i % 2 == 0 { _mm_unpacklo_epi32(a, b) } else { _mm_unpackhi_epi32(a, b) };
                _mm_storel_epi64(to.add((k + 2 * i) * width).cast(), two);
                let second = _mm_unpackhi_epi64(two, two);
                _mm_storel_epi64(to.add((k + 2 * i + 1) * width).cast(), second);
            }
        }
    }
    depth / LINES * LINES
}

/// The same of elements of two bytes.
///
/// # Safety
/// As [`transpose_lines`] asserts, for elements of two bytes.
#[cfg(target_arch = "x86_64")]
unsafe fn halves(from: [*const u16; LINES], depth: usize, to: *mut u16, width: usize) -> usize {
    use std::arch::x86_64::*;
    for k in (0..depth / LINES * LINES).step_by(LINES) {
        // SAFETY: every line has these elements, and there is room for eight at each place. Every machine has the instructions.
        unsafe {
            let x: [_; LINES] = array(|i| _mm_loadu_si128(from[i].add(k).cast()));
            let pairs: [__m128i; LINES] = array(|i| match (x[i / 2 * 2], x[i / 2 * 2 + 1]) {
                (a, b) if i % 2 == 0 => _mm_unpacklo_epi16(a, b),
                (a, b) => _mm_unpackhi_epi16(a, b),
            });
            let fours: [__m128i; LINES] = array(|i| {
                let first = i / 4 * 4 + i % 4 / 2;
                match (pairs[first], pairs[first + 2]) {
                    (a, b) if i % 2 == 0 => _mm_unpacklo_epi32(a, b),
                    (a, b) => _mm_unpackhi_epi32(a, b),
                }
            });
            for i in 0..LINES {
                let (a, b) = (fours[i / 2], fours[i / 2 + LINES / 2]);
                let line =
                    if i % 2 == 0 { _mm_unpacklo_epi64(a, b) } else { _mm_unpackhi_epi64(a, b) };
                _mm_storeu_si128(to.add((k + i) * width).cast(), line);
            }
        }
    }
    depth / LINES * LINES
}

/// Eight elements of all lines at a time; yields how many of each are done.
///
/// # Safety
/// As [`transpose_lines`] asserts.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn blocks(from: [*const f32; LINES], depth: usize, to: *mut f32, width: usize) -> usize {
    use std::arch::x86_64::*;
    for k in (0..depth / LINES * LINES).step_by(LINES) {
        // SAFETY: every line has these elements.
        let x: [_; LINES] = array(|i| unsafe { _mm256_loadu_ps(from[i].add(k)) });
        // Pairs of lines, then fours, then both halves.
        let pairs: [__m256; LINES] = array(|i| match (x[i / 2 * 2], x[i / 2 * 2 + 1]) {
            (a, b) if i % 2 == 0 => _mm256_unpacklo_ps(a, b),
            (a, b) => _mm256_unpackhi_ps(a, b),
        });
        let fours: [__m256; LINES] = array(|i| {
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

#[cfg(target_arch = "aarch64")]
use neon::{blocks, bytes, halves};

/// The same on NEON.
#[cfg(target_arch = "aarch64")]
mod neon {
    use super::LINES;
    use crate::arrays::array;
    use std::arch::aarch64::*;

    /// Defines a transpose of so many elements of all lines at a time.
    macro_rules! transpose {
        ($name:ident of $lanes:literal $t:ty: $load:ident, $low:ident, $high:ident, $store:ident) => {
            /// # Safety
            /// As [`super::transpose_lines`] asserts, for elements of this type.
            pub unsafe fn $name(
                from: [*const $t; LINES],
                depth: usize,
                to: *mut $t,
                width: usize,
            ) -> usize {
                for k in (0..depth / $lanes * $lanes).step_by($lanes) {
                    // SAFETY: every line has these elements, and there is room for eight at each place.
                    unsafe {
                        let mut x: [_; LINES] = array(|i| $load(from[i].add(k)));
                        // Each round makes one bit of a line's number the lowest of the places in a vector.
                        for _ in 0..LINES.trailing_zeros() {
                            x = array(|i| match (x[i / 2], x[i / 2 + LINES / 2]) {
                                (a, b) if i % 2 == 0 => $low(a, b),
                                (a, b) => $high(a, b),
                            });
                        }
                        for (x, at) in x.into_iter().zip((0..).step_by($lanes)) {
                            $store(to.add((k + at / LINES) * width + at % LINES), x);
                        }
                    }
                }
                depth / $lanes * $lanes
            }
        };
    }

    transpose!(bytes of 8 u8: vld1_u8, vzip1_u8, vzip2_u8, vst1_u8);
    transpose!(halves of 8 u16: vld1q_u16, vzip1q_u16, vzip2q_u16, vst1q_u16);
    transpose!(blocks of 4 f32: vld1q_f32, vzip1q_f32, vzip2q_f32, vst1q_f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change_places<T: Pod + PartialEq + std::fmt::Debug>(of: impl Fn(usize) -> T) {
        for depth in [0, 1, 7, 8, 9, 16, 27] {
            for width in [8, 13, 32] {
                let data: Vec<T> = (0..LINES * depth).map(&of).collect();
                let mut dst = vec![of(1000); depth * width + LINES];
                let lines = array(|j| &data[j * depth..][..depth]);
                transpose_lines(lines, depth, &mut dst, width);
                for k in 0..depth {
                    for j in 0..LINES {
                        assert_eq!(dst[k * width + j], of(j * depth + k), "{depth} {width}");
                    }
                }
            }
        }
    }

    #[test]
    fn elements_of_every_size_change_places() {
        change_places(|i| i as u8);
        change_places(|i| i as u16);
        change_places(|i| i as f32);
        change_places(|i| i as u64);
    }
}
