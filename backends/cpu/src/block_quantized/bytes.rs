//! Products of int8-quantised rows with block-quantised weights: integer sums per group, scaled once.
//!
//! Never wraps nor saturates, so every instruction set and every number of rows gives the same bits.

use super::panels::{BlockPanels, Form, LANES, offsets, scales};
use super::rows::{AHEAD, add};
use mlc_vector::arrays::array;
use mlc_vector::simd;
use mlc_vector::simd::{VectorLevel, level, prefetch};

/// Most rows that are computed together.
pub const TOGETHER: usize = 4;
/// Largest magnitude of a rounded number.
const MOST: f32 = 127.0;
/// Numbers of a group whose sum of products of two bytes fits 32 bits.
pub const LONGEST: usize = 1 << 16;

simd! {
    /// Rounds a group of numbers to whole multiples of its scale, which is returned: the largest magnitude over 127, and no number where one is
    /// not finite.
    pub fn round_group(x: &[f32], to: &mut [i8]) -> f32 {
        let mut most = 0i32;
        for v in x {
            // Magnitudes are in the order of their bits, and all that is not finite is above.
            most = most.max((v.to_bits() & 0x7FFF_FFFF) as i32);
        }
        let most = f32::from_bits(most as u32);
        let scale = most / MOST;
        if !most.is_finite() || scale == 0.0 {
            to.fill(0);
            return if most.is_finite() { 0.0 } else { f32::NAN };
        }
        for (to, v) in to.iter_mut().zip(x) {
            // A scale so small that it is not exact makes more than the largest number of the largest magnitude.
            *to = (v / scale).round_ties_even().clamp(-MOST, MOST) as i8;
        }
        scale
    }
}

/// Rows of bytes in the order of the packed words.
pub struct ByteFactors<'a> {
    /// Lines of as many bytes as there are places.
    pub lines: &'a [i8],
    /// The scale of each group of bytes.
    pub scales: &'a [f32],
    /// The sum of each group, scaled.
    pub totals: &'a [f32],
}

/// A quantised row: element `k` is `numbers[k] * scales[k / size]`.
#[derive(Clone, Copy)]
pub struct QuantizedRow<'a> {
    pub numbers: &'a [i8],
    pub scales: &'a [f32],
    /// Elements of a group.
    pub size: usize,
}

/// Writes the line, scales and sums of a quantised row.
pub fn prepare(
    w: &BlockPanels,
    QuantizedRow { numbers, scales, size }: QuantizedRow<'_>,
    line: &mut [i8],
    by: &mut [f32],
    totals: &mut [f32],
) {
    let group = w.form.group;
    for (g, line) in line.chunks_exact_mut(group).enumerate() {
        let first = w.number_at(g * group).unwrap_or(0);
        by[g] = scales.get(first / size).copied().unwrap_or(0.0);
        match numbers.get(first..first + group).filter(|_| w.order.is_none()) {
            Some(numbers) => line.copy_from_slice(numbers),
            None => {
                for (i, to) in line.iter_mut().enumerate() {
                    *to = w.number_at(g * group + i).map_or(0, |k| numbers[k]);
                }
            }
        }
        totals[g] = by[g] * line.iter().map(|&n| i32::from(n)).sum::<i32>() as f32;
        if !w.form.wide {
            // Numbers at even places of a word stand in the lower halves of its bytes, the others in the upper ones.
            for eight in line.as_chunks_mut::<8>().0 {
                let [a, b, c, d, e, f, g, h] = *eight;
                *eight = [a, c, e, g, b, d, f, h];
            }
        }
    }
}

/// A panel and some rows.
pub struct ByteStrip<'a> {
    pub form: Form,
    pub panel: &'a [u32],
    pub factors: ByteFactors<'a>,
    /// Up to [`TOGETHER`].
    pub rows: usize,
}

/// The products of some rows with a panel: [`LANES`] elements for each row.
pub fn strip(s: &ByteStrip<'_>, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if level() >= VectorLevel::V3 {
        let (groups, depth) = (s.factors.scales.len() / s.rows, s.factors.lines.len() / s.rows);
        assert!(s.rows <= TOGETHER && out.len() >= s.rows * LANES, "a row of results each");
        assert!(depth == groups * s.form.group && s.panel.len() >= groups * s.form.words());
        assert!(s.factors.totals.len() >= groups * s.rows, "a sum for each group");
        // SAFETY: the instructions are there, and all that is read lies inside the slices.
        return unsafe { x86::strip(s, groups, out) };
    }
    let _ = (level(), VectorLevel::Base);
    portable(s, out)
}

