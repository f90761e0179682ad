//! Recurrent layers as ONNX defines them: one product for the inputs of all steps, one per step for the state. f32.

use super::buffer::with_scratch;
use super::gemm::{GemmSizes, Left, Matrix, PackedRight, Product, Right, gemm};
use super::launch::{Array, Context, Launch, LaunchSite, Maker};
use super::math::{sigmoid, tanh};
use super::simd::simd;
use mlc_dsl::ir::{Attr, DType};

/// Long short-term memory.
pub const LSTM: Maker = |s| make(s, Cell::Lstm);
/// Gated recurrent unit.
pub const GRU: Maker = |s| make(s, Cell::Gru { reset_after: false });

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Lstm,
    Gru { reset_after: bool },
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru { .. } => 3,
        }
    }
}

/// A matrix with rows of `width`.
fn by(data: &[f32], width: usize) -> Matrix<'_> {
    Matrix { data, offset: 0, row: width as isize, col: 1 }
}

/// The transpose of a matrix with rows of `width`.
fn turned(data: &[f32], width: usize) -> Matrix<'_> {
    Matrix { data, offset: 0, row: 1, col: width as isize }
}

struct Recurrent {
    cell: Cell,
    /// Whether each direction runs backwards.
    reverse: Vec<bool>,
    s: usize,
    b: usize,
    i: usize,
    h: usize,
    at: Vec<usize>,
}

fn make(site: &LaunchSite<'_>, cell: Cell) -> Option<Box<dyn Launch>> {
    let dense = site.args.iter().all(|a| a.layout.is_dense() && a.dtype == DType::F32);
    let states = if cell == Cell::Lstm { 2 } else { 1 };
    if !dense || site.args.len() != 4 + states {
        return None;
    }
    let [s, b, i] = *site.args[0].layout.shape.as_slice() else { return None };
    let [d, _, h] = *site.args[2].layout.shape.as_slice() else { return None };
    let mut reverse = match d {
        1 => vec![false],
        2 => vec![false, true],
        _ => return None,
    };
    let mut cell = cell;
    for a in site.attrs {
        match a {
            Attr::Str(w) if w == "forward" && d == 1 => {}
            Attr::Str(w) if w == "reverse" && d == 1 => reverse = vec![true],
            Attr::Str(w) if w == "bidirectional" && d == 2 => {}
            Attr::Str(_) => return None,
            Attr::Bool(after) => cell = Cell::Gru { reset_after: *after },
            Attr::Int(v) => cell = Cell::Gru { reset_after: !v.is(0) },
            Attr::Ints(_) | Attr::Float(_) | Attr::Floats(_) | Attr::DType(_) => return None,
        }
    }
    if states == 2 && cell != Cell::Lstm {
        return None;
    }
    let at = site.args.iter().map(|a| a.layout.offset).collect();
    Some(Box::new(Recurrent { cell, reverse, s, b, i, h, at }))
}

simd! {
    /// One step of one sequence: `g` holds the four gates before their functions.
    fn lstm_step(g: &[f32], h: &mut [f32], c: &mut [f32]) {
        let n = h.len();
        let (i, rest) = g.split_at(n);
        let (o, rest) = rest.split_at(n);
        let (f, z) = rest.split_at(n);
        for (((((h, c), &i), &o), &f), &z) in h.iter_mut().zip(c).zip(i).zip(o).zip(f).zip(&z[..n]) {
            *c = sigmoid(f) * *c + sigmoid(i) * tanh(z);
            *h = sigmoid(o) * tanh(*c);
        }
    }
}

impl Launch for Recurrent {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let args: Vec<&[f32]> =
            inputs.iter().zip(&self.at).map(|(a, &at)| &a.typed::<f32>()[at..]).collect();
        let mut outs = outputs.iter_mut().map(|o| bytemuck::cast_slice_mut::<u8, f32>(o));
        let (Some(y), Some(last_h)) = (outs.next(), outs.next()) else {
            return Err("two results at least".into());
        };
        let mut last_c = outs.next();
        let states = self.reverse.len() * self.b * self.h;
        last_h.copy_from_slice(&args[4][..states]);
        if let (Some(c), Some(c0)) = (&mut last_c, args.get(5)) {
            c.copy_from_slice(&c0[..states]);
        }
        let rows = self.cell.gates() * self.h;
        let lens = [self.s * self.b * rows, self.b * rows, self.b * self.h];
        with_scratch::<f32, 3, _>(lens, |scratch| {
            let [all, step, spare] = scratch.map(|s| &mut *s);
            for d in 0..self.reverse.len() {
                let part = d * self.b * self.h..(d + 1) * self.b * self.h;
                let h = &mut last_h[part.clone()];
                let c = last_c.as_mut().map(|c| &mut c[part.clone()]);
                self.direction(cx, &args, d, y, h, c, [all, step, spare]);
            }
        });
        Ok(())
    }
}

