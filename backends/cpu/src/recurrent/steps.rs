//! Recurrent layers with chosen activations, clipping and ragged sequences. f32.
//!
//! Sequences are sorted by length, longest first, so that the active ones are the first rows of every product. Results that nothing reads are not
//! written.

use super::{PackedWeight, Weight, add_products, by, mix, multiply_by};
use crate::gemm::{GemmEpilogue, GemmSizes, Left, Product, Right, gemm};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, TensorView};
use crate::runtime::threads::{SharedSlice, Threads};
use mlc_dsl::ir::{Attr, DType};
use mlc_vector::functions::{Function, map};
use mlc_vector::math::{exp, log, maximum, minimum, tanh};
use mlc_vector::simd;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// LSTM.
pub const LSTM: KernelFactory = |s| make(s, |s| Some(Cell::Lstm { coupled: s.bool(1)? }));
/// GRU.
pub const GRU: KernelFactory = |s| make(s, |s| Some(Cell::Gru { reset_after: s.int(1)? != 0 }));
/// Simple RNN.
pub const SIMPLE: KernelFactory = |s| make(s, |_| Some(Cell::Simple));

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

    /// Where the numbers of the activations are among the arguments; behind them are two scales of each, and the lengths of the sequences.
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
    spec: &KernelSpec<'_>,
    cell: impl Fn(&KernelSpec<'_>) -> Option<Cell>,
) -> Option<Box<dyn Kernel>> {
    let cell = cell(spec)?;
    let [s, d, b, _] = *spec.args.first()?.layout.shape.as_slice() else { return None };
    let [_, _, h] = *spec.args[1].layout.shape.as_slice() else { return None };
    let kinds = cell.kinds();
    let is_number = |i: usize| if i == kinds || i == kinds + 3 { DType::I64 } else { DType::F32 };
    let typed = spec.args.iter().enumerate().all(|(i, a)| a.dtype == is_number(i));
    if !typed || !spec.args.iter().all(|a| a.layout.is_dense()) || spec.args.len() != kinds + 4 {
        return None;
    }
    let most = spec.float(0)? as f32;
    let rows = cell.gates() * h;
    let weight = |i: usize| {
        let hidden = (cell == Cell::Gru { reset_after: false })
            .then(|| Weight::new(spec, 1, i * rows * h + 2 * h * h, h, h));
        (Weight::new(spec, 1, i * rows * h, rows, h), hidden)
    };
    let at = spec.args.iter().map(|a| a.layout.offset).collect();
    let weights = (0..d).map(weight).collect();
    Some(Box::new(Steps { cell, extents: [s, d, b, h], weights, most, at, read: spec.read.into() }))
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
    /// What a share is new and the rest is kept of.
    fn take_in(share: &[f32], new: &[f32], old: &mut [f32]) {
        for (old, (share, new)) in old.iter_mut().zip(share.iter().zip(new)) {
            *old = (1.0 - share) * *old + share * new;
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

impl Kernel for Steps {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let [_, d, b, h] = self.extents;
        let outs: SmallVec<[SharedSlice<'_, f32>; 8]> =
            outputs.iter_mut().map(|o| SharedSlice::new(bytemuck::cast_slice_mut(o))).collect();
        // A state without elements has no lines.
        if b * h == 0 {
            return Ok(());
        }
        let last = self.cell.kinds() + 3;
        let lengths = &inputs[last].typed::<i64>()[self.at[last]..][..b];
        with_scratch::<usize, 1, _>([b], |[order]| {
            let order = &mut order[..b];
            order.iter_mut().enumerate().for_each(|(i, line)| *line = i);
            // Unstable sorts allocate nothing.
            order.sort_unstable_by_key(|&line| (Reverse(lengths[line]), line));
            let order = &*order;
            cx.threads.each(d, |direction| {
                let (steps, outs, threads) = (self, &outs, cx.threads);
                let way = Way { steps, inputs, outs, d: direction, order, lengths, threads };
                match self.cell {
                    Cell::Lstm { coupled } => way.lstm(coupled),
                    Cell::Gru { reset_after } => way.gru(reset_after),
                    Cell::Simple => way.simple(),
                }
            });
        });
        Ok(())
    }
}

/// A direction of a run.
struct Way<'a> {
    steps: &'a Steps,
    inputs: &'a [TensorView<'a>],
    outs: &'a [SharedSlice<'a, f32>],
    d: usize,
    /// The sequences, from the longest to the shortest one, and the length of each.
    order: &'a [usize],
    lengths: &'a [i64],
    threads: &'a Threads,
}

