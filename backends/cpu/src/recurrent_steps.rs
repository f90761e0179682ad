//! The steps of recurrent layers with activations of choice, clipped sums and sequences of different lengths. f32.
//!
//! Results that nothing reads are the places that steps work in: two of each, so that a step has those of the one before.

use super::buffer::with_scratch;
use super::gemm::{Finish, GemmSizes, Left, Product, Right, gemm};
use super::launch::{Array, Context, Launch, LaunchSite, Maker};
use super::math::{exp, log, maximum, minimum, tanh};
use super::recurrent::{Ready, Weight, add_products, by, multiply_by};
use super::simd::simd;
use super::threads::{SharedSlice, Threads};
use super::vector::functions::{Function, map};
use mlc_dsl::ir::{Attr, DType};
use smallvec::SmallVec;

/// Long short-term memory.
pub const LSTM: Maker = |s| make(s, |s| Some(Cell::Lstm { coupled: s.bool(1)? }));
/// Gated recurrent unit.
pub const GRU: Maker = |s| make(s, |s| Some(Cell::Gru { reset_after: s.int(1)? != 0 }));
/// Simple recurrence.
pub const SIMPLE: Maker = |s| make(s, |_| Some(Cell::Simple));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Lstm { coupled: bool },
    Gru { reset_after: bool },
    Simple,
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Cell::Lstm { .. } => 4,
            Cell::Gru { .. } => 3,
            Cell::Simple => 1,
        }
    }

    /// Where the numbers of the activations are among the arguments; behind them are two scales of each.
    fn kinds(self) -> usize {
        match self {
            Cell::Lstm { .. } => 6,
            Cell::Gru { .. } | Cell::Simple => 4,
        }
    }

    /// Which result is the state, and how many activations a direction has.
    fn state(self) -> (usize, usize) {
        match self {
            Cell::Lstm { .. } => (6, 3),
            Cell::Gru { .. } => (6, 2),
            Cell::Simple => (1, 1),
        }
    }
}

struct Steps {
    cell: Cell,
    /// Steps, directions, sequences, elements of a state.
    extents: [usize; 4],
    /// What the state is multiplied with, by directions; of the hidden gate of a gated unit once more by itself.
    weights: Vec<(Weight, Option<Weight>)>,
    most: f32,
    at: Vec<usize>,
    /// Which results something reads.
    read: SmallVec<[bool; 8]>,
}