impl Recurrent {
    #[allow(clippy::too_many_arguments, reason = "one direction's share of everything")]
    fn direction(
        &self,
        cx: &Context<'_>,
        args: &[&[f32]],
        d: usize,
        y: &mut [f32],
        h: &mut [f32],
        mut c: Option<&mut [f32]>,
        [all, step, spare]: [&mut [f32]; 3],
    ) {
        let (n, b, rows) = (self.h, self.b, self.cell.gates() * self.h);
        // A state without elements has no lines.
        if n == 0 || b == 0 {
            return;
        }
        let (w, r) = (&args[1][d * rows * self.i..], &args[2][d * rows * n..]);
        let bias = &args[3][d * 2 * rows..][..2 * rows];
        let all = &mut all[..self.s * b * rows];
        let both = |at: usize, part: &mut [f32]| {
            for (k, v) in part.iter_mut().enumerate() {
                let g = (at + k) % rows;
                // The recurrent bias of the hidden gate may be scaled by the reset gate: it is added there.
                let late = matches!(self.cell, Cell::Gru { .. }) && g >= 2 * n;
                *v += bias[g] + if late { 0.0 } else { bias[rows + g] };
            }
        };
        let product = |_| Product {
            left: Left::Plain(by(args[0], self.i)),
            right: Right::Plain(turned(w, self.i)),
            at: 0,
        };
        let sizes = GemmSizes { m: self.s * b, n: rows, k: self.i };
        gemm(cx.threads, sizes, 1, product, all, Some(&both));
        let packed = PackedRight::new(&turned(r, n), n, rows);
        let hidden = PackedRight::new(&turned(&r[(rows - n) * n..], n), n, n);
        for k in 0..self.s {
            let t = if self.reverse[d] { self.s - 1 - k } else { k };
            let step = &mut step[..b * rows];
            {
                let h = &*h;
                let product = |_| Product {
                    left: Left::Plain(by(h, n)),
                    right: Right::Packed(&packed),
                    at: 0,
                };
                gemm(cx.threads, GemmSizes { m: b, n: rows, k: n }, 1, product, step, None);
            }
            let x = &all[t * b * rows..][..b * rows];
            match (self.cell, &mut c) {
                (Cell::Lstm, Some(c)) => {
                    step.iter_mut().zip(x).for_each(|(s, x)| *s += x);
                    let lines = step
                        .chunks_exact(rows)
                        .zip(h.chunks_exact_mut(n))
                        .zip(c.chunks_exact_mut(n));
                    lines.for_each(|((g, h), c)| lstm_step(g, h, c));
                }
                (Cell::Gru { reset_after }, _) => {
                    self.gru_step(cx, reset_after, x, step, h, &bias[rows..], &hidden, spare);
                }
                (Cell::Lstm, None) => {}
            }
            let dirs = self.reverse.len();
            y[(t * dirs + d) * b * n..][..b * n].copy_from_slice(h);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one step's share of everything")]
    fn gru_step(
        &self,
        cx: &Context<'_>,
        reset_after: bool,
        x: &[f32],
        step: &mut [f32],
        h: &mut [f32],
        bias: &[f32],
        hidden: &PackedRight,
        spare: &mut [f32],
    ) {
        let (n, rows) = (self.h, 3 * self.h);
        let spare = &mut spare[..self.b * n];
        if !reset_after {
            // The product is of the state that the reset gate lets pass.
            let mut passed = h.to_vec();
            for (b, line) in passed.chunks_exact_mut(n.max(1)).enumerate() {
                for (j, v) in line.iter_mut().enumerate() {
                    let at = b * rows + n + j;
                    *v *= sigmoid(x[at] + step[at]);
                }
            }
            let left = Matrix { data: &passed, offset: 0, row: n as isize, col: 1 };
            let product =
                |_| Product { left: Left::Plain(left), right: Right::Packed(hidden), at: 0 };
            gemm(cx.threads, GemmSizes { m: self.b, n, k: n }, 1, product, spare, None);
        }
        for b in 0..self.b {
            for j in 0..n {
                let at = b * rows + j;
                let update = sigmoid(x[at] + step[at]);
                let reset = sigmoid(x[at + n] + step[at + n]);
                let late = bias[2 * n + j];
                let inner = if reset_after {
                    reset * (step[at + 2 * n] + late)
                } else {
                    spare[b * n + j] + late
                };
                let new = tanh(x[at + 2 * n] + inner);
                let old = &mut h[b * n + j];
                *old = (1.0 - update) * new + update * *old;
            }
        }
    }
}
