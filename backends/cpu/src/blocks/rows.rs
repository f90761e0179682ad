//! Products of few rows with packed numbers of few bits, whose words are read once, from memory.
//!
//! A number is left where it stands in its word: turned into a real number there it is so many times as large, and the factors are so many times
//! smaller. Every group is summed by itself and then scaled; how many rows are computed together changes no bit.

use super::panels::{BlockPanels, Form, LANES, Offset, offsets, scales};
use crate::simd::simd;

/// Most rows that are computed together.
pub const TOGETHER: usize = 4;

/// Rows of factors in the order of the places of a packed matrix.
pub struct Factors<'a> {
    /// Lines of as many factors as there are places, made smaller by where their numbers stand.
    pub lines: &'a [f32],
    /// The sum of each group of factors.
    pub sums: &'a [f32],
}

/// Writes the line and the sums of one row whose factors `at` says.
pub fn prepare(w: &BlockPanels, at: impl Fn(usize) -> f32, line: &mut [f32], sums: &mut [f32]) {
    let group = w.form.group;
    let (by, per) = (smaller(w.form), 32 / w.form.bits());
    for (g, (line, sum)) in line.chunks_exact_mut(group).zip(sums).enumerate() {
        let mut all = 0.0;
        for (i, to) in line.iter_mut().enumerate() {
            let x = match &w.order {
                None => at(g * group + i),
                Some(order) => order[g * group + i].map_or(0.0, |k| at(k as usize)),
            };
            all += x;
            *to = x * by[i % per];
        }
        *sum = all;
    }
}

/// What makes up for where a number stands in its word.
fn smaller(form: Form) -> [f32; 8] {
    std::array::from_fn(|j| match form.wide {
        // All are moved to the top of the word, but for the last, which is moved to the bottom.
        true if j % 4 == 3 => 1.0,
        true => 1.0 / (1 << 24) as f32,
        false if j == 7 => 1.0,
        false => 1.0 / (1u32 << (4 * j)) as f32,
    })
}

/// Some panels and some rows.
pub struct Strip<'a> {
    pub form: Form,
    /// One panel, or two if there is one row.
    pub panels: &'a [&'a [u32]],
    pub factors: Factors<'a>,
    /// Up to [`TOGETHER`].
    pub rows: usize,
}

simd! {
    /// The products of some rows with some panels: [`LANES`] elements for each panel and row.
    pub fn strip(s: &Strip<'_>, out: &mut [f32]) {
        match (s.form.wide, s.rows, s.panels.len()) {
            (false, 1, 1) => sums_of::<4, 1, 1>(s, out),
            (false, 1, _) => sums_of::<4, 1, 2>(s, out),
            (false, 2, _) => sums_of::<4, 2, 1>(s, out),
            (false, 3, _) => sums_of::<4, 3, 1>(s, out),
            (false, ..) => sums_of::<4, 4, 1>(s, out),
            (true, 1, 1) => sums_of::<8, 1, 1>(s, out),
            (true, 1, _) => sums_of::<8, 1, 2>(s, out),
            (true, 2, _) => sums_of::<8, 2, 1>(s, out),
            (true, 3, _) => sums_of::<8, 3, 1>(s, out),
            (true, ..) => sums_of::<8, 4, 1>(s, out),
        }
    }
}

/// Number `j` of sixteen words, where it stands.
#[inline(always)]
fn numbers<const BITS: usize>(words: &[u32; LANES], j: usize) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for (o, &w) in out.iter_mut().zip(words) {
        *o = match (BITS, j) {
            (4, 7) => (w >> 28) as i32 as f32,
            (4, _) => (w & (15 << (4 * j))) as i32 as f32,
            (_, 3) => ((w as i32) >> 24) as f32,
            (_, _) => ((w << (24 - 8 * j)) & 0xFF00_0000) as i32 as f32,
        };
    }
    out
}

#[inline(always)]
fn sums_of<const BITS: usize, const M: usize, const P: usize>(s: &Strip<'_>, out: &mut [f32]) {
    let (form, per) = (s.form, 32 / BITS);
    let (size, head, words) = (form.words(), form.head(), form.group / per);
    let depth = s.factors.lines.len() / M;
    let groups = depth / form.group;
    let panels: [&[u32]; P] = std::array::from_fn(|p| &s.panels[p][..groups * size]);
    let lines: [&[f32]; M] = std::array::from_fn(|r| &s.factors.lines[r * depth..][..depth]);
    let totals: [&[f32]; M] = std::array::from_fn(|r| &s.factors.sums[r * groups..][..groups]);
    let mut sums = [[[0f32; LANES]; M]; P];
    for g in 0..groups {
        let at: [&[u32]; P] = std::array::from_fn(|p| &panels[p][g * size..][..size]);
        let x: [&[f32]; M] = std::array::from_fn(|r| &lines[r][g * form.group..][..form.group]);
        let mut acc = [[[0f32; LANES]; M]; P];
        for t in 0..words {
            let x: [&[f32]; M] = std::array::from_fn(|r| &x[r][t * per..][..per]);
            for j in 0..per {
                for (acc, at) in acc.iter_mut().zip(at) {
                    let words = at[head + t * LANES..][..LANES].try_into().expect("sixteen words");
                    let n = numbers::<BITS>(words, j);
                    for (acc, x) in acc.iter_mut().zip(x) {
                        for i in 0..LANES {
                            acc[i] = n[i].mul_add(x[j], acc[i]);
                        }
                    }
                }
            }
        }
        for ((sums, acc), at) in sums.iter_mut().zip(acc).zip(at) {
            let (by, o) = (scales(form, at), offsets(form, at));
            for ((sums, acc), totals) in sums.iter_mut().zip(acc).zip(totals) {
                let total = totals[g];
                for i in 0..LANES {
                    sums[i] = match form.offset {
                        Offset::None => acc[i].mul_add(by[i], sums[i]),
                        Offset::Same(_) | Offset::Bytes => {
                            (-o[i]).mul_add(total, acc[i]).mul_add(by[i], sums[i])
                        }
                        Offset::Half | Offset::Single => {
                            o[i].mul_add(total, acc[i].mul_add(by[i], sums[i]))
                        }
                    };
                }
            }
        }
    }
    let out = out.as_chunks_mut::<LANES>().0;
    for (to, from) in out.iter_mut().zip(sums.as_flattened()) {
        *to = *from;
    }
}
