//! Recurrent layers (LSTM, GRU): the input's contribution to all gates of all steps is one GEMM; the steps follow.
//!
//! The gates lie in scratch memory as `[direction, step, batch, gate * hidden]`. Here, a block runs the steps of one direction
//! and one element of the batch; the state is in shared memory, a warp computes one row of a product at a time. Where that leaves
//! most of a device idle, all blocks share the steps ([`persistent`]).

pub(crate) mod persistent;
mod recurrence;

use super::procedure::{Operand, Procedure, ProcedureLaunch, Prologue, Statements, TypedShape};
use super::spelling as spell;
use super::tuning::Tuning;
use mlc_dsl::eval::Env;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, Program, Type, Value};
use mlc_dsl::library::Library;
use persistent::CellKind;

/// Bytes of shared memory that a block has without being asked for more at the launch.
const SHARED: usize = 48 << 10;
/// Threads of a block of the steps, and its warps.
const THREADS: u32 = 512;
const WARPS: u32 = THREADS / 32;
/// Rows, columns and steps from which on a product is computed in tiles.
const TILED: usize = 8;

/// Extents, and how numbers are spelled.
pub struct Layer {
    pub steps: usize,
    pub batch: usize,
    pub hidden: usize,
    /// Whether each direction runs backwards.
    pub reversed: Vec<bool>,
    /// Gates of a hidden unit.
    pub gates: usize,
    pub dtype: DType,
}

/// Whether each direction runs backwards, from the attribute `direction`.
fn reversed(env: &Env, directions: usize) -> Result<Vec<bool>, String> {
    match (env.attr("direction"), directions) {
        (Some(Attr::Str(s)), 1) if s == "forward" => Ok(vec![false]),
        (Some(Attr::Str(s)), 1) if s == "reverse" => Ok(vec![true]),
        (Some(Attr::Str(s)), 2) if s == "bidirectional" => Ok(vec![false, true]),
        (other, _) => Err(format!("{directions} directions do not fit {other:?}")),
    }
}

/// Whether the reset gate applies after the recurrent product, from the attribute `linear_before_reset`.
fn resets_after(env: &Env) -> bool {
    let attr = env.attr("linear_before_reset").and_then(Attr::as_i64);
    attr.is_some_and(|v| v != 0)
}

impl Layer {
    fn new(env: &Env, args: &[TypedShape], gates: usize) -> Result<Layer, String> {
        let (Some([steps, batch, _]), Some([directions, _, hidden])) =
            (args.first().map(|a| a.1.as_slice()), args.get(2).map(|a| a.1.as_slice()))
        else {
            return Err("the input and the recurrence weights have three axes".into());
        };
        let layer = Layer {
            steps: *steps,
            batch: *batch,
            hidden: *hidden,
            reversed: reversed(env, *directions)?,
            gates,
            dtype: args[0].0,
        };
        let bytes = hidden.checked_mul(2 * layer.scratch_type().size());
        match bytes.is_some_and(|b| b <= SHARED) {
            true => Ok(layer),
            false => Err(format!("a state of {hidden} elements is too large for shared memory")),
        }
    }

    pub fn is_double(&self) -> bool {
        self.dtype == DType::F64
    }

    pub fn scratch_type(&self) -> DType {
        if self.is_double() { DType::F64 } else { DType::F32 }
    }