fn make(
    site: &LaunchSite<'_>,
    cell: impl Fn(&LaunchSite<'_>) -> Option<Cell>,
) -> Option<Box<dyn Launch>> {
    let cell = cell(site)?;
    let [s, d, b, _] = *site.args.first()?.layout.shape.as_slice() else { return None };
    let [_, _, h] = *site.args[1].layout.shape.as_slice() else { return None };
    let kinds = cell.kinds();
    let is_number = |i: usize| if i == kinds { DType::I64 } else { DType::F32 };
    let typed = site.args.iter().enumerate().all(|(i, a)| a.dtype == is_number(i));
    if !typed || !site.args.iter().all(|a| a.layout.is_dense()) || site.args.len() != kinds + 3 {
        return None;
    }
    let most = site.float(0)? as f32;
    let rows = cell.gates() * h;
    let weight = |i: usize| {
        let hidden = (cell == Cell::Gru { reset_after: false })
            .then(|| Weight::new(site, 1, i * rows * h + 2 * h * h, (h, h)));
        (Weight::new(site, 1, i * rows * h, (rows, h)), hidden)
    };
    let at = site.args.iter().map(|a| a.layout.offset).collect();
    let weights = (0..d).map(weight).collect();
    Some(Box::new(Steps { cell, extents: [s, d, b, h], weights, most, at, read: site.read.into() }))
}

/// An activation and its scales.
#[derive(Clone, Copy)]
struct Activation {
    kind: i64,
    alpha: f32,
    beta: f32,
}

/// An activation of every element; `kind` counts as the operators' texts do.
fn activate(f: Activation, x: &[f32], to: &mut [f32]) {
    match f.kind {
        1 => map(Function::Tanh, to, x),
        2 => map(Function::Sigmoid, to, x),
        _ => activate_as_chosen(f, x, to),
    }
}

simd! {
    /// The activations that are seldom chosen.
    fn activate_as_chosen(f: Activation, x: &[f32], to: &mut [f32]) {
        let (alpha, beta) = (f.alpha, f.beta);
        let pairs = to.iter_mut().zip(x);
        match f.kind {
            0 => pairs.for_each(|(y, &x)| *y = maximum(x, 0.0)),
            3 => pairs.for_each(|(y, &x)| *y = alpha * x + beta),
            4 => pairs.for_each(|(y, &x)| *y = if x >= 0.0 { x } else { alpha * x }),
            5 => pairs.for_each(|(y, &x)| *y = if x >= alpha { x } else { 0.0 }),
            6 => pairs.for_each(|(y, &x)| *y = alpha * tanh(beta * x)),
            7 => pairs.for_each(|(y, &x)| *y = minimum(maximum(alpha * x + beta, 0.0), 1.0)),
            8 => pairs.for_each(|(y, &x)| *y = if x >= 0.0 { x } else { alpha * (exp(x) - 1.0) }),
            9 => pairs.for_each(|(y, &x)| *y = x / (1.0 + x.abs())),
            _ => pairs.for_each(|(y, &x)| {
                // The exponential of what is not positive does not overflow; a small one is its own logarithm of one more.
                let e = exp(-x.abs());
                let small = if e < 1e-4 { e - 0.5 * e * e } else { log(1.0 + e) };
                *y = maximum(x, 0.0) + small;
            }),
        }
    }
}

simd! {
    /// Sums of two, the second one weighed, between `-most` and `most`.
    fn clipped(most: f32, x: &[f32], weights: &[f32], y: &[f32], to: &mut [f32]) {
        for (to, (x, (w, y))) in to.iter_mut().zip(x.iter().zip(weights.iter().zip(y))) {
            *to = minimum(maximum(x + w * y, -most), most);
        }
    }
}

simd! {
    /// Elements between `-most` and `most`.
    fn clip(most: f32, x: &[f32], to: &mut [f32]) {
        to.iter_mut().zip(x).for_each(|(to, &x)| *to = minimum(maximum(x, -most), most));
    }
}

simd! {
    /// What a share is kept of and the rest is new.
    fn mix(share: &[f32], new: &[f32], old: &[f32], to: &mut [f32]) {
        for (to, (share, (new, old))) in to.iter_mut().zip(share.iter().zip(new.iter().zip(old))) {
            *to = (1.0 - share) * new + share * old;
        }
    }
}

simd! {
    fn add(x: &[f32], to: &mut [f32]) {
        to.iter_mut().zip(x).for_each(|(to, x)| *to += x);
    }
}

simd! {
    /// Three summands, one after the other.
    fn add_three(x: &[f32], y: &[f32], z: &[f32], to: &mut [f32]) {
        for (to, (x, (y, z))) in to.iter_mut().zip(x.iter().zip(y.iter().zip(z))) {
            *to = *to + x + y + z;
        }
    }
}

simd! {
    fn multiply(x: &[f32], y: &[f32], to: &mut [f32]) {
        to.iter_mut().zip(x.iter().zip(y)).for_each(|(to, (x, y))| *to = x * y);
    }
}

impl Launch for Steps {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let [_, d, b, h] = self.extents;
        let outs: SmallVec<[SharedSlice<'_, f32>; 8]> =
            outputs.iter_mut().map(|o| SharedSlice::new(bytemuck::cast_slice_mut(o))).collect();
        // A state without elements has no lines.
        if b * h == 0 {
            return Ok(());
        }
        cx.threads.each(d, |direction| {
            let way = Way { steps: self, inputs, outs: &outs, d: direction, threads: cx.threads };
            match self.cell {
                Cell::Lstm { coupled } => way.lstm(coupled),
                Cell::Gru { reset_after } => way.gru(reset_after),
                Cell::Simple => way.simple(),
            }
        });
        Ok(())
    }
}

/// A direction of a run.
struct Way<'a> {
    steps: &'a Steps,
    inputs: &'a [Array<'a>],
    outs: &'a [SharedSlice<'a, f32>],
    d: usize,
    threads: &'a Threads,
}

