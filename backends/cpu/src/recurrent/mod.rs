//! LSTM, GRU and simple RNN layers as ONNX defines them: one GEMM for the inputs of all steps, one per step for the state. f32.
//!
//! Constant weights are packed once. The directions of a layer are independent and run concurrently.

pub(crate) mod steps;

use super::gemm::SubMatrix;
use super::gemm::{GemmEpilogue, GemmSizes, Left, Matrix, PackedRight, Product, Right, gemm};
use super::runtime::buffer::with_scratch;
use super::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, TensorView};
use super::runtime::threads::{SharedSlice, Threads};
use super::runtime::weight_cache::Pack;
use mlc_dsl::ir::{Attr, DType};
use mlc_vector::functions::{Function, map};
use mlc_vector::simd;
use smallvec::SmallVec;
use std::ops::Deref;
use std::sync::Arc;

/// LSTM.
pub const LSTM: KernelFactory = |s| make(s, Cell::Lstm { peepholes: false });
/// LSTM with peepholes.
pub const PEEPHOLE: KernelFactory = |s| make(s, Cell::Lstm { peepholes: true });
/// Simple RNN.
pub const SIMPLE: KernelFactory = |s| make(s, Cell::Simple { rectified: false });
/// GRU.
pub const GRU: KernelFactory = |s| make(s, Cell::Gru { reset_after: false });

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Lstm { peepholes: bool },
    Gru { reset_after: bool },
    Simple { rectified: bool },
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Cell::Lstm { .. } => 4,
            Cell::Gru { .. } => 3,
            Cell::Simple { .. } => 1,
        }
    }

    /// Its arguments: inputs, two weights, biases, states, and what the gates weigh the cell with.
    fn arguments(self) -> usize {
        match self {
            Cell::Lstm { peepholes } => 6 + usize::from(peepholes),
            Cell::Gru { .. } | Cell::Simple { .. } => 5,
        }
    }

    /// The gates of which the state's share is one product; the hidden gate of a GRU may read another state.
    fn joint(self) -> usize {
        match self {
            Cell::Lstm { .. } | Cell::Simple { .. } => self.gates(),
            Cell::Gru { reset_after } => 2 + usize::from(reset_after),
        }
    }
}

/// A matrix with rows of `width`.
pub(super) fn by(data: &[f32], width: usize) -> Matrix<'_> {
    Matrix { data, offset: 0, row: width as isize, col: 1 }
}

/// The transpose of a matrix with rows of `width` that begins at `offset`.
fn turned(data: &[f32], offset: usize, width: usize) -> Matrix<'_> {
    Matrix { data, offset, row: 1, col: width as isize }
}

/// A weight: packed before the first run if it is constant.
pub(super) struct Weight {
    arg: usize,
    /// Where it begins in the argument.
    at: usize,
    /// Depth and columns of its transpose.
    sizes: (usize, usize),
    packed: Option<Arc<Pack<PackedRight>>>,
}

/// A weight packed for products.
pub(super) enum PackedWeight<'a> {
    Shared(&'a Pack<PackedRight>),
    Own(PackedRight),
}

impl Deref for PackedWeight<'_> {
    type Target = PackedRight;

    fn deref(&self) -> &PackedRight {
        match self {
            PackedWeight::Shared(p) => p,
            PackedWeight::Own(p) => p,
        }
    }
}

impl Weight {
    /// `rows` rows of `width` from `skip` elements on in an argument.
    pub(super) fn new(
        spec: &KernelSpec<'_>,
        arg: usize,
        skip: usize,
        rows: usize,
        width: usize,
    ) -> Weight {
        let operand = &spec.args[arg];
        let at = operand.layout.offset + skip;
        let sizes = (width, rows);
        let constant = operand.constant.as_ref().filter(|_| rows * width > 0);
        let packed = constant.map(|t| {
            spec.weights.right(
                t,
                SubMatrix { offset: at, row: 1, col: width as isize },
                width,
                rows,
            )
        });
        Weight { arg, at, sizes, packed }
    }

