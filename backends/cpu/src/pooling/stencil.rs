//! Separable pooling of planes: reduces over planes and down the columns first, then along the rows.
//!
//! With a stride, columns are sorted by phase, so that neighbouring results read neighbouring elements. The maximum is taken of integers in the
//! order of the floats, with NaN largest: one instruction per tap.

use crate::conv::padded_frame::{every_second, three};
use crate::conv::window::Window;
use crate::runtime::buffer::with_scratch;
use bytemuck::Pod;
use mlc_vector::pools::{PoolPlane, Pooling, pool_planes};
use mlc_vector::simd;

/// Results of a row that are computed at once, and elements that may be read beyond the end of a row.
const CHUNK: usize = 32;
/// Elements that windows may reach for each of input and result.
const SPARSE: usize = 8;
/// Planes of fewer elements are always worth it.
const LEAST: usize = 1 << 16;

/// Rows that are joined at once.
const ROWS: usize = 9;

/// A window over one to three axes: planes, rows and columns.
#[derive(Clone, Debug)]
pub struct Planes {
    from: [usize; 3],
    to: [usize; 3],
    size: [usize; 3],
    stride: [usize; 3],
    dilation: [usize; 3],
    low: [i64; 3],
    /// Columns of one residue that windows reach, those outside of the input included.
    lane: usize,
    /// For all rows of results, where the rows begin that their windows join, and how many these are up to each; none if they are too many.
    rows: Option<(Vec<usize>, Vec<usize>)>,
}

impl Planes {
    /// The planes of a window with one to three axes; none if windows would mostly lie outside of the input.
    pub fn of(w: &Window) -> Option<Planes> {
        let (from, to, size) = (three(&w.from, 1)?, three(&w.to, 1)?, three(&w.size, 1)?);
        let (stride, dilation) = (three(&w.stride, 1)?, three(&w.dilation, 1)?);
        let low = three(&w.low, 0)?;
        let reach = (to[2].max(1) - 1) * stride[2] + (size[2].max(1) - 1) * dilation[2] + 1;
        let lane = reach.div_ceil(stride[2]);
        let worth = (w.inputs().saturating_add(w.outputs())).saturating_mul(SPARSE).max(LEAST);
        let all = lane.checked_mul(stride[2])?.checked_mul(to[0])?.checked_mul(to[1])?;
        if all > worth || w.taps() > worth {
            return None;
        }
        let mut planes = Planes { from, to, size, stride, dilation, low, lane, rows: None };
        let (high, (_, skip, _)) = (planes.high(), planes.columns());
        if size[0] * size[1] <= LEAST / high.max(1) {
            let (mut starts, mut ends) = (Vec::new(), Vec::new());
            for y in 0..high {
                starts.extend(planes.starts(y, skip));
                ends.push(starts.len());
            }
            planes.rows = Some((starts, ends));
        }
        Some(planes)
    }

    /// The windows as the vector kernel wants them; none where it has no loop for their stride.
    fn pooled(&self) -> Option<PoolPlane<'_>> {
        let (starts, ends) = self.rows.as_ref()?;
        let (place, _, seen) = self.columns();
        let (taps, apart, stride, wide) =
            (self.size[2], self.dilation[2], self.stride[2], self.to[2]);
        let known = matches!(stride, 1 | 2) && taps > 0 && !ends.is_empty() && wide > 0;
        known.then_some(PoolPlane { starts, ends, seen, place, taps, apart, stride, wide })
    }

    /// Columns that windows reach, of all residues.
    fn pitch(&self) -> usize {
        self.lane * self.stride[2]
    }

    /// Rows of results, of all planes.
    fn high(&self) -> usize {
        self.to[0] * self.to[1]
    }

    /// Elements that are held at once.
    fn joined(&self) -> usize {
        self.pitch() * self.high() + CHUNK
    }

    /// Where the rows begin that the windows of row `y` of the results join, column `skip` of each.
    #[inline(always)]
    fn starts(&self, y: usize, skip: usize) -> impl Iterator<Item = usize> + Clone {
        let ([_, high, wide], y0) = (self.from, y % self.to[1]);
        let planes = self.taps(0, y / self.to[1]);
        planes.flat_map(move |z| self.taps(1, y0).map(move |y| (z * high + y) * wide + skip))
    }

    /// Which lines of an axis the window of result `i` reads.
    #[inline(always)]
    fn taps(&self, axis: usize, i: usize) -> impl Iterator<Item = usize> + Clone {
        let (by, n) = (self.dilation[axis], self.from[axis]);
        let first = (i * self.stride[axis]) as i64 - self.low[axis];
        let all = (0..self.size[axis]).map(move |t| first + (t * by) as i64);
        all.filter(move |r| (0..n as i64).contains(r)).map(|r| r as usize)
    }

    /// Bytes that a plane is worked in.
    pub fn scratch(&self) -> u64 {
        4 * (self.from.iter().product::<usize>() + 2 * self.joined()) as u64
    }

    /// Where the first column of the input is in a row, the first column that is seen, and how many are.
    fn columns(&self) -> (usize, usize, usize) {
        let (skip, to) = ((-self.low[2]).max(0) as usize, self.low[2].max(0) as usize);
        let seen = self.from[2].saturating_sub(skip).min(self.pitch().saturating_sub(to));
        (to, skip, seen)
    }
}