    pub fn real(&self) -> &'static str {
        spell::real(self.is_double())
    }

    pub fn load(&self, element: &str) -> String {
        spell::loaded(self.dtype, element, self.is_double())
    }

    pub fn rows(&self) -> usize {
        self.gates * self.hidden
    }

    /// The type of indices: of 64 bits where an argument or the gates have more elements than 32 bits count.
    pub fn index(&self, args: &[TypedShape]) -> &'static str {
        let elements = |shape: &[usize]| shape.iter().fold(1usize, |n, &d| n.saturating_mul(d));
        let gates = [self.reversed.len(), self.steps, self.batch, self.rows()];
        let most = args.iter().map(|a| elements(&a.1)).max().unwrap_or(0).max(elements(&gates));
        if most < 1 << 30 { "int" } else { "long long" }
    }

    /// What comes before the steps, with two arrays of the hidden units: the direction, the batch's element, the state,
    /// and the head of the loop.
    fn begin(&self, args: &[TypedShape], other: &str) -> Statements {
        let (kind, real, hidden) = (self.index(args), self.real(), self.hidden);
        let mut t = Statements::default();
        t.line(1, format!("SHARED({real}, state, {hidden});"));
        t.line(1, format!("SHARED({real}, {other}, {hidden});"));
        t.line(1, "int warp = threadIdx.x / 32, lane = threadIdx.x % 32;");
        t.line(1, format!("{kind} direction = blockIdx.x / {};", self.batch));
        t.line(1, format!("{kind} element = blockIdx.x % {};", self.batch));
        t.line(1, format!("{kind} own = (direction * {} + element) * {hidden};", self.batch));
        t
    }

    /// The place in time of a step.
    pub fn time(&self) -> String {
        let (forward, backward) = ("step".to_string(), format!("{} - 1 - step", self.steps));
        match self.reversed.as_slice() {
            [false] => forward,
            [true] => backward,
            _ => format!("direction == 0 ? {forward} : {backward}"),
        }
    }

    /// The head of the loop over steps.
    fn step(&self, t: &mut Statements, args: &[TypedShape]) {
        let (kind, steps, batch) = (self.index(args), self.steps, self.batch);
        t.line(1, "__syncthreads();");
        t.line(1, format!("for (int step = 0; step < {steps}; ++step) {{"));
        t.line(2, format!("{kind} at = {};", self.time()));
        let place = format!("((direction * {steps} + at) * {batch} + element) * {}", self.rows());
        t.line(2, format!("{kind} gates = {place};"));
        let (directions, hidden) = (self.reversed.len(), self.hidden);
        let place = format!("((at * {directions} + direction) * {batch} + element) * {hidden}");
        t.line(2, format!("{kind} result = {place};"));
    }

    /// For rows of gates from and to these: what a vector contributes by the recurrence, with its bias. `put` stores `total`.
    fn products(&self, t: &mut Statements, from: usize, to: usize, vector: &str, put: &str) {
        let (rows, hidden, real) = (self.rows(), self.hidden, self.real());
        t.line(2, format!("for (int row = {from} + warp; row < {to}; row += {WARPS}) {{"));
        t.line(3, format!("{real} sum = 0;"));
        t.line(3, format!("for (int k = lane; k < {hidden}; k += 32)"));
        let weight = self.load(&format!("a2[(direction * {rows} + row) * {hidden} + k]"));
        t.line(4, format!("sum += {weight} * {vector}[k];"));
        t.line(3, "sum = combine_warp(Sum(), sum);");
        let bias = self.load(&format!("a3[direction * {} + {rows} + row]", 2 * rows));
        t.line(3, "if (lane == 0) {");
        t.line(4, format!("{real} total = sum + {bias};"));
        t.line(4, put);
        t.line(3, "}");
        t.line(2, "}");
        t.line(2, "__syncthreads();");
    }

    /// The head of a loop over the hidden units.
    fn units(&self, t: &mut Statements, depth: usize) {
        let head = format!("for (int j = threadIdx.x; j < {}; j += {THREADS}) {{", self.hidden);
        t.line(depth, head);
    }

    /// A gate of the unit `j`.
    fn gate(&self, gate: usize) -> String {
        format!("s0[gates + {} + j]", gate * self.hidden)
    }

    pub fn store(&self, to: &str, v: &str) -> String {
        format!("{to} = {};", spell::element(self.dtype, v))
    }

    /// The end of a step, the last states, and the launches of the whole layer.
    fn end(&self, args: &[TypedShape], mut t: Statements, last: &[&str]) -> Procedure {
        t.line(2, "__syncthreads();");
        t.line(1, "}");
        self.units(&mut t, 1);
        for (i, state) in last.iter().enumerate() {
            t.line(2, self.store(&format!("y{}[own + j]", i + 1), &format!("{state}[j]")));
        }
        t.line(1, "}");
        let mut operands = vec![(Operand::Argument(2), false), (Operand::Argument(3), false)];
        operands.extend((4..args.len()).map(|i| (Operand::Argument(i), false)));
        operands.push((Operand::Scratch(0), true));
        operands.extend((0..=last.len()).map(|i| (Operand::Result(i), true)));
        let blocks = if self.hidden == 0 { 0 } else { self.reversed.len() * self.batch };
        let steps = ProcedureLaunch {
            name: "steps",
            blocks: blocks as u64,
            threads: THREADS,
            operands,
            faults: false,
            body: t.0,
        };
        let gates = vec![self.reversed.len(), self.steps, self.batch, self.rows()];
        Procedure {
            scratch: vec![(self.scratch_type(), gates)],
            prologue: Some(Prologue { program: inputs, arguments: vec![0, 1, 3], into: 0 }),
            launches: vec![steps],
            cooperative: None,
        }
    }
}

