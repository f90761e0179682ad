//! Sums of products of bytes by VNNI: dot products of four in one instruction, sixteen rows of the matrix at a time.

use super::ByteStrip;
use crate::block_quantized::panels::{LANES, Offset, offsets, scales};
use crate::block_quantized::rows::AHEAD;
use mlc_vector::arrays::array;
use mlc_vector::simd::prefetch;
use std::arch::x86_64::*;

/// What makes a signed byte an unsigned one that is larger by 128.
const SHIFT: i32 = i32::from_ne_bytes([0x80; 4]);

/// # Safety
/// As [`super::avx2::strip`], on a machine with AVX-512 and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn strip(s: &ByteStrip<'_>, groups: usize, out: &mut [f32]) {
    // SAFETY: by the contract.
    unsafe {
        match s.rows {
            1 => sums_of::<1>(s, groups, out),
            2 => sums_of::<2>(s, groups, out),
            3 => sums_of::<3>(s, groups, out),
            _ => sums_of::<4>(s, groups, out),
        }
    }
}

/// # Safety
/// As [`strip`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
unsafe fn sums_of<const M: usize>(s: &ByteStrip<'_>, groups: usize, out: &mut [f32]) {
    let (form, depth) = (s.form, groups * s.form.group);
    let mut sums = [_mm512_setzero_ps(); M];
    for g in 0..groups {
        let at = &s.panel[g * form.words()..][..form.words()];
        prefetch(at, AHEAD);
        let data = &at[form.head()..];
        // SAFETY: lines have as many bytes as there are places.
        let x: [*const i8; M] =
            array(|r| unsafe { s.factors.lines.as_ptr().add(r * depth + g * form.group) });
        // SAFETY: the group's words are those of its bytes.
        let found = unsafe {
            match form.wide {
                true => wide(data, x),
                false => narrow(data, x),
            }
        };
        let (by, o) = (scales(form, at), offsets(form, at));
        // SAFETY: sixteen lanes each.
        let (by, o) = unsafe { (_mm512_loadu_ps(by.as_ptr()), _mm512_loadu_ps(o.as_ptr())) };
        for r in 0..M {
            let scale = _mm512_set1_ps(s.factors.scales[r * groups + g]);
            let total = _mm512_set1_ps(s.factors.totals[r * groups + g]);
            let group = _mm512_mul_ps(_mm512_cvtepi32_ps(found[r]), scale);
            let sum = &mut sums[r];
            // As `add` does.
            *sum = match form.offset {
                Offset::None => _mm512_fmadd_ps(group, by, *sum),
                Offset::Same(_) | Offset::Bytes | Offset::Less => {
                    _mm512_fmadd_ps(_mm512_fnmadd_ps(o, total, group), by, *sum)
                }
                Offset::Half | Offset::Single => {
                    _mm512_fmadd_ps(o, total, _mm512_fmadd_ps(group, by, *sum))
                }
            };
        }
    }
    for (out, sum) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
        // SAFETY: sixteen lanes.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) };
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn words(w: &[u32; LANES]) -> __m512i {
    prefetch(w, AHEAD);
    // SAFETY: sixteen words.
    unsafe { _mm512_loadu_si512(w.as_ptr().cast()) }
}

/// Four bytes of a line.
///
/// # Safety
/// They are there.
#[inline]
unsafe fn four(x: *const i8) -> i32 {
    // SAFETY: by the contract.
    unsafe { x.cast::<i32>().read_unaligned() }
}

/// # Safety
/// Each line has eight bytes for every [`LANES`] words.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
unsafe fn narrow<const M: usize>(data: &[u32], x: [*const i8; M]) -> [__m512i; M] {
    let low = _mm512_set1_epi8(15);
    let (mut even, mut odd) = ([_mm512_setzero_si512(); M], [_mm512_setzero_si512(); M]);
    for (t, w) in data.as_chunks::<LANES>().0.iter().enumerate() {
        let w = words(w);
        let (a, b) = (_mm512_and_si512(w, low), _mm512_and_si512(_mm512_srli_epi16::<4>(w), low));
        for r in 0..M {
            // SAFETY: the bytes of these words.
            let (x, y) = unsafe { (four(x[r].add(t * 8)), four(x[r].add(t * 8 + 4))) };
            even[r] = _mm512_dpbusd_epi32(even[r], a, _mm512_set1_epi32(x));
            odd[r] = _mm512_dpbusd_epi32(odd[r], b, _mm512_set1_epi32(y));
        }
    }
    array(|r| _mm512_add_epi32(even[r], odd[r]))
}

/// Bytes of the lines are made unsigned; what this adds, 128 times the numbers, is the same for all lines and taken off. Sums wrap, and are
/// right when it is.
///
/// # Safety
/// Each line has four bytes for every [`LANES`] words.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
unsafe fn wide<const M: usize>(data: &[u32], x: [*const i8; M]) -> [__m512i; M] {
    let middle = _mm512_set1_epi32(SHIFT);
    let (mut sums, mut added) = ([_mm512_setzero_si512(); M], _mm512_setzero_si512());
    for (t, w) in data.as_chunks::<LANES>().0.iter().enumerate() {
        let w = words(w);
        added = _mm512_dpbusd_epi32(added, middle, w);
        for r in 0..M {
            // SAFETY: the bytes of these words.
            let x = unsafe { four(x[r].add(t * 4)) } ^ SHIFT;
            sums[r] = _mm512_dpbusd_epi32(sums[r], _mm512_set1_epi32(x), w);
        }
    }
    array(|r| _mm512_sub_epi32(sums[r], added))
}