/// The joins of the first `T` of the rows that begin there.
#[inline(always)]
fn join_rows<X: Pod, const T: usize>(
    x: &[X],
    starts: [usize; ROWS],
    out: &mut [X],
    f: impl Fn(X, X) -> X,
) {
    /// Elements of a vector, or of a part of it.
    const LANES: usize = 16;
    let n = out.len();
    let mut at = 0;
    while at < n {
        // The last vector overlaps the one before it.
        let from = if n >= LANES { at.min(n - LANES) } else { at };
        let Some(to) = out[from..].first_chunk_mut::<LANES>() else { break };
        let mut acc = [X::zeroed(); LANES];
        for (t, start) in starts.iter().take(T).enumerate() {
            let Some(row) = x[start + from..].first_chunk::<LANES>() else { return };
            for j in 0..LANES {
                acc[j] = if t == 0 { row[j] } else { f(acc[j], row[j]) };
            }
        }
        // Element by element, the vector stays in a register.
        to.iter_mut().zip(acc).for_each(|(o, v)| *o = v);
        at = from + LANES;
    }
    for (j, o) in out.iter_mut().enumerate().skip(at) {
        *o = x[starts[0] + j];
        for start in &starts[1..T] {
            *o = f(*o, x[start + j]);
        }
    }
}

/// All results of `rows`, in which `T` taps see theirs, or any number of taps if `T` is 0, from `none` on.
#[inline(always)]
fn join_columns<X: Pod, const T: usize>(
    p: &Planes,
    rows: &[X],
    taps: &[usize],
    none: X,
    out: &mut [X],
    f: impl Fn(X, X) -> X,
) {
    let mut known = [0; T];
    known.copy_from_slice(&taps[..T]);
    let taps = if T > 0 { &known[..] } else { taps };
    let wide = p.to[2];
    for y in 0..p.high() {
        let mut x = 0;
        while x < wide {
            let (row, out) = (&rows[y * p.lane + x..], &mut out[y * wide + x..]);
            x += match wide - x {
                ..=16 => chunk::<X, 16>(row, taps, none, out, &f),
                _ => chunk::<X, CHUNK>(row, taps, none, out, &f),
            };
        }
    }
}

/// The first `C` results of `out`, and that number. What lies beyond the row is written again by the next one.
#[inline(always)]
fn chunk<X: Pod, const C: usize>(
    row: &[X],
    taps: &[usize],
    none: X,
    out: &mut [X],
    f: &impl Fn(X, X) -> X,
) -> usize {
    let mut acc = [none; C];
    for &tap in taps {
        let Some(next) = row[tap..].first_chunk::<C>() else { return C };
        for j in 0..C {
            acc[j] = f(acc[j], next[j]);
        }
    }
    match out.first_chunk_mut::<C>() {
        // Element by element, the vector stays in a register.
        Some(part) =>
        {
            #[allow(clippy::manual_memcpy, reason = "a copy would go through memory")]
            for j in 0..C {
                part[j] = acc[j];
            }
        }
        None => out.iter_mut().zip(acc).for_each(|(o, v)| *o = v),
    }
    C
}

