//! Persistent RNN: all blocks of a grid share the steps of a recurrent layer, with a grid barrier after every step.
//!
//! A block has some hidden units of one direction, a warp one or several of them with all gates. Their recurrent weights stay in registers
//! for all steps where they fit, and are read once for all elements of the batch. The state goes through scratch memory, double-buffered,
//! so that one barrier separates steps. From one phase to the next, threads keep nothing but weights.

use super::super::procedure::{Operand, Procedure, ProcedureLaunch, Statements, TypedShape};
use super::super::tuning::{Policy, Tuning};
use super::Layer;

/// The kind of a recurrent cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellKind {
    /// LSTM: gates input, output, forget, cell.
    Lstm,
    /// GRU: gates update, reset, hidden; the reset gate applies after the recurrent product.
    GruResetAfter,
    /// The same where it applies before: two products, one after the other.
    GruResetBefore,
}

/// Warps of a block, with its weights in registers or in memory; weights of a lane, as registers, at most, and from which on few elements of the
/// batch take turns.
const WARPS: usize = 8;
const MANY_WARPS: usize = 16;
const KEPT: usize = 128;
const MANY_KEPT: usize = 64;

/// Seconds: a step of one block besides its products, a barrier of the grid and for each block of it, a step between barriers besides its products.
/// Measured on one H200 where one block works, else estimates.
const STEP_ALONE: f64 = 1e-6;
const BARRIER: f64 = 1.2e-6;
const ARRIVAL: f64 = 3e-9;
const STEP: f64 = 1e-6;
/// In a second, of one multiprocessor: weights that a block reads and multiplies alone, products of what is at hand, bytes from memory.
const ALONE: f64 = 11e9;
const PRODUCTS: f64 = 87e9;
const BYTES: f64 = 60e9;

/// How the hidden units are distributed over a grid.
struct UnitLayout {
    /// Blocks of a direction, units of each, its warps, and units of a warp.
    blocks: usize,
    units: usize,
    warps: usize,
    of_warp: usize,
    /// Whether weights stay in registers.
    is_kept: bool,
    /// Elements of the state that a lane takes side by side, and how many times.
    width: usize,
    turns: usize,
    /// Elements of the batch at a time.
    tile: usize,
}

impl UnitLayout {
    fn choose(l: &Layer, processors: u32) -> Option<UnitLayout> {
        let most = processors as usize / l.reversed.len();
        if most == 0 || l.steps == 0 || l.batch == 0 || l.hidden == 0 {
            return None;
        }
        let units = l.hidden.div_ceil(most);
        let wide = if l.is_double() { 2 } else { 1 };
        let pack = 4 / wide;
        let width = if l.hidden.is_multiple_of(pack) && l.hidden >= 32 * pack { pack } else { 1 };
        let turns = l.hidden.div_ceil(32 * width);
        let of_warp = units.div_ceil(WARPS);
        let kept = of_warp * l.gates * turns * width * wide;
        let is_kept = kept <= KEPT;
        let of_warp = if is_kept { of_warp } else { units.div_ceil(MANY_WARPS) };
        let width = if is_kept { width } else { 1 };
        let many = wide > 1 || is_kept && kept > MANY_KEPT;
        Some(UnitLayout {
            blocks: l.hidden.div_ceil(units),
            units,
            warps: units.div_ceil(of_warp),
            of_warp,
            is_kept,
            width,
            turns: l.hidden.div_ceil(32 * width),
            tile: l.batch.next_power_of_two().min(if many { 4 } else { 8 }),
        })
    }

