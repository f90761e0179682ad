//! Sums of products of bytes by AVX2, pairs of which are added in sixteen bits first.

use super::ByteStrip;
use crate::block_quantized::panels::{LANES, Offset, offsets, scales};
use crate::block_quantized::rows::AHEAD;
use mlc_vector::arrays::array;
use mlc_vector::simd::prefetch;
use std::arch::x86_64::*;

/// Words of sixteen rows whose products with bytes add up to no more than 16 bits: 15 times 127, twice for each half of their bytes.
const FITS: usize = 4;

/// # Safety
/// The machine has AVX2, and the panel, the lines, the scales and the results have as many elements as `groups` and the rows say.
#[target_feature(enable = "avx2,fma")]
pub unsafe fn strip(s: &ByteStrip<'_>, groups: usize, out: &mut [f32]) {
    // SAFETY: by the contract.
    unsafe {
        match (s.form.wide, s.rows) {
            (false, 1) => sums_of::<false, 1>(s, groups, out),
            (false, 2) => sums_of::<false, 2>(s, groups, out),
            (false, 3) => sums_of::<false, 3>(s, groups, out),
            (false, _) => sums_of::<false, 4>(s, groups, out),
            (true, 1) => sums_of::<true, 1>(s, groups, out),
            (true, 2) => sums_of::<true, 2>(s, groups, out),
            (true, 3) => sums_of::<true, 3>(s, groups, out),
            (true, _) => sums_of::<true, 4>(s, groups, out),
        }
    }
}

/// # Safety
/// As [`strip`].
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn sums_of<const WIDE: bool, const M: usize>(
    s: &ByteStrip<'_>,
    groups: usize,
    out: &mut [f32],
) {
    let (form, depth) = (s.form, groups * s.form.group);
    let mut sums = [[_mm256_setzero_ps(); 2]; M];
    for g in 0..groups {
        let at = &s.panel[g * form.words()..][..form.words()];
        prefetch(at, AHEAD);
        let data = &at[form.head()..];
        // SAFETY: lines have as many bytes as there are places.
        let x: [*const i8; M] =
            array(|r| unsafe { s.factors.lines.as_ptr().add(r * depth + g * form.group) });
        // SAFETY: the group's words are those of its bytes.
        let found = unsafe {
            match WIDE {
                true => wide(data, x),
                false => narrow(data, x),
            }
        };
        let (by, o) = (halves_of(&scales(form, at)), halves_of(&offsets(form, at)));
        for r in 0..M {
            let scale = _mm256_set1_ps(s.factors.scales[r * groups + g]);
            let total = _mm256_set1_ps(s.factors.totals[r * groups + g]);
            for h in 0..2 {
                let group = _mm256_mul_ps(_mm256_cvtepi32_ps(found[r][h]), scale);
                let sum = &mut sums[r][h];
                // As `add` does.
                *sum = match form.offset {
                    Offset::None => _mm256_fmadd_ps(group, by[h], *sum),
                    Offset::Same(_) | Offset::Bytes | Offset::Less => {
                        let group = _mm256_fnmadd_ps(o[h], total, group);
                        _mm256_fmadd_ps(group, by[h], *sum)
                    }
                    Offset::Half | Offset::Single => {
                        _mm256_fmadd_ps(o[h], total, _mm256_fmadd_ps(group, by[h], *sum))
                    }
                };
            }
        }
    }
    for (out, sums) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
        for (h, sum) in sums.into_iter().enumerate() {
            // SAFETY: eight lanes of sixteen.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr().add(8 * h), sum) };
        }
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn halves_of(values: &[f32; LANES]) -> [__m256; 2] {
    // SAFETY: eight lanes of sixteen each.
    unsafe { [_mm256_loadu_ps(values.as_ptr()), _mm256_loadu_ps(values.as_ptr().add(8))] }
}

#[target_feature(enable = "avx2")]
#[inline]
fn words(w: &[u32; LANES]) -> [__m256i; 2] {
    prefetch(w, AHEAD);
    let at = w.as_ptr();
    // SAFETY: eight lanes of sixteen each.
    unsafe { [_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(8).cast())] }
}

/// Four bytes of a line, for all lanes.
///
/// # Safety
/// They are there.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn four(x: *const i8) -> __m256i {
    // SAFETY: by the contract.
    _mm256_set1_epi32(unsafe { x.cast::<i32>().read_unaligned() })
}

/// # Safety
/// Each line has eight bytes for every [`LANES`] words.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn narrow<const M: usize>(data: &[u32], x: [*const i8; M]) -> [[__m256i; 2]; M] {
    let (low, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1));
    let mut sums = [[_mm256_setzero_si256(); 2]; M];
    for (c, data) in data.chunks(FITS * LANES).enumerate() {
        let mut pairs = [[_mm256_setzero_si256(); 2]; M];
        for (t, w) in data.as_chunks::<LANES>().0.iter().enumerate() {
            let w = words(w);
            for h in 0..2 {
                let even = _mm256_and_si256(w[h], low);
                let odd = _mm256_and_si256(_mm256_srli_epi16::<4>(w[h]), low);
                for r in 0..M {
                    // SAFETY: the bytes of these words.
                    let (a, b) = unsafe {
                        let x = x[r].add((c * FITS + t) * 8);
                        (four(x), four(x.add(4)))
                    };
                    let (a, b) = (_mm256_maddubs_epi16(even, a), _mm256_maddubs_epi16(odd, b));
                    pairs[r][h] = _mm256_add_epi16(pairs[r][h], _mm256_add_epi16(a, b));
                }
            }
        }
        for r in 0..M {
            for h in 0..2 {
                let four = _mm256_madd_epi16(pairs[r][h], ones);
                sums[r][h] = _mm256_add_epi32(sums[r][h], four);
            }
        }
    }
    sums
}

/// Magnitudes of the numbers times bytes with their signs: two products of up to 128 and 127 fit 16 bits.
///
/// # Safety
/// Each line has four bytes for every [`LANES`] words.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn wide<const M: usize>(data: &[u32], x: [*const i8; M]) -> [[__m256i; 2]; M] {
    let ones = _mm256_set1_epi16(1);
    let mut sums = [[_mm256_setzero_si256(); 2]; M];
    for (t, w) in data.as_chunks::<LANES>().0.iter().enumerate() {
        let w = words(w);
        for h in 0..2 {
            let size = _mm256_abs_epi8(w[h]);
            for r in 0..M {
                // SAFETY: the bytes of these words.
                let x = unsafe { four(x[r].add(t * 4)) };
                let p = _mm256_maddubs_epi16(size, _mm256_sign_epi8(x, w[h]));
                sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(p, ones));
            }
        }
    }
    sums
}