/// All results of a plane; `none` joins to the other operand. What `held` and `sorted` hold does not matter.
#[inline(always)]
fn each<X: Pod>(
    p: &Planes,
    x: &[X],
    none: X,
    f: impl Fn(X, X) -> X + Copy,
    [held, sorted]: [&mut [X]; 2],
    taps: &mut [usize],
    out: &mut [X],
) {
    let (pitch, (place, skip, seen)) = (p.pitch(), p.columns());
    for y in 0..p.high() {
        let line = &mut held[y * pitch..][..pitch];
        line[..place].fill(none);
        line[place + seen..].fill(none);
        let line = &mut line[place..place + seen];
        let inside = p.starts(y, skip);
        let mut starts = [0; ROWS];
        let count = inside.clone().zip(0..).fold(0, |_, (start, i)| {
            starts.get_mut(i).into_iter().for_each(|s| *s = start);
            i + 1
        });
        match count {
            1 => join_rows::<X, 1>(x, starts, line, f),
            2 => join_rows::<X, 2>(x, starts, line, f),
            3 => join_rows::<X, 3>(x, starts, line, f),
            4 => join_rows::<X, 4>(x, starts, line, f),
            5 => join_rows::<X, 5>(x, starts, line, f),
            6 => join_rows::<X, 6>(x, starts, line, f),
            8 => join_rows::<X, 8>(x, starts, line, f),
            9 => join_rows::<X, 9>(x, starts, line, f),
            _ => {
                line.fill(none);
                for start in inside {
                    line.iter_mut().zip(&x[start..]).for_each(|(o, &v)| *o = f(*o, v));
                }
            }
        }
    }
    let by = p.stride[2];
    let all = p.lane * p.high();
    let rows: &[X] = match by {
        1 => held,
        _ => {
            for q in 0..by {
                let to = &mut sorted[q * all..][..all];
                match (by, bytemuck::try_cast_slice::<X, f32>(&held[q..])) {
                    (2, Ok(from)) => every_second(bytemuck::cast_slice_mut(to), from),
                    _ => to.iter_mut().zip(held[q..].iter().step_by(by)).for_each(|(o, v)| *o = *v),
                }
            }
            sorted
        }
    };
    for (t, tap) in taps.iter_mut().enumerate() {
        let at = t * p.dilation[2];
        *tap = at % by * all + at / by;
    }
    match taps.len() {
        2 => join_columns::<X, 2>(p, rows, taps, none, out, f),
        3 => join_columns::<X, 3>(p, rows, taps, none, out, f),
        5 => join_columns::<X, 5>(p, rows, taps, none, out, f),
        _ => join_columns::<X, 0>(p, rows, taps, none, out, f),
    }
}

/// The sum of every window of planes, one after the other.
pub fn sums(p: &Planes, x: &[f32], out: &mut [f32]) {
    let (size, results) = (p.from.iter().product(), p.high() * p.to[2]);
    if let Some(pooled) = p.pooled() {
        return with_scratch::<f32, 1, _>([pooled.line()], |[line]| {
            pool_planes(Pooling::Sum, pooled, x, size, line, out);
        });
    }
    for (i, out) in out.chunks_exact_mut(results.max(1)).enumerate() {
        let x = &x[i * size..][..size];
        with_scratch::<f32, 2, _>([p.joined(), p.joined()], |held| {
            with_scratch::<usize, 1, _>([p.size[2]], |[taps]| sums_in(p, x, held, taps, out));
        });
    }
}

/// The largest element of every window of planes, one after the other; NaN if there is one.
pub fn maxima(p: &Planes, x: &[f32], out: &mut [f32]) {
    let (size, results) = (p.from.iter().product(), p.high() * p.to[2]);
    for (i, out) in out.chunks_exact_mut(results.max(1)).enumerate() {
        let x = &x[i * size..][..size];
        match p.pooled().filter(|_| is_plain(x)) {
            Some(pooled) => with_scratch::<f32, 1, _>([pooled.line()], |[line]| {
                pool_planes(Pooling::Largest, pooled, x, size, line, out);
            }),
            None => with_scratch::<i32, 3, _>([x.len(), p.joined(), p.joined()], |held| {
                with_scratch::<usize, 1, _>([p.size[2]], |[taps]| maxima_in(p, x, held, taps, out));
            }),
        }
    }
}

simd! {
    /// True if there is neither NaN nor a negative zero.
    fn is_plain(x: &[f32]) -> bool {
        let odd = |v: f32| v.is_nan() as u32 | (v.to_bits() == 1 << 31) as u32;
        x.iter().fold(0, |any, &v| any | odd(v)) == 0
    }
}

// What is called for every vector level allocates nothing: closures would leave the level.
simd! {
    fn sums_in(p: &Planes, x: &[f32], held: [&mut [f32]; 2], taps: &mut [usize], out: &mut [f32]) {
        each::<f32>(p, x, 0.0, |a, v| a + v, held, taps, out);
    }
}

/// The integer that stands where the float does in their order, NaN last; and back.
#[inline(always)]
fn turned(bits: i32) -> i32 {
    bits ^ ((bits >> 31) & i32::MAX)
}

simd! {
    fn maxima_in(p: &Planes, x: &[f32], held: [&mut [i32]; 3], taps: &mut [usize], out: &mut [f32]) {
        let [ordered, a, b] = held;
        for (o, v) in ordered.iter_mut().zip(x) {
            let known = if v.is_nan() { f32::NAN.abs() } else { *v };
            *o = turned(known.to_bits() as i32);
        }
        let out: &mut [i32] = bytemuck::cast_slice_mut(out);
        let lowest = turned(f32::NEG_INFINITY.to_bits() as i32);
        each::<i32>(p, ordered, lowest, i32::max, [a, b], taps, out);
        out.iter_mut().for_each(|v| *v = turned(*v));
    }
}