    /// Whether it is estimated to be faster than a block for each direction and element of the batch.
    fn is_worth(&self, l: &Layer, cell: CellKind, processors: u32) -> bool {
        let weights = (l.rows() * l.hidden) as f64;
        let turns = (l.reversed.len() * l.batch).div_ceil(processors as usize) as f64;
        let alone = turns * (STEP_ALONE + weights / ALONE);
        let phases = if cell == CellKind::GruResetBefore { 2.0 } else { 1.0 };
        let blocks = (self.blocks * l.reversed.len()) as f64;
        let own = (self.units * l.gates * l.hidden) as f64;
        let read = if self.is_kept { 0.0 } else { own * l.dtype.size() as f64 / BYTES };
        let products = own * l.batch as f64 / PRODUCTS;
        phases * (BARRIER + ARRIVAL * blocks + STEP) + read.max(products) < alone
    }
}

/// A product of some gates' weights with a state.
struct GateProduct {
    /// The gates, and slots for them: a power of two.
    gates: std::ops::Range<usize>,
    slots: usize,
    /// The array, and where the state of the direction begins there.
    state: &'static str,
    from: &'static str,
}

/// Writes the function of a layer.
struct StepWriter<'a> {
    l: &'a Layer,
    grid: UnitLayout,
    kind: &'static str,
    real: &'static str,
    t: Statements,
}