impl<'a> Way<'a> {
    /// This direction's share of an argument: `len` elements.
    fn arg(&self, k: usize, len: usize) -> &'a [f32] {
        &self.inputs[k].typed::<f32>()[self.steps.at[k] + self.d * len..][..len]
    }

    fn activation(&self, k: usize) -> Activation {
        let (first, (_, count)) = (self.steps.cell.kinds(), self.steps.cell.state());
        let kinds = &self.inputs[first].typed::<i64>()[self.steps.at[first] + self.d * count..];
        let scale = |i: usize| self.arg(first + i, count)[k];
        Activation { kind: kinds[k], alpha: scale(1), beta: scale(2) }
    }

    /// A result at a step: lines of `width` elements. Only one of them is alive at once.
    fn out(&self, k: usize, t: usize, width: usize) -> &'a mut [f32] {
        let [_, d, b, _] = self.steps.extents;
        let t = if self.steps.read[k] { t } else { t % 2 };
        // SAFETY: every direction writes its own part of each step, and callers hold a part of each result at a time.
        unsafe { self.outs[k].part((t * d + self.d) * b * width, b * width) }
    }

    /// A result at the step before; before the first one, the argument.
    fn before(&self, k: usize, t: usize, arg: usize) -> &'a [f32] {
        let [_, _, b, h] = self.steps.extents;
        match t {
            0 => self.arg(arg, b * h),
            _ => self.out(k, t - 1, h),
        }
    }

    /// What the inputs contribute at a step.
    fn x(&self, t: usize) -> &'a [f32] {
        let [_, d, b, h] = self.steps.extents;
        let len = b * self.steps.cell.gates() * h;
        &self.inputs[0].typed::<f32>()[self.steps.at[0] + (t * d + self.d) * len..][..len]
    }

    fn product(&self, from: &[f32], weight: &Ready<'_>, to: &mut [f32]) {
        let [_, _, m, k] = self.steps.extents;
        let product =
            |_| Product { left: Left::Plain(by(from, k)), right: Right::Packed(weight), at: 0 };
        let sizes = GemmSizes { m, n: weight.n, k };
        gemm(self.threads, sizes, 1, product, to, Finish::Nothing);
    }

    fn lstm(&self, coupled: bool) {
        let [s, _, _, n] = self.steps.extents;
        let (rows, most) = (4 * n, self.steps.most);
        let (bias, peepholes) = (self.arg(2, 2 * rows), self.arg(5, 3 * n));
        let (of_input, of_state) = bias.split_at(rows);
        let [gate, new, shown] = [0, 1, 2].map(|k| self.activation(k));
        let weight = self.steps.weights[self.d].0.ready(self.inputs);
        for t in 0..s {
            let (h, c) = (self.before(6, t, 3), self.before(3, t, 4));
            let [u, v, gates] = [0, 1, 2].map(|k| self.out(k, t, rows));
            let [cells, w, o, y] = [3, 4, 5, 6].map(|k| self.out(k, t, n));
            self.product(h, &weight, u);
            for (i, x) in self.x(t).chunks_exact(rows).enumerate() {
                let (wide, line) = (i * rows..(i + 1) * rows, i * n..(i + 1) * n);
                let (u, v, s) = (&mut u[wide.clone()], &mut v[wide.clone()], &mut gates[wide]);
                add_three(x, of_input, of_state, u);
                let old = &c[line.clone()];
                for (k, (u, v)) in u.chunks_exact(n).zip(v.chunks_exact_mut(n)).enumerate() {
                    match k {
                        0 | 2 => clipped(most, u, &peepholes[k * n..][..n], old, v),
                        _ => clip(most, u, v),
                    }
                }
                activate(gate, &v[..3 * n], &mut s[..3 * n]);
                activate(new, &v[3 * n..], &mut s[3 * n..]);
                let cell = &mut cells[line.clone()];
                match coupled {
                    true => mix(&s[..n], old, &s[3 * n..], cell),
                    false => {
                        multiply(&s[2 * n..3 * n], old, cell);
                        add_products(&s[..n], &s[3 * n..], cell);
                    }
                }
                let (w, o) = (&mut w[line.clone()], &mut o[line.clone()]);
                clipped(most, &u[n..2 * n], &peepholes[n..2 * n], cell, w);
                activate(gate, w, o);
                let y = &mut y[line];
                activate(shown, cell, y);
                multiply_by(o, y);
            }
        }
    }

    fn gru(&self, reset_after: bool) {
        let [s, _, b, n] = self.steps.extents;
        let (rows, most) = (3 * n, self.steps.most);
        let (of_input, of_state) = self.arg(2, 2 * rows).split_at(rows);
        let [gate, new] = [0, 1].map(|k| self.activation(k));
        let (weight, hidden) = &self.steps.weights[self.d];
        let (weight, hidden) =
            (weight.ready(self.inputs), hidden.as_ref().map(|w| w.ready(self.inputs)));
        with_scratch::<f32, 1, _>([b * n], |[passed]| {
            for t in 0..s {
                let h = self.before(6, t, 3);
                let [u, z, v, gates] = [0, 1, 2, 3].map(|k| self.out(k, t, rows));
                let [w, news, y] = [4, 5, 6].map(|k| self.out(k, t, n));
                self.product(h, &weight, z);
                for (i, x) in self.x(t).chunks_exact(rows).enumerate() {
                    let wide = i * rows..(i + 1) * rows;
                    let (u, z) = (&mut u[wide.clone()], &mut z[wide.clone()]);
                    u.copy_from_slice(x);
                    add(of_input, u);
                    add(of_state, z);
                    let v = &mut v[wide.clone()];
                    v.copy_from_slice(u);
                    add(z, v);
                    v.iter_mut().for_each(|v| *v = minimum(maximum(*v, -most), most));
                    activate(gate, v, &mut gates[wide]);
                }
                let reset = |i: usize| i * rows + n..i * rows + 2 * n;
                if let Some(hidden) = &hidden {
                    for (i, (to, h)) in
                        passed.chunks_exact_mut(n).zip(h.chunks_exact(n)).enumerate()
                    {
                        multiply(h, &gates[reset(i)], to);
                    }
                    self.product(passed, hidden, w);
                }
                for i in 0..b {
                    let (late, line) = (i * rows + 2 * n..(i + 1) * rows, i * n..(i + 1) * n);
                    let w = &mut w[line.clone()];
                    match reset_after {
                        true => multiply(&gates[reset(i)], &z[late.clone()], w),
                        false => add(&of_state[2 * n..], w),
                    }
                    add(&u[late], w);
                    w.iter_mut().for_each(|w| *w = minimum(maximum(*w, -most), most));
                    let news = &mut news[line.clone()];
                    activate(new, w, news);
                    mix(&gates[i * rows..][..n], news, &h[line.clone()], &mut y[line]);
                }
            }
        });
    }

    fn simple(&self) {
        let [s, _, _, n] = self.steps.extents;
        let (of_input, of_state) = self.arg(2, 2 * n).split_at(n);
        let f = self.activation(0);
        let weight = self.steps.weights[self.d].0.ready(self.inputs);
        for t in 0..s {
            let h = self.before(1, t, 3);
            let [v, y] = [0, 1].map(|k| self.out(k, t, n));
            self.product(h, &weight, v);
            let lines = v.chunks_exact_mut(n).zip(y.chunks_exact_mut(n));
            for ((v, y), x) in lines.zip(self.x(t).chunks_exact(n)) {
                [x, of_input, of_state].iter().for_each(|x| add(x, v));
                v.iter_mut()
                    .for_each(|v| *v = minimum(maximum(*v, -self.steps.most), self.steps.most));
                activate(f, v, y);
            }
        }
    }
}