/// What an input, its weights and the first half of the bias contribute to every gate of every step.
fn inputs(library: &Library, types: &[TypedShape]) -> Result<Program, String> {
    let [(dtype, x), (_, w), (_, bias)] = types else { return Err("three arguments".into()) };
    let (positions, directions, rows) = (x[0] * x[1], w[0], w[1]);
    let mut b = Builder::new(library);
    // Memory has no axes: steps and the batch are the rows of one matrix.
    let rows_of_x = b.input("x", Type::known(*dtype, &[positions, x[2]]));
    let w = b.input("w", Type::known(*dtype, &[directions, rows, x[2]]));
    let bias = b.input("bias", Type::known(*dtype, bias));
    let known = |shape: &[usize]| -> Vec<Extent> {
        shape.iter().map(|&n| Extent::from(n as i64)).collect()
    };
    let ints = |shape: &[usize]| Some(Attr::Ints(known(shape)));
    let mut apply = |name: &str, attrs: &[Option<Attr>], args: &[Value]| {
        let call = library.find(name).ok_or_else(|| format!("no operator `{name}`"))?;
        Ok::<Value, String>(b.apply(call, attrs, args).map_err(|e| e.to_string())?[0])
    };
    let wide = Some(Attr::DType(if *dtype == DType::F64 { DType::F64 } else { DType::F32 }));
    let (mut left, mut right) = (rows_of_x, w);
    // A product in tiles is not rounded before what follows it; any other one may be stored first.
    if positions.min(rows).min(x[2]) < TILED {
        left = apply("cast", std::slice::from_ref(&wide), &[left])?;
        right = apply("cast", std::slice::from_ref(&wide), &[right])?;
    }
    let all = [directions, positions, x[2]];
    let each = apply("broadcast", &[ints(&[1, 2]), ints(&all)], &[left])?;
    let turned = apply("transpose", &[ints(&[0, 2, 1])], &[right])?;
    let sums = apply("matmul", &[], &[each, turned])?;
    let sums = apply("cast", std::slice::from_ref(&wide), &[sums])?;
    let own = [ints(&[0, 0]), ints(&[directions, rows]), ints(&[1, 1])];
    let bias = apply("slice", &own, &[bias])?;
    let bias = apply("cast", &[wide], &[bias])?;
    let to = [ints(&[0, 2]), ints(&[directions, positions, rows])];
    let bias = apply("broadcast", &to, &[bias])?;
    let gates = apply("add", &[], &[sums, bias])?;
    Ok(b.finish(vec![("gates".into(), gates)]))
}

/// Gates in the order input, output, forget, cell.
pub fn lstm(env: &Env, args: &[TypedShape], tuning: Tuning) -> Result<Procedure, String> {
    let l = Layer::new(env, args, 4)?;
    let real = l.real();
    let mut t = l.begin(args, "cell");
    l.units(&mut t, 1);
    t.line(2, format!("state[j] = {};", l.load("a4[own + j]")));
    t.line(2, format!("cell[j] = {};", l.load("a5[own + j]")));
    t.line(1, "}");
    l.step(&mut t, args);
    l.products(&mut t, 0, l.rows(), "state", "s0[gates + row] += total;");
    l.units(&mut t, 2);
    for (name, gate) in [("in", 0), ("out", 1), ("forget", 2)] {
        t.line(3, format!("{real} {name} = logistic(({real}){});", l.gate(gate)));
    }
    t.line(3, format!("{real} next = forget * cell[j] + in * tanh(({real}){});", l.gate(3)));
    t.line(3, format!("{real} shown = out * tanh(next);"));
    t.line(3, "cell[j] = next;");
    t.line(3, "state[j] = shown;");
    t.line(3, l.store("y0[result + j]", "shown"));
    t.line(2, "}");
    Ok(l.with_persistent_kernel(l.end(args, t, &["state", "cell"]), args, CellKind::Lstm, tuning))
}

/// Gates in the order update, reset, hidden.
pub fn gru(env: &Env, args: &[TypedShape], tuning: Tuning) -> Result<Procedure, String> {
    let l = Layer::new(env, args, 3)?;
    let (real, hidden) = (l.real(), l.hidden);
    let mut t = l.begin(args, "inner");
    l.units(&mut t, 1);
    t.line(2, format!("state[j] = {};", l.load("a4[own + j]")));
    t.line(1, "}");
    l.step(&mut t, args);
    l.products(&mut t, 0, 2 * hidden, "state", "s0[gates + row] += total;");
    let reset = format!("logistic(({real}){})", l.gate(1));
    match resets_after(env) {
        true => {
            let put = format!("inner[row - {}] = total;", 2 * hidden);
            l.products(&mut t, 2 * hidden, 3 * hidden, "state", &put);
            l.units(&mut t, 2);
            t.line(3, format!("{real} hidden = tanh({} + {reset} * inner[j]);", l.gate(2)));
        }
        false => {
            l.units(&mut t, 2);
            t.line(3, format!("inner[j] = {reset} * state[j];"));
            t.line(2, "}");
            t.line(2, "__syncthreads();");
            l.products(&mut t, 2 * hidden, 3 * hidden, "inner", "s0[gates + row] += total;");
            l.units(&mut t, 2);
            t.line(3, format!("{real} hidden = tanh(({real}){});", l.gate(2)));
        }
    }
    t.line(3, format!("{real} update = logistic(({real}){});", l.gate(0)));
    t.line(3, format!("{real} shown = (1 - update) * hidden + update * state[j];"));
    t.line(3, "state[j] = shown;");
    t.line(3, l.store("y0[result + j]", "shown"));
    t.line(2, "}");
    let cell = if resets_after(env) { CellKind::GruResetAfter } else { CellKind::GruResetBefore };
    Ok(l.with_persistent_kernel(l.end(args, t, &["state"]), args, cell, tuning))
}