impl StepWriter<'_> {
    fn line(&mut self, depth: usize, text: impl AsRef<str>) {
        self.t.line(depth, text);
    }

    /// The weight of a gate of `unit` for the element `k` of the state.
    fn weight(&self, gate: &str) -> String {
        let (rows, hidden) = (self.l.rows(), self.l.hidden);
        self.l.load(&format!("a2[(direction * {rows} + {gate} * {hidden} + unit) * {hidden} + k]"))
    }

    /// The block's units, weights that stay, and the first states.
    fn begin(&mut self, initial: &[(&str, &str)]) {
        let UnitLayout { blocks, units, of_warp, width, turns, .. } = self.grid;
        let (kind, real, hidden, batch) = (self.kind, self.real, self.l.hidden, self.l.batch);
        self.line(1, "int warp = threadIdx.x / 32, lane = threadIdx.x % 32;");
        self.line(1, format!("{kind} direction = blockIdx.x / {blocks};"));
        self.line(1, format!("{kind} begin = blockIdx.x % {blocks} * {units};"));
        self.line(
            1,
            format!("{kind} end = begin + {units} < {hidden} ? begin + {units} : {hidden};"),
        );
        if self.grid.is_kept {
            let (gates, each) = (self.l.gates, turns * width);
            self.line(1, format!("{real} kept[{of_warp}][{gates}][{each}];"));
            for (depth, name, n) in [(1, "p", of_warp), (2, "gate", gates), (3, "i", each)] {
                self.line(depth, "#pragma unroll");
                self.line(depth, format!("for (int {name} = 0; {name} < {n}; ++{name}) {{"));
            }
            self.line(4, format!("{kind} unit = begin + warp * {of_warp} + p;"));
            let k = format!("(i / {width} * 32 + lane) * {width} + i % {width}");
            self.line(4, format!("{kind} k = {k};"));
            self.line(4, "kept[p][gate][i] = 0;");
            let weight = self.weight("gate");
            self.line(4, format!("if (unit < end && k < {hidden}) kept[p][gate][i] = {weight};"));
            for depth in [3, 2, 1] {
                self.line(depth, "}");
            }
        }
        let (threads, first) = (32 * self.grid.warps, "PHASE(0)");
        let all = format!("{kind} i = threadIdx.x; i < {}; i += {threads}", units * batch);
        self.line(1, format!("{first} for ({all}) {{"));
        self.line(2, format!("{kind} unit = begin + i % {units};"));
        self.line(
            2,
            format!("{kind} place = (direction * {batch} + i / {units}) * {hidden} + unit;"),
        );
        self.line(2, "if (unit >= end) continue;");
        for (to, from) in initial {
            let value = self.l.load(&format!("{from}[place]"));
            self.line(2, format!("{to}[place] = {value};"));
        }
        self.line(1, "}");
        self.line(1, format!("for (int step = 0; step < {}; ++step) {{", self.l.steps));
    }

    /// The head of a phase of a step, and of its loops: a lane has one gate of `unit` and one `element` of the batch, if it has any.
    fn phase(&mut self, number: &str, slots: usize, gates: usize) {
        let (kind, l, tile) = (self.kind, self.l, self.grid.tile);
        let (directions, state) = (l.reversed.len(), l.batch * l.hidden);
        let (steps, batch, rows, hidden) = (l.steps, l.batch, l.rows(), l.hidden);
        let (time, of_warp) = (l.time(), self.grid.of_warp);
        self.line(2, "wait_for_grid(grid);");
        self.line(2, format!("PHASE({number}) {{"));
        self.line(3, format!("{kind} at = {time};"));
        self.line(3, format!("{kind} inner = direction * {state};"));
        self.line(3, format!("{kind} from = step % 2 * {} + inner;", directions * state));
        self.line(3, format!("{kind} into = (step + 1) % 2 * {} + inner;", directions * state));
        self.line(3, format!("for ({kind} first = 0; first < {batch}; first += {tile}) {{"));
        self.line(4, "#pragma unroll");
        self.line(4, format!("for (int p = 0; p < {of_warp}; ++p) {{"));
        self.line(5, format!("{kind} unit = begin + warp * {of_warp} + p;"));
        self.line(5, "if (unit >= end) break;");
        self.line(5, format!("int slot = lane % {slots};"));
        self.line(5, format!("{kind} element = first + lane / {slots};"));
        let mut own = format!("lane < {} && element < {batch}", slots * tile);
        if gates < slots {
            own += &format!(" && slot < {gates}");
        }
        self.line(5, format!("bool own = {own};"));
        self.line(5, format!("{kind} place = inner + element * {hidden} + unit;"));
        let result = format!("((at * {directions} + direction) * {batch} + element) * {hidden}");
        self.line(5, format!("{kind} result = {result} + unit;"));
        let gates = format!("((direction * {steps} + at) * {batch} + element) * {rows}");
        self.line(5, format!("{kind} gates = {gates} + unit;"));
    }

    /// What the input, and the biases of the recurrence if `with_bias`, give to a lane's gate; `first` is the gate of slot 0.
    fn given(&mut self, first: usize, with_bias: bool) {
        let (real, rows, hidden) = (self.real, self.l.rows(), self.l.hidden);
        let at = format!("(slot + {first}) * {hidden}");
        let place = format!("direction * {} + {rows} + {at} + unit", 2 * rows);
        let bias = self.l.load(&format!("a3[{place}]"));
        self.line(5, format!("{real} given = 0, bias = 0;"));
        self.line(5, "if (own) {");
        self.line(6, format!("given = s0[gates + {at}];"));
        self.line(6, format!("bias = {bias};"));
        self.line(5, "}");
        if with_bias {
            self.line(5, "given += bias;");
        }
    }

    /// `total`: a lane's sum of products.
    fn product(&mut self, p: &GateProduct) {
        let UnitLayout { is_kept, width, turns, tile, .. } = self.grid;
        let (kind, real, hidden, batch) = (self.kind, self.real, self.l.hidden, self.l.batch);
        let (first, count) = (p.gates.start, p.gates.len());
        self.line(5, format!("{real} sum[{}] = {{}};", p.slots * tile));
        self.line(5, if is_kept { "#pragma unroll" } else { "#pragma unroll 4" });
        self.line(5, format!("for (int i = 0; i < {turns}; ++i) {{"));
        self.line(6, format!("{kind} k = (i * 32 + lane) * {width};"));
        if !hidden.is_multiple_of(32 * width) {
            self.line(6, format!("if (k >= {hidden}) break;"));
        }
        if !is_kept {
            self.line(6, format!("{real} weight[{count}];"));
            for gate in 0..count {
                let weight = self.weight(&(first + gate).to_string());
                self.line(6, format!("weight[{gate}] = {weight};"));
            }
        }
        self.line(6, "#pragma unroll");
        self.line(6, format!("for (int j = 0; j < {tile}; ++j) {{"));
        let element = match batch.is_multiple_of(tile) {
            true => "first + j".to_string(),
            false => format!("first + j < {batch} ? first + j : {}", batch - 1),
        };
        self.line(7, format!("{kind} of = {} + ({element}) * {hidden} + k;", p.from));
        match width {
            1 => self.line(7, format!("{real} state[1] = {{{}[of]}};", p.state)),
            _ => {
                let pack =
                    format!("Pack<{real}, {width}> pack = load_pack<{width}>(&{}[of]);", p.state);
                self.line(7, pack);
            }
        }
        self.line(7, "#pragma unroll");
        self.line(7, format!("for (int gate = 0; gate < {count}; ++gate)"));
        self.line(8, "#pragma unroll");
        self.line(8, format!("for (int e = 0; e < {width}; ++e)"));
        let weight = match is_kept {
            true => format!("kept[p][gate + {first}][i * {width} + e]"),
            false => "weight[gate]".into(),
        };
        let state = if width == 1 { "state[e]" } else { "pack.at[e]" };
        self.line(9, format!("sum[j * {} + gate] += {weight} * {state};", p.slots));
        self.line(6, "}");
        self.line(5, "}");
        self.line(5, format!("{real} total = scattered_sum(sum);"));
    }

    /// Another slot's number, for the same element.
    fn of_slot(&self, name: &str, slot: usize, slots: usize) -> String {
        let other = format!("lane / {slots} * {slots} + {slot}");
        format!("__shfl_sync(0xffffffffu, {name}, {other})")
    }

    /// What the lanes of a slot store of a step: its state, a state beside it, and results.
    fn store(&mut self, slot: usize, beside: Option<&str>) {
        let (real, last) = (self.real, self.l.steps - 1);
        self.line(5, format!("if (own && slot == {slot}) {{"));
        self.line(6, format!("s1[into + element * {} + unit] = ({real})shown;", self.l.hidden));
        if let Some(next) = beside {
            self.line(6, format!("s2[place] = {next};"));
        }
        self.line(6, self.l.store("y0[result]", "shown"));
        self.line(6, format!("if (step == {last}) {{"));
        self.line(7, self.l.store("y1[place]", "shown"));
        if let Some(next) = beside {
            self.line(7, self.l.store("y2[place]", next));
        }
        self.line(6, "}");
        self.line(5, "}");
    }

    fn end_phase(&mut self) {
        for depth in [4, 3, 2] {
            self.line(depth, "}");
        }
    }

    fn lstm(&mut self) {
        let real = self.real;
        self.begin(&[("s1", "a4"), ("s2", "a5")]);
        self.phase("step + 1", 4, 4);
        self.given(0, true);
        self.line(5, format!("{real} cell = 0;"));
        self.line(5, "if (own && slot == 0) cell = s2[place];");
        self.product(&GateProduct { gates: 0..4, slots: 4, state: "s1", from: "from" });
        self.line(5, "total += given;");
        self.line(5, format!("{real} open = slot == 3 ? tanh(total) : logistic(total);"));
        for (slot, name) in [(1, "out"), (2, "forget"), (3, "fresh")] {
            let value = self.of_slot("open", slot, 4);
            self.line(5, format!("{real} {name} = {value};"));
        }
        self.line(5, format!("{real} next = forget * cell + open * fresh;"));
        self.line(5, format!("{real} shown = out * tanh(next);"));
        self.store(0, Some("next"));
        self.end_phase();
        self.line(1, "}");
    }

    fn gru_after(&mut self) {
        let (real, hidden) = (self.real, self.l.hidden);
        self.begin(&[("s1", "a4")]);
        self.phase("step + 1", 4, 3);
        self.given(0, false);
        self.line(5, format!("{real} old = 0;"));
        self.line(5, format!("if (own) old = s1[from + element * {hidden} + unit];"));
        self.product(&GateProduct { gates: 0..3, slots: 4, state: "s1", from: "from" });
        self.line(5, "total += bias;");
        self.line(5, format!("{real} open = logistic(given + total);"));
        for (slot, name) in [(0, "update"), (1, "reset")] {
            let value = self.of_slot("open", slot, 4);
            self.line(5, format!("{real} {name} = {value};"));
        }
        self.line(5, format!("{real} fresh = tanh(given + reset * total);"));
        self.line(5, format!("{real} shown = (1 - update) * fresh + update * old;"));
        self.store(2, None);
        self.end_phase();
        self.line(1, "}");
    }

    fn gru_before(&mut self) {
        let (real, hidden) = (self.real, self.l.hidden);
        self.begin(&[("s1", "a4")]);
        self.phase("2 * step + 1", 2, 2);
        self.given(0, true);
        self.line(5, format!("{real} old = 0;"));
        self.line(5, format!("if (own) old = s1[from + element * {hidden} + unit];"));
        self.product(&GateProduct { gates: 0..2, slots: 2, state: "s1", from: "from" });
        self.line(5, format!("{real} open = logistic(given + total);"));
        self.line(5, "if (own && slot == 0) s3[place] = open;");
        self.line(5, "if (own && slot == 1) s2[place] = open * old;");
        self.end_phase();
        self.phase("2 * step + 2", 1, 1);
        self.given(2, true);
        self.line(5, format!("{real} old = 0, update = 0;"));
        self.line(5, "if (own) {");
        self.line(6, format!("old = s1[from + element * {hidden} + unit];"));
        self.line(6, "update = s3[place];");
        self.line(5, "}");
        self.product(&GateProduct { gates: 2..3, slots: 1, state: "s2", from: "inner" });
        self.line(5, format!("{real} fresh = tanh(given + total);"));
        self.line(5, format!("{real} shown = (1 - update) * fresh + update * old;"));
        self.store(0, None);
        self.end_phase();
        self.line(1, "}");
    }
}