/// What a sequence's steps are moved by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Move {
    /// Steps in the order of time, or back.
    InTime,
    /// The last step alone.
    Last,
}

/// Steps of sequences of different lengths in the order of time, or back.
pub const IN_TIME: Maker = |s| moved(s, Move::InTime);
/// The last step of each of them.
pub const LAST: Maker = |s| moved(s, Move::Last);

struct Moved {
    what: Move,
    /// Steps, directions, sequences, elements of a step.
    extents: [usize; 4],
    /// Whether each direction runs backwards.
    reverse: Vec<bool>,
    at: Vec<usize>,
}

fn moved(site: &LaunchSite<'_>, what: Move) -> Option<Box<dyn Launch>> {
    let (lengths, data) = site.args.split_last()?;
    let dense = site.args.iter().all(|a| a.layout.is_dense());
    if !dense || lengths.dtype != DType::I64 || data.iter().any(|a| a.dtype != DType::F32) {
        return None;
    }
    let [s, d, b, g] = *site.args[0].layout.shape.as_slice() else { return None };
    let reverse = match (what, site.attrs) {
        (Move::InTime, [Attr::Str(w)]) => match (w.as_str(), d) {
            ("forward", 1) => vec![false],
            ("reverse", 1) => vec![true],
            ("bidirectional", 2) => vec![false, true],
            _ => return None,
        },
        (Move::Last, []) => vec![false; d],
        _ => return None,
    };
    let at = site.args.iter().map(|a| a.layout.offset).collect();
    Some(Box::new(Moved { what, extents: [s, d, b, g], reverse, at }))
}

impl Launch for Moved {
    fn run(
        &self,
        _: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let [steps, d, b, g] = self.extents;
        let x = &inputs[0].typed::<f32>()[self.at[0]..];
        let last = inputs.len() - 1;
        let lengths = &inputs[last].typed::<i64>()[self.at[last]..];
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let step = |t: i64, line: usize| {
            let t = usize::try_from(t).ok().filter(|&t| t < steps)?;
            Some(&x[(t * d * b + line) * g..][..g])
        };
        for (i, to) in out.chunks_exact_mut(g.max(1)).enumerate() {
            let (t, line) = (i / (d * b), i % (d * b));
            let length = lengths[line % b];
            let from = match self.what {
                Move::InTime if self.reverse[line / b] && (t as i64) < length => {
                    step(length - 1 - t as i64, line).ok_or_else(|| {
                        format!("a sequence of {length} steps is longer than all {steps}")
                    })?
                }
                Move::InTime => &x[i * g..][..g],
                Move::Last => match step(length.wrapping_sub(1), line) {
                    Some(y) => y,
                    None => &inputs[1].typed::<f32>()[self.at[1] + line * g..][..g],
                },
            };
            to.copy_from_slice(from);
        }
        Ok(())
    }
}
