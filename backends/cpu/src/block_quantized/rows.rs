//! Products of few rows with block-quantised weights: bandwidth-bound, so packed words are streamed once, with prefetching.
//!
//! A number is converted to f32 at its position in the word, and the factors are scaled down to match. Groups are summed separately, positions
//! modulo four apart, then scaled; the number of rows computed together changes no bit. A non-finite intermediate makes a non-finite result, which
//! need not be the one of single numbers.

use super::panels::{Form, LANES, Offset, offsets, scales};
use mlc_vector::arrays::array;
use mlc_vector::simd;
use mlc_vector::simd::prefetch;

/// Most rows that are computed together: more of them have more sums than there are registers.
pub const TOGETHER: usize = 2;
/// Words that are fetched ahead.
pub const AHEAD: usize = 1024;

/// Rows of factors in the order of the places of a packed matrix.
pub struct Factors<'a> {
    /// Lines of as many factors as there are places, made smaller by where their numbers stand.
    pub lines: &'a [f32],
    /// The sum of each group of factors.
    pub sums: &'a [f32],
}

simd! {
    /// Makes the factors of one row, in the order of the places, a line, and sums each group of them.
    pub fn prepare(form: Form, line: &mut [f32], sums: &mut [f32]) {
        let by = smaller(form);
        for (line, sum) in line.chunks_exact_mut(form.group).zip(sums) {
            let mut all = [0f32; 8];
            for part in line.as_chunks_mut::<8>().0 {
                for i in 0..8 {
                    all[i] += part[i];
                    part[i] *= by[i];
                }
            }
            let fours: [f32; 4] = array(|i| all[i] + all[i + 4]);
            *sum = (fours[0] + fours[2]) + (fours[1] + fours[3]);
        }
    }
}

/// What makes up for where a number stands in its word, for places one after the other.
fn smaller(form: Form) -> [f32; 8] {
    array(|j| match form.wide {
        // All are moved to the top of the word, but for the last, which is moved to the bottom.
        true if j % 4 == 3 => 1.0,
        true => 1.0 / (1 << 24) as f32,
        false if j == 7 => 1.0,
        false => 1.0 / (1u32 << (4 * j)) as f32,
    })
}

/// A panel and some rows.
pub struct Strip<'a> {
    pub form: Form,
    pub panel: &'a [u32],
    pub factors: Factors<'a>,
    /// Up to [`TOGETHER`].
    pub rows: usize,
}

simd! {
    /// The products of some rows with a panel: [`LANES`] elements for each row.
    pub fn strip(s: &Strip<'_>, out: &mut [f32]) {
        match (s.form.wide, s.rows) {
            (false, 1) => sums_of::<4, 1>(s, out),
            (false, _) => sums_of::<4, TOGETHER>(s, out),
            (true, 1) => sums_of::<8, 1>(s, out),
            (true, _) => sums_of::<8, TOGETHER>(s, out),
        }
    }
}

/// Number `j` of sixteen words, where it stands.
#[inline(always)]
fn numbers<const BITS: usize>(w: &[u32; LANES], j: usize) -> [f32; LANES] {
    match (BITS, j) {
        (4, 7) => array(|i| (w[i] >> 28) as i32 as f32),
        (4, _) => array(|i| (w[i] & (15 << (4 * j))) as i32 as f32),
        (_, 3) => array(|i| ((w[i] as i32) >> 24) as f32),
        (_, _) => array(|i| ((w[i] << (24 - 8 * j)) & 0xFF00_0000) as i32 as f32),
    }
}

#[inline(always)]
fn sums_of<const BITS: usize, const M: usize>(s: &Strip<'_>, out: &mut [f32]) {
    let (form, groups) = (s.form, s.factors.lines.len() / M / s.form.group);
    let (size, depth) = (form.words(), groups * form.group);
    let panel = &s.panel[..groups * size];
    let lines: [&[f32]; M] = array(|r| &s.factors.lines[r * depth..][..depth]);
    let totals: [&[f32]; M] = array(|r| &s.factors.sums[r * groups..][..groups]);
    let mut sums = [[0f32; LANES]; M];
    for g in 0..groups {
        let at = &panel[g * size..][..size];
        let (head, words) = at.split_at(form.head());
        let x: [&[f32]; M] = array(|r| &lines[r][g * form.group..][..form.group]);
        prefetch(head, AHEAD);
        let of_group = group::<BITS, M>(words, x);
        let (by, o) = (scales(form, at), offsets(form, at));
        for r in 0..M {
            add(form.offset, &mut sums[r], &of_group[r], &by, &o, totals[r][g]);
        }
    }
    for r in 0..M {
        out[r * LANES..][..LANES].copy_from_slice(&sums[r]);
    }
}

/// The sums of a group for each row: four for every number of a panel, by its position modulo four, so that fused multiply-adds need not wait for each
/// other. Two rows take two at a time, since there are registers for no more.
#[inline(always)]
fn group<const BITS: usize, const M: usize>(words: &[u32], x: [&[f32]; M]) -> [[f32; LANES]; M] {
    let mut sums = [[[0f32; LANES]; 4]; M];
    match M {
        1 => positions::<BITS, M, 0, 4>(words, x, &mut sums),
        _ => {
            positions::<BITS, M, 0, 2>(words, x, &mut sums);
            positions::<BITS, M, 2, 4>(words, x, &mut sums);
        }
    }
    array(|r| {
        let [a, b, c, d] = &sums[r];
        array(|i| (a[i] + c[i]) + (b[i] + d[i]))
    })
}

/// Adds the products at the positions `FROM..TO` modulo four.
// Loops count: iterators over arrays of arrays are not unrolled, and what stays in memory is not computed in vectors.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "as said above")]
fn positions<const BITS: usize, const M: usize, const FROM: usize, const TO: usize>(
    words: &[u32],
    x: [&[f32]; M],
    sums: &mut [[[f32; LANES]; 4]; M],
) {
    let per = 32 / BITS;
    for (t, w) in words.as_chunks::<LANES>().0.iter().enumerate() {
        if FROM == 0 {
            prefetch(w, AHEAD);
        }
        let x: [&[f32]; M] = array(|r| &x[r][t * per..][..per]);
        for j in 0..per {
            if (FROM..TO).contains(&(j % 4)) {
                let n = numbers::<BITS>(w, j);
                for r in 0..M {
                    let b = x[r][j];
                    let sum = &mut sums[r][j % 4];
                    for i in 0..LANES {
                        sum[i] = n[i].mul_add(b, sum[i]);
                    }
                }
            }
        }
    }
}

/// Adds the sums of a group, scaled, and what its offsets are of the sum of all factors.
#[inline(always)]
pub fn add(
    offset: Offset,
    sums: &mut [f32; LANES],
    group: &[f32; LANES],
    by: &[f32; LANES],
    o: &[f32; LANES],
    total: f32,
) {
    match offset {
        Offset::None => {
            for i in 0..LANES {
                sums[i] = group[i].mul_add(by[i], sums[i]);
            }
        }
        Offset::Same(_) | Offset::Bytes | Offset::Less => {
            for i in 0..LANES {
                sums[i] = (-o[i]).mul_add(total, group[i]).mul_add(by[i], sums[i]);
            }
        }
        Offset::Half | Offset::Single => {
            for i in 0..LANES {
                sums[i] = o[i].mul_add(total, group[i].mul_add(by[i], sums[i]));
            }
        }
    }
}