impl Layer {
    /// The same with a persistent kernel for the steps, where that is chosen.
    pub fn with_persistent_kernel(
        &self,
        mut procedure: Procedure,
        args: &[TypedShape],
        cell: CellKind,
        tuning: Tuning,
    ) -> Procedure {
        let Some(grid) = UnitLayout::choose(self, tuning.processors) else { return procedure };
        let is_chosen = match tuning.persistent_rnn {
            Policy::Never => false,
            Policy::WhenFaster => grid.is_worth(self, cell, tuning.processors),
            Policy::Always => true,
        };
        if !is_chosen {
            return procedure;
        }
        let (blocks, threads) = (self.reversed.len() * grid.blocks, 32 * grid.warps as u32);
        let (kind, real) = (self.index(args), self.real());
        let mut w = StepWriter { l: self, grid, kind, real, t: Statements::default() };
        match cell {
            CellKind::Lstm => w.lstm(),
            CellKind::GruResetAfter => w.gru_after(),
            CellKind::GruResetBefore => w.gru_before(),
        }
        // States beside the one that all blocks read, and results.
        let (beside, results) = match cell {
            CellKind::Lstm => (1, 3),
            CellKind::GruResetAfter => (0, 2),
            CellKind::GruResetBefore => (2, 2),
        };
        let state = [self.reversed.len(), self.batch, self.hidden];
        let own = self.scratch_type();
        procedure.scratch.push((own, [vec![2], state.to_vec()].concat()));
        procedure.scratch.extend((0..beside).map(|_| (own, state.to_vec())));
        let mut operands: Vec<(Operand, bool)> =
            (2..args.len()).map(|i| (Operand::Argument(i), false)).collect();
        operands.push((Operand::Scratch(0), false));
        operands.extend((1..procedure.scratch.len()).map(|i| (Operand::Scratch(i), true)));
        operands.extend((0..results).map(|i| (Operand::Result(i), true)));
        let (name, body) = ("steps_of_all", w.t.0);
        let blocks = blocks as u64;
        procedure.cooperative =
            Some(ProcedureLaunch { name, blocks, threads, operands, faults: false, body });
        procedure
    }
}