impl<'a> Way<'a> {
    /// This direction's share of an argument: `len` elements.
    fn arg(&self, k: usize, len: usize) -> &'a [f32] {
        &self.inputs[k].typed::<f32>()[self.steps.at[k] + self.d * len..][..len]
    }

    /// The lines of a state before the first step, in order.
    fn first(&self, k: usize, to: &mut [f32]) {
        let [_, _, b, h] = self.steps.extents;
        let from = self.arg(k, b * h);
        for (to, line) in to.chunks_exact_mut(h).zip(self.order) {
            to.copy_from_slice(&from[line * h..][..h]);
        }
    }

    fn activation(&self, k: usize) -> Activation {
        let (first, (_, count)) = (self.steps.cell.kinds(), self.steps.cell.state());
        let kinds = &self.inputs[first].typed::<i64>()[self.steps.at[first] + self.d * count..];
        let scale = |i: usize| self.arg(first + i, count)[k];
        Activation { kind: kinds[k], alpha: scale(1), beta: scale(2) }
    }

    /// The sequences that go on at a step, in order. What results have of the others is zero.
    fn going_on(&self, t: usize) -> &'a [usize] {
        let [steps, d, b, _] = self.steps.extents;
        let count = self.order.partition_point(|&line| self.lengths[line] > t as i64);
        for (k, _) in self.steps.read.iter().enumerate().filter(|(_, is_read)| **is_read) {
            let width = self.outs[k].len() / (steps * d * b);
            self.order[count..].iter().for_each(|&line| self.line(k, t, line, width).fill(0.0));
        }
        &self.order[..count]
    }

    /// A line of a result at a step.
    fn line(&self, k: usize, t: usize, line: usize, width: usize) -> &'a mut [f32] {
        let [_, d, b, _] = self.steps.extents;
        // SAFETY: every direction writes its own lines of each step, and callers hold one line of each result at a time.
        unsafe { self.outs[k].part(((t * d + self.d) * b + line) * width, width) }
    }

    /// Writes a line of a result at a step, if something reads that.
    fn keep(&self, k: usize, t: usize, line: usize, values: &[f32]) {
        if self.steps.read[k] {
            self.line(k, t, line, values.len()).copy_from_slice(values);
        }
    }

    /// What the inputs contribute to a line at a step.
    fn x(&self, t: usize, line: usize) -> &'a [f32] {
        let [_, d, b, h] = self.steps.extents;
        let len = self.steps.cell.gates() * h;
        let at = ((t * d + self.d) * b + line) * len;
        &self.inputs[0].typed::<f32>()[self.steps.at[0] + at..][..len]
    }

    /// The products of the first `m` lines.
    fn product(&self, m: usize, from: &[f32], weight: &PackedWeight<'_>, to: &mut [f32]) {
        let [.., k] = self.steps.extents;
        let product =
            |_| Product { left: Left::Plain(by(from, k)), right: Right::Packed(weight), at: 0 };
        let sizes = GemmSizes { m, n: weight.n, k };
        gemm(self.threads, sizes, 1, product, &mut to[..m * weight.n], GemmEpilogue::Identity);
    }

    fn lstm(&self, coupled: bool) {
        let [s, _, b, n] = self.steps.extents;
        let (rows, most) = (4 * n, self.steps.most);
        let (bias, peepholes) = (self.arg(2, 2 * rows), self.arg(5, 3 * n));
        let (of_input, of_state) = bias.split_at(rows);
        let [gate, new, shown] = [0, 1, 2].map(|k| self.activation(k));
        let weight = self.steps.weights[self.d].0.ready(self.inputs);
        let sizes = [b * n, b * n, b * rows, rows, rows, n, n];
        with_scratch::<f32, 7, _>(sizes, |[states, cells, sums, v, gates, w, o]| {
            let (v, gates, w, o) = (&mut v[..rows], &mut gates[..rows], &mut w[..n], &mut o[..n]);
            self.first(3, &mut states[..b * n]);
            self.first(4, &mut cells[..b * n]);
            for t in 0..s {
                let lines = self.going_on(t);
                self.product(lines.len(), states, &weight, sums);
                for (i, &line) in lines.iter().enumerate() {
                    let u = &mut sums[i * rows..][..rows];
                    let (cell, y) = (&mut cells[i * n..][..n], &mut states[i * n..][..n]);
                    add_three(self.x(t, line), of_input, of_state, u);
                    for (k, (u, v)) in u.chunks_exact(n).zip(v.chunks_exact_mut(n)).enumerate() {
                        match k {
                            0 | 2 => clipped(most, u, &peepholes[k * n..][..n], cell, v),
                            _ => clip(most, u, v),
                        }
                    }
                    activate(gate, &v[..3 * n], &mut gates[..3 * n]);
                    activate(new, &v[3 * n..], &mut gates[3 * n..]);
                    let (take, news) = (&gates[..n], &gates[3 * n..]);
                    match coupled {
                        true => take_in(take, news, cell),
                        false => {
                            multiply_by(&gates[2 * n..3 * n], cell);
                            add_products(take, news, cell);
                        }
                    }
                    clipped(most, &u[n..2 * n], &peepholes[n..2 * n], cell, w);
                    activate(gate, w, o);
                    activate(shown, cell, y);
                    multiply_by(o, y);
                    let results = [&*u, v, gates, cell, w, o, y];
                    results.iter().enumerate().for_each(|(k, v)| self.keep(k, t, line, v));
                }
            }
        });
    }

    fn gru(&self, reset_after: bool) {
        let [s, _, b, n] = self.steps.extents;
        let (rows, most) = (3 * n, self.steps.most);
        let (of_input, of_state) = self.arg(2, 2 * rows).split_at(rows);
        let [gate, new] = [0, 1].map(|k| self.activation(k));
        let (weight, hidden) = &self.steps.weights[self.d];
        let (weight, hidden) =
            (weight.ready(self.inputs), hidden.as_ref().map(|w| w.ready(self.inputs)));
        let (all, each) = (b * rows, b * n);
        let sizes = [each, all, all, all, rows, each, each, n];
        with_scratch::<f32, 8, _>(sizes, |[states, z, u, gates, v, passed, w, news]| {
            let (v, news) = (&mut v[..rows], &mut news[..n]);
            self.first(3, &mut states[..each]);
            for t in 0..s {
                let lines = self.going_on(t);
                self.product(lines.len(), states, &weight, z);
                for (i, &line) in lines.iter().enumerate() {
                    let wide = i * rows..(i + 1) * rows;
                    let (u, z) = (&mut u[wide.clone()], &mut z[wide.clone()]);
                    u.copy_from_slice(self.x(t, line));
                    add(of_input, u);
                    add(of_state, z);
                    v.copy_from_slice(u);
                    add(z, v);
                    v.iter_mut().for_each(|v| *v = minimum(maximum(*v, -most), most));
                    let gates = &mut gates[wide];
                    activate(gate, v, gates);
                    let results = [&*u, z, v, gates];
                    results.iter().enumerate().for_each(|(k, v)| self.keep(k, t, line, v));
                }
                let reset = |i: usize| i * rows + n..i * rows + 2 * n;
                if let Some(hidden) = &hidden {
                    for i in 0..lines.len() {
                        let line = i * n..(i + 1) * n;
                        multiply(&states[line.clone()], &gates[reset(i)], &mut passed[line]);
                    }
                    self.product(lines.len(), passed, hidden, w);
                }
                for (i, &line) in lines.iter().enumerate() {
                    let (late, own) = (i * rows + 2 * n..(i + 1) * rows, i * n..(i + 1) * n);
                    let (w, y) = (&mut w[own.clone()], &mut states[own]);
                    match reset_after {
                        true => multiply(&gates[reset(i)], &z[late.clone()], w),
                        false => add(&of_state[2 * n..], w),
                    }
                    add(&u[late], w);
                    w.iter_mut().for_each(|w| *w = minimum(maximum(*w, -most), most));
                    activate(new, w, news);
                    mix(&gates[i * rows..][..n], news, y);
                    let results = [&*w, news, y];
                    results.iter().enumerate().for_each(|(k, v)| self.keep(4 + k, t, line, v));
                }
            }
        });
    }

    fn simple(&self) {
        let [s, _, b, n] = self.steps.extents;
        let most = self.steps.most;
        let (of_input, of_state) = self.arg(2, 2 * n).split_at(n);
        let f = self.activation(0);
        let weight = self.steps.weights[self.d].0.ready(self.inputs);
        with_scratch::<f32, 2, _>([b * n, b * n], |[states, sums]| {
            self.first(3, &mut states[..b * n]);
            for t in 0..s {
                let lines = self.going_on(t);
                self.product(lines.len(), states, &weight, sums);
                for (i, &line) in lines.iter().enumerate() {
                    let (v, y) = (&mut sums[i * n..][..n], &mut states[i * n..][..n]);
                    [self.x(t, line), of_input, of_state].iter().for_each(|x| add(x, v));
                    v.iter_mut().for_each(|v| *v = minimum(maximum(*v, -most), most));
                    activate(f, v, y);
                    self.keep(0, t, line, v);
                    self.keep(1, t, line, y);
                }
            }
        });
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
pub const IN_TIME: KernelFactory = |s| moved(s, Move::InTime);
/// The last step of each of them.
pub const LAST: KernelFactory = |s| moved(s, Move::Last);

struct Moved {
    what: Move,
    /// Steps, directions, sequences, elements of a step.
    extents: [usize; 4],
    /// Whether each direction runs backwards.
    reverse: Vec<bool>,
    at: Vec<usize>,
}

fn moved(spec: &KernelSpec<'_>, what: Move) -> Option<Box<dyn Kernel>> {
    let (lengths, data) = spec.args.split_last()?;
    let dense = spec.args.iter().all(|a| a.layout.is_dense());
    if !dense || lengths.dtype != DType::I64 || data.iter().any(|a| a.dtype != DType::F32) {
        return None;
    }
    let [s, d, b, g] = *spec.args[0].layout.shape.as_slice() else { return None };
    let reverse = match (what, spec.attrs) {
        (Move::InTime, [Attr::Str(w)]) => match (w.as_str(), d) {
            ("forward", 1) => vec![false],
            ("reverse", 1) => vec![true],
            ("bidirectional", 2) => vec![false, true],
            _ => return None,
        },
        (Move::Last, []) => vec![false; d],
        _ => return None,
    };
    let at = spec.args.iter().map(|a| a.layout.offset).collect();
    Some(Box::new(Moved { what, extents: [s, d, b, g], reverse, at }))
}

impl Kernel for Moved {
    fn run(
        &self,
        _: &Context<'_>,
        inputs: &[TensorView<'_>],
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