simd! {
    fn portable(s: &ByteStrip<'_>, out: &mut [f32]) {
        let (form, rows) = (s.form, s.rows);
        let groups = s.factors.scales.len() / rows;
        for (r, out) in out.as_chunks_mut::<LANES>().0.iter_mut().take(rows).enumerate() {
            let line = &s.factors.lines[r * groups * form.group..][..groups * form.group];
            let mut sums = [0.0; LANES];
            for (g, at) in s.panel.chunks_exact(form.words()).take(groups).enumerate() {
                let x = &line[g * form.group..][..form.group];
                let group = match form.wide {
                    true => wide_group(&at[form.head()..], x),
                    false => narrow_group(&at[form.head()..], x),
                };
                let (by, total) = (s.factors.scales[r * groups + g], s.factors.totals[r * groups + g]);
                let group = group.map(|n| n as f32 * by);
                add(form.offset, &mut sums, &group, &scales(form, at), &offsets(form, at), total);
            }
            *out = sums;
        }
    }
}

#[inline(always)]
fn wide_group(data: &[u32], x: &[i8]) -> [i32; LANES] {
    let mut sums = [0i32; LANES];
    for (w, x) in data.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<4>().0) {
        for (j, &x) in x.iter().enumerate() {
            for i in 0..LANES {
                sums[i] += ((w[i] << (24 - 8 * j)) as i32 >> 24) * i32::from(x);
            }
        }
    }
    sums
}

#[inline(always)]
fn narrow_group(data: &[u32], x: &[i8]) -> [i32; LANES] {
    let mut sums = [0i32; LANES];
    for (w, x) in data.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<8>().0) {
        for (j, &x) in x.iter().enumerate() {
            let shift = j % 4 * 8 + j / 4 * 4;
            for i in 0..LANES {
                sums[i] += (w[i] >> shift & 15) as i32 * i32::from(x);
            }
        }
    }
    sums
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use crate::block_quantized::panels::Offset;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_quantized::panels::{Offset, Row};

    fn panels(form: Form, groups: usize) -> BlockPanels {
        let depth = groups * form.group;
        BlockPanels::new(form, 13, depth, depth, None, |row, to: Row<'_>| {
            for (i, n) in to.numbers.iter_mut().enumerate() {
                let drawn = (((i * 37 + row * 101) * 2654435761) >> 9) as u8;
                *n = match (form.wide, i % 3 + row) {
                    (true, 0) => 128,
                    (true, _) => drawn,
                    (false, 0) => 15,
                    (false, _) => drawn & 15,
                };
            }
            to.scales.iter_mut().zip(0..).for_each(|(s, g)| *s = 0.25 + g as f32 / 8.0);
            to.offsets.iter_mut().zip(0..).for_each(|(o, g)| *o = g as f32 - 1.5);
        })
    }

    #[test]
    fn every_path_yields_the_same_bits() {
        let forms = [
            (false, 32),
            (true, 32),
            (true, 16),
            (false, 8),
            (false, 24),
            (false, 128),
            (true, 136),
        ];
        let offsets = [
            Offset::None,
            Offset::Same(8.0),
            Offset::Bytes,
            Offset::Less,
            Offset::Half,
            Offset::Single,
        ];
        for ((wide, group), offset) in forms.into_iter().flat_map(|f| offsets.map(|o| (f, o))) {
            let form = Form { wide, group, half: offset != Offset::Single, offset };
            let w = panels(form, 3);
            let numbers: Vec<i8> = (0..w.depth)
                .map(|i| if i % 3 == 0 { -127 } else { (i * 83 % 255) as i8 | 1 })
                .collect();
            let (mut lines, mut by, mut totals) = (vec![], vec![], vec![]);
            for r in 0..TOGETHER {
                let (mut line, mut scale, mut total) =
                    (vec![0; w.depth], vec![0.0; 3], vec![0.0; 3]);
                let own = [0.5, 0.125 * r as f32, 3.0];
                let row = QuantizedRow { numbers: &numbers, scales: &own, size: group };
                prepare(&w, row, &mut line, &mut scale, &mut total);
                lines.append(&mut line);
                by.append(&mut scale);
                totals.append(&mut total);
            }
            let mut one = [0.0; TOGETHER * LANES];
            for rows in 1..=TOGETHER {
                let factors = ByteFactors {
                    lines: &lines[..rows * w.depth],
                    scales: &by[..rows * 3],
                    totals: &totals[..rows * 3],
                };
                let s = ByteStrip { form, panel: w.panel(0), factors, rows };
                let (mut got, mut wanted) = ([0.0; TOGETHER * LANES], [0.0; TOGETHER * LANES]);
                strip(&s, &mut got);
                portable(&s, &mut wanted);
                assert_eq!(got, wanted, "{form:?}, {rows} rows");
                if rows == 1 {
                    one = got;
                }
                assert_eq!(got[..LANES], one[..LANES], "{form:?}, one of {rows} rows");
            }
        }
    }
}
