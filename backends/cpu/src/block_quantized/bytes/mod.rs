//! Products of int8-quantised rows with block-quantised weights: integer sums per group, scaled once.
//!
//! Never wraps nor saturates, so every instruction set and every number of rows gives the same bits.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod vnni;

use super::panels::{BlockPanels, Form, LANES, offsets, scales};
use super::rows::add;
#[cfg(target_arch = "x86_64")]
use crate::int8::has_vnni;
use mlc_vector::simd;
use mlc_vector::simd::{VectorLevel, level};

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
        return unsafe {
            match has_vnni() {
                true => vnni::strip(s, groups, out),
                false => avx2::strip(s, groups, out),
            }
        };
    }
    #[cfg(target_arch = "aarch64")]
    return neon::strip(s, out);
    #[cfg(not(target_arch = "aarch64"))]
    {
        let _ = (level(), VectorLevel::Base);
        portable(s, out)
    }
}

simd! {
    #[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "tests hold the other path against it"))]
    fn portable(s: &ByteStrip<'_>, out: &mut [f32]) {
        sums_of(s, out, wide_group, narrow_group);
    }
}

/// The products, by what sums those of a group's words with bytes.
#[inline(always)]
fn sums_of(
    s: &ByteStrip<'_>,
    out: &mut [f32],
    wide: impl Fn(&[u32], &[i8]) -> [i32; LANES],
    narrow: impl Fn(&[u32], &[i8]) -> [i32; LANES],
) {
    let (form, rows) = (s.form, s.rows);
    let groups = s.factors.scales.len() / rows;
    for (r, out) in out.as_chunks_mut::<LANES>().0.iter_mut().take(rows).enumerate() {
        let line = &s.factors.lines[r * groups * form.group..][..groups * form.group];
        let mut sums = [0.0; LANES];
        for (g, at) in s.panel.chunks_exact(form.words()).take(groups).enumerate() {
            let x = &line[g * form.group..][..form.group];
            let group = match form.wide {
                true => wide(&at[form.head()..], x),
                false => narrow(&at[form.head()..], x),
            };
            let (by, total) = (s.factors.scales[r * groups + g], s.factors.totals[r * groups + g]);
            let group = group.map(|n| n as f32 * by);
            add(form.offset, &mut sums, &group, &scales(form, at), &offsets(form, at), total);
        }
        *out = sums;
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
                #[cfg(target_arch = "x86_64")]
                if level() >= VectorLevel::V3 {
                    // SAFETY: the instructions are there, and the slices are as long as three groups are.
                    unsafe { avx2::strip(&s, 3, &mut got) };
                    assert_eq!(got, wanted, "{form:?}, {rows} rows in AVX2");
                }
                #[cfg(target_arch = "aarch64")]
                {
                    neon::widened(&s, &mut got);
                    assert_eq!(got, wanted, "{form:?}, {rows} rows without dot products");
                }
                if rows == 1 {
                    one = got;
                }
                assert_eq!(got[..LANES], one[..LANES], "{form:?}, one of {rows} rows");
            }
        }
    }
}