    /// The weight in the form that products read.
    pub(super) fn ready(&self, inputs: &[TensorView<'_>]) -> PackedWeight<'_> {
        match &self.packed {
            Some(p) => PackedWeight::Shared(p),
            None => {
                let (k, n) = self.sizes;
                let data = inputs[self.arg].typed();
                PackedWeight::Own(PackedRight::new(&turned(data, self.at, k), k, n))
            }
        }
    }
}

/// One direction: its weights, and whether it runs backwards.
struct Direction {
    reverse: bool,
    input: Weight,
    /// Of the gates that are one product.
    joint: Weight,
    /// Of the hidden gate of a GRU whose reset gate comes before the product.
    hidden: Option<Weight>,
}

struct Recurrent {
    cell: Cell,
    directions: Vec<Direction>,
    s: usize,
    b: usize,
    i: usize,
    h: usize,
    at: Vec<usize>,
}

fn make(spec: &KernelSpec<'_>, cell: Cell) -> Option<Box<dyn Kernel>> {
    let dense = spec.args.iter().all(|a| a.layout.is_dense() && a.dtype == DType::F32);
    if !dense || spec.args.len() != cell.arguments() {
        return None;
    }
    let [s, b, i] = *spec.args[0].layout.shape.as_slice() else { return None };
    let [d, _, h] = *spec.args[2].layout.shape.as_slice() else { return None };
    let mut reverse = match d {
        1 => vec![false],
        2 => vec![false, true],
        _ => return None,
    };
    let mut cell = cell;
    for a in spec.attrs {
        match a {
            Attr::Str(w) if w == "forward" && d == 1 => {}
            Attr::Str(w) if w == "reverse" && d == 1 => reverse = vec![true],
            Attr::Str(w) if w == "bidirectional" && d == 2 => {}
            Attr::Str(w) => match (&mut cell, w.as_str()) {
                (Cell::Simple { rectified }, "tanh") => *rectified = false,
                (Cell::Simple { rectified }, "relu") => *rectified = true,
                _ => return None,
            },
            Attr::Int(v) => match &mut cell {
                Cell::Gru { reset_after } => *reset_after = !v.is(0),
                Cell::Lstm { .. } | Cell::Simple { .. } => return None,
            },
            Attr::Bool(_) | Attr::Ints(_) | Attr::Float(_) | Attr::Floats(_) | Attr::DType(_) => {
                return None;
            }
        }
    }
    let (gates, joint) = (cell.gates(), cell.joint());
    let direction = |(d, &reverse): (usize, &bool)| {
        let skip = d * gates * h * h;
        let late = || Weight::new(spec, 2, skip + joint * h * h, h, h);
        Direction {
            reverse,
            input: Weight::new(spec, 1, d * gates * h * i, gates * h, i),
            joint: Weight::new(spec, 2, skip, joint * h, h),
            hidden: (joint < gates).then(late),
        }
    };
    let directions = reverse.iter().enumerate().map(direction).collect();
    let at = spec.args.iter().map(|a| a.layout.offset).collect();
    Some(Box::new(Recurrent { cell, directions, s, b, i, h, at }))
}

simd! {
    /// Sums of two.
    fn added(x: &[f32], y: &[f32], to: &mut [f32]) {
        to.iter_mut().zip(x.iter().zip(y)).for_each(|(to, (x, y))| *to = x + y);
    }
}

simd! {
    /// Products are added.
    pub(super) fn add_products(x: &[f32], y: &[f32], to: &mut [f32]) {
        to.iter_mut().zip(x.iter().zip(y)).for_each(|(to, (x, y))| *to += x * y);
    }
}

simd! {
    /// Products with what is there.
    pub(super) fn multiply_by(x: &[f32], to: &mut [f32]) {
        to.iter_mut().zip(x).for_each(|(to, x)| *to *= x);
    }
}

simd! {
    /// `c = f * c + i * z`.
    fn cells(gates: &[f32], c: &mut [f32]) {
        let n = c.len();
        let [i, f, z] = [0, 2, 3].map(|k| &gates[k * n..][..n]);
        for (c, (i, (f, z))) in c.iter_mut().zip(i.iter().zip(f.iter().zip(z))) {
            *c = f * *c + i * z;
        }
    }
}

/// Scratch memory of a step: pre-activations and gates.
struct GateScratch<'a> {
    sums: &'a mut [f32],
    gates: &'a mut [f32],
}

/// An LSTM step of one sequence: `x` and `g` are the projections of input and state to the four gates. Peepholes feed the cell to the input,
/// output and forget gates.
fn lstm_step(
    x: &[f32],
    g: &[f32],
    peepholes: Option<&[f32]>,
    h: &mut [f32],
    c: &mut [f32],
    GateScratch { sums, gates }: GateScratch<'_>,
) {
    let n = h.len();
    added(x, g, sums);
    match peepholes {
        None => map(Function::Sigmoid, &mut gates[..3 * n], &sums[..3 * n]),
        Some(p) => {
            for k in [0, 2] {
                let gate = k * n..(k + 1) * n;
                add_products(&p[gate.clone()], c, &mut sums[gate.clone()]);
                map(Function::Sigmoid, &mut gates[gate.clone()], &sums[gate]);
            }
        }
    }
    map(Function::Tanh, &mut gates[3 * n..], &sums[3 * n..]);
    cells(gates, c);
    if let Some(p) = peepholes {
        let gate = n..2 * n;
        add_products(&p[gate.clone()], c, &mut sums[gate.clone()]);
        map(Function::Sigmoid, &mut gates[gate.clone()], &sums[gate]);
    }
    map(Function::Tanh, h, c);
    multiply_by(&gates[n..2 * n], h);
}

simd! {
    /// ReLU of sums, never negative zero; NaN stays.
    fn rectified_sums(x: &[f32], g: &[f32], h: &mut [f32]) {
        for (h, (x, g)) in h.iter_mut().zip(x.iter().zip(g)) {
            let sum = x + g;
            *h = if sum < 0.0 { 0.0 } else { sum } + 0.0;
        }
    }
}

/// A step of a simple RNN; `sums` is scratch.
fn simple_step(rectified: bool, x: &[f32], g: &[f32], h: &mut [f32], sums: &mut [f32]) {
    if rectified {
        return rectified_sums(x, g, h);
    }
    added(x, g, sums);
    map(Function::Tanh, h, sums);
}

/// The state under the reset gate; `sums` is scratch.
fn gru_reset(x: &[f32], g: &[f32], h: &[f32], passed: &mut [f32], sums: &mut [f32]) {
    let n = h.len();
    let sums = &mut sums[..n];
    added(&x[n..][..n], &g[n..][..n], sums);
    map(Function::Sigmoid, passed, sums);
    multiply_by(h, passed);
}

simd! {
    /// Sums of three, of which two may be scaled.
    fn scaled_sums(scale: Option<&[f32]>, x: &[f32], late: &[f32], bias: &[f32], to: &mut [f32]) {
        let inner = late.iter().zip(bias).map(|(l, b)| l + b);
        match scale {
            Some(s) => {
                let all = to.iter_mut().zip(x.iter().zip(s)).zip(inner);
                all.for_each(|((to, (x, s)), inner)| *to = x + s * inner);
            }
            None => to.iter_mut().zip(x).zip(inner).for_each(|((to, x), inner)| *to = x + inner),
        }
    }
}

simd! {
    /// `h = (1 - share) * new + share * h`.
    pub(super) fn mix(share: &[f32], new: &[f32], h: &mut [f32]) {
        for (h, (share, new)) in h.iter_mut().zip(share.iter().zip(new)) {
            *h = (1.0 - share) * new + share * *h;
        }
    }
}

/// A GRU step of one sequence. `late` is the state's projection to the hidden gate, which the reset gate may scale.
fn gru_step(
    reset: bool,
    x: &[f32],
    g: &[f32],
    late: &[f32],
    bias: &[f32],
    h: &mut [f32],
    GateScratch { sums, gates }: GateScratch<'_>,
) {
    let n = h.len();
    added(&x[..2 * n], &g[..2 * n], &mut sums[..2 * n]);
    map(Function::Sigmoid, &mut gates[..2 * n], &sums[..2 * n]);
    let (early, new) = gates.split_at_mut(2 * n);
    let (update, scale) = early.split_at(n);
    let hidden = &mut sums[2 * n..3 * n];
    scaled_sums(reset.then_some(scale), &x[2 * n..][..n], &late[..n], &bias[..n], hidden);
    map(Function::Tanh, &mut new[..n], hidden);
    mix(update, &new[..n], h);
}

impl Kernel for Recurrent {
    fn scratch(&self) -> u64 {
        let (_, len) = self.lens();
        (len as u64).saturating_mul(4 * self.directions.len() as u64)
    }

    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let args: SmallVec<[&[f32]; 8]> =
            inputs.iter().zip(&self.at).map(|(a, &at)| &a.typed::<f32>()[at..]).collect();
        let mut outs = outputs.iter_mut().map(|o| bytemuck::cast_slice_mut::<u8, f32>(o));
        let (Some(y), Some(last_h)) = (outs.next(), outs.next()) else {
            return Err("two results at least".into());
        };
        let dirs = self.directions.len();
        let states = dirs * self.b * self.h;
        last_h.copy_from_slice(&args[4][..states]);
        let last_c = outs.next().unwrap_or_default();
        if let Some(c0) = args.get(5) {
            last_c.copy_from_slice(&c0[..states]);
        }
        // A state without elements has no lines.
        if self.b * self.h == 0 {
            return Ok(());
        }
        let (lens, len) = self.lens();
        with_scratch::<f32, 1, _>([len * dirs], |[scratch]| {
            let (y, h, c) =
                (SharedSlice::new(y), SharedSlice::new(last_h), SharedSlice::new(last_c));
            let scratch = SharedSlice::new(scratch);
            let part = self.b * self.h;
            cx.threads.each(dirs, |d| {
                // SAFETY: every direction has its own part of each.
                let (h, c, own) = unsafe {
                    let c = c.part((d * part).min(c.len()), part.min(c.len()));
                    (h.part(d * part, part), c, scratch.part(d * len, len))
                };
                self.direction(cx.threads, inputs, &args, d, &y, h, c, split(own, lens));
            });
        });
        Ok(())
    }
}

/// A slice in four.
fn split(all: &mut [f32], lens: [usize; 4]) -> [&mut [f32]; 4] {
    let (a, rest) = all.split_at_mut(lens[0]);
    let (b, rest) = rest.split_at_mut(lens[1]);
    let (c, rest) = rest.split_at_mut(lens[2]);
    [a, b, c, &mut rest[..lens[3]]]
}

impl Recurrent {
    /// What a direction works in: the inputs' share of all gates, the state's of one step, two states, and the gates of one sequence before and
    /// after their functions.
    fn lens(&self) -> ([usize; 4], usize) {
        let rows = self.cell.gates() * self.h;
        let lens = [self.s * self.b * rows, self.b * rows, 2 * self.b * self.h, 2 * rows];
        (lens, lens.iter().sum())
    }

    #[allow(clippy::too_many_arguments, reason = "one direction's share of everything")]
    fn direction(
        &self,
        threads: &Threads,
        inputs: &[TensorView<'_>],
        args: &[&[f32]],
        d: usize,
        y: &SharedSlice<'_, f32>,
        h: &mut [f32],
        c: &mut [f32],
        [all, step, spare, line]: [&mut [f32]; 4],
    ) {
        let (n, b, rows) = (self.h, self.b, self.cell.gates() * self.h);
        let direction = &self.directions[d];
        let bias = &args[3][d * 2 * rows..][..2 * rows];
        self.input_gates(threads, direction, inputs, args[0], bias, all);
        let joint = direction.joint.ready(inputs);
        let hidden = direction.hidden.as_ref().map(|w| w.ready(inputs));
        let state = |from: &[f32], weight: &PackedRight, to: &mut [f32]| {
            let product =
                |_| Product { left: Left::Plain(by(from, n)), right: Right::Packed(weight), at: 0 };
            gemm(
                threads,
                GemmSizes { m: b, n: weight.n, k: n },
                1,
                product,
                to,
                GemmEpilogue::Identity,
            );
        };
        let wide = self.cell.joint() * n;
        let (passed, late) = spare.split_at_mut(b * n);
        let (sums, gates) = line.split_at_mut(rows);
        for k in 0..self.s {
            let t = if direction.reverse { self.s - 1 - k } else { k };
            state(h, &joint, &mut step[..b * wide]);
            let x = &all[t * b * rows..][..b * rows];
            if let Some(hidden) = &hidden {
                let lines = x.chunks_exact(rows).zip(step.chunks_exact(wide));
                for ((x, g), (h, to)) in
                    lines.zip(h.chunks_exact(n).zip(passed.chunks_exact_mut(n)))
                {
                    gru_reset(x, g, h, to, sums);
                }
                state(passed, hidden, late);
            }
            for (i, h) in h.chunks_exact_mut(n).enumerate() {
                let (x, g) = (&x[i * rows..][..rows], &step[i * wide..][..wide]);
                // Of the hidden gate alone.
                let own = &bias[2 * rows - n..];
                let work = GateScratch { sums, gates };
                match (self.cell, &hidden) {
                    (Cell::Lstm { peepholes }, _) => {
                        let weights = peepholes.then(|| &args[6][d * 3 * n..][..3 * n]);
                        lstm_step(x, g, weights, h, &mut c[i * n..][..n], work);
                    }
                    (Cell::Gru { .. }, Some(_)) => {
                        gru_step(false, x, g, &late[i * n..], own, h, work);
                    }
                    (Cell::Gru { .. }, None) => {
                        gru_step(true, x, g, &g[2 * n..], own, h, work);
                    }
                    (Cell::Simple { rectified }, _) => simple_step(rectified, x, g, h, work.sums),
                }
            }
            // SAFETY: every direction writes its own part of each step.
            let line = unsafe { y.part((t * self.directions.len() + d) * b * n, b * n) };
            line.copy_from_slice(h);
        }
    }

    /// The inputs' share of the gates of all steps, biases included.
    fn input_gates(
        &self,
        threads: &Threads,
        direction: &Direction,
        inputs: &[TensorView<'_>],
        x: &[f32],
        bias: &[f32],
        all: &mut [f32],
    ) {
        let rows = self.cell.gates() * self.h;
        // The recurrent bias of a GRU's hidden gate may be scaled by the reset gate: it is added there.
        let early = match self.cell {
            Cell::Lstm { .. } | Cell::Simple { .. } => rows,
            Cell::Gru { .. } => rows - self.h,
        };
        let weight = direction.input.ready(inputs);
        let product =
            |_| Product { left: Left::Plain(by(x, self.i)), right: Right::Packed(&weight), at: 0 };
        let sizes = GemmSizes { m: self.s * self.b, n: rows, k: self.i };
        with_scratch::<f32, 1, _>([rows], |[sums]| {
            sums.copy_from_slice(&bias[..rows]);
            sums[..early].iter_mut().zip(&bias[rows..]).for_each(|(s, r)| *s += r);
            let add = |at: usize, part: &mut [f32]| {
                let mut rest = part;
                let mut from = at % rows;
                while !rest.is_empty() {
                    let (line, after) = rest.split_at_mut((rows - from).min(rest.len()));
                    line.iter_mut().zip(&sums[from..]).for_each(|(v, s)| *v += s);
                    (rest, from) = (after, 0);
                }
            };
            gemm(threads, sizes, 1, product, all, GemmEpilogue::Block(&add));
        });
    }
}
