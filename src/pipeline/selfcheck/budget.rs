//! How much of a check fits into memory and time, computed before anything runs; and runs of the source on inputs that
//! it accepts.

use super::report::{InputSet, SelfCheck};
use super::{Check, Checked};
use mlc_backends::{BackendError, Executable, memory};
use mlc_cpu::Cpu;
use mlc_dsl::ir::{Program, Tensor, Type};
use mlc_dsl::plan::Plan;
use mlc_extract::resources::{self, CHECKED_BYTES, CHECKED_OPERATIONS, RunResources, Symbols};
use mlc_verify::random_inputs::{self, Relations, Style};

/// Bytes that comparing two elements takes: six numbers of each at once.
const COMPARED: u64 = 64;

/// The room for a check.
pub(super) struct RunBudget {
    /// What the symbols stand for.
    pub symbols: Symbols,
    /// Input sets that fit.
    pub sets: usize,
    /// Whether the f64 interpreter fits.
    pub reference: bool,
    /// Bytes that a run of the source takes.
    pub bytes: u64,
    /// Operations of drawing its inputs.
    pub drawn: f64,
    /// Bytes that inputs and results of a set take.
    pub set: u64,
    /// Bytes that a check may take.
    pub limit: u64,
    /// What symbols have to be for the program to run.
    pub relations: Relations,
    /// Operations of one run of the source, and of both with their inputs.
    pub source: f64,
    pub operations: f64,
}

impl Checked {
    /// Nothing was compared.
    pub(super) fn not(report: SelfCheck, why: String) -> Checked {
        Checked { report: SelfCheck { not_checked: Some(why), ..report }, failure: None }
    }
}

impl Check<'_> {
    /// The processor, with the memory that a check may take.
    pub(super) fn cpu(&self) -> Cpu {
        Cpu::new(self.threads).within(self.guard.memory)
    }

    /// Bytes that it may take.
    fn limit(&self) -> u64 {
        self.guard.memory.unwrap_or_else(|| CHECKED_BYTES.min(memory::available()))
    }

    /// True if all values of a program on these inputs can be kept at once, by the f64 interpreter as well.
    pub(super) fn holds_all(&self, program: &Program, inputs: &[Tensor]) -> bool {
        let symbols = resources::symbols_of(program, inputs);
        let types = program.nodes.iter().flat_map(|n| &n.types);
        let all = types.map(|t| resources::size(t, &symbols, 8));
        all.fold(0, u64::saturating_add) <= self.limit()
    }

    /// The room for holding a plan against its source, or why there is none. Symbols are small; where that is too much they
    /// are as small as can be.
    pub(super) fn room(&self, source: &Plan, result: &Plan) -> Result<RunBudget, String> {
        let usual = random_inputs::symbols(&source.program, self.library);
        let mut tries = vec![usual.clone()];
        for most in [2, 1] {
            let smaller: Symbols = usual.iter().map(|(s, &n)| (s.clone(), n.min(most))).collect();
            if tries.last() != Some(&smaller) {
                tries.push(smaller);
            }
        }
        let mut why = String::new();
        for symbols in tries {
            match self.room_at(source, result, symbols) {
                Ok(room) => return Ok(room),
                Err(reason) => why = reason,
            }
        }
        Err(why)
    }

    /// Finds what symbols have to be for the source, which is `compiled`, to run, if it does not run at the usual extents.
    pub(super) fn relate(
        &self,
        source: &Program,
        plans: (&Plan, &Plan),
        compiled: &dyn Executable,
        room: &mut RunBudget,
    ) {
        if room.symbols.len() < 2 {
            return;
        }
        let trial = |program: &Program, inputs: &[Tensor]| {
            let compiled = self.compiled(&self.plan(program)).map_err(|_| String::new())?;
            tried(&*compiled, inputs)
        };
        let style = Style::Ordinary;
        let inputs = random_inputs::styled(source, self.library, style, self.seed, &room.symbols);
        let Some(Err(failing)) = inputs.map(|inputs| tried(compiled, &inputs)) else {
            return;
        };
        let (seed, usual) = (self.seed, &room.symbols);
        let found = random_inputs::relations(source, self.library, seed, usual, failing, &trial);
        let Some(relations) = found else { return };
        let symbols = random_inputs::related(&room.symbols, &relations);
        if let Ok(there) = self.room_at(plans.0, plans.1, symbols) {
            *room = RunBudget { relations, ..there };
        }
    }

    /// The same as [`room`](Self::room) for these extents.
    pub(super) fn room_at(
        &self,
        source: &Plan,
        result: &Plan,
        symbols: Symbols,
    ) -> Result<RunBudget, String> {
        let limit = self.limit();
        let (s, r) = (
            RunResources::of_plan(source, self.library, &symbols),
            RunResources::of_plan(result, self.library, &symbols),
        );
        let reference = resources::reference_bytes(&source.program, &symbols);
        let elements = |t: &Type| resources::size(t, &symbols, 1);
        let outputs = source.program.outputs.iter().map(|(_, v)| elements(source.program.ty(*v)));
        let compared = outputs.max().unwrap_or(0).saturating_mul(COMPARED);
        // Inputs and results of every set are kept, and a set beside the first one where a result looks wrong.
        let set = s.inputs.saturating_add(s.results).saturating_add(r.results);
        let passing = s.bytes.max(r.bytes).saturating_add(compared);
        let all = set.saturating_add(passing);
        let larger = if s.bytes >= r.bytes { &s } else { &r };
        if all > limit {
            return Err(format!(
                "comparing takes {}, more than {}: {}",
                mlc_dsl::diagnostics::message_text::bytes(all),
                mlc_dsl::diagnostics::message_text::bytes(limit),
                larger.largest
            ));
        }
        let given = !self.guard.given.is_empty();
        let work = s.drawn_operations() + r.operations;
        if work > CHECKED_OPERATIONS && !given {
            let slower = if s.operations >= r.operations { &s } else { &r };
            return Err(format!(
                "comparing takes {work:.1e} operations, more than {CHECKED_OPERATIONS:.0e}: {}",
                slower.slowest
            ));
        }
        let sets = (limit - passing) / set.max(1);
        Ok(RunBudget {
            symbols,
            sets: usize::try_from(sets).unwrap_or(usize::MAX).max(1),
            reference: reference.saturating_add(all) <= limit,
            bytes: s.bytes,
            drawn: s.drawn_operations() - s.operations,
            set,
            limit,
            relations: vec![],
            source: s.operations,
            operations: work,
        })
    }

    /// The source's runs. Integers that a drawn set has where the model takes only others are replaced by such as it
    /// takes.
    pub(super) fn sources(
        &self,
        compiled: &dyn Executable,
        sets: &mut [InputSet],
    ) -> Vec<Result<Vec<Tensor>, BackendError>> {
        let mut out = Vec::with_capacity(sets.len());
        for set in sets {
            let mut run = compiled.run(&set.inputs);
            if run.is_err() && set.style.is_some() {
                for n in [0, 1, -1] {
                    let inputs = with_integers(&set.inputs, n);
                    if let Ok(done) = compiled.run(&inputs) {
                        set.name = format!("{}, integers {n}", set.name);
                        (set.inputs, run) = (inputs, Ok(done));
                        break;
                    }
                }
            }
            out.push(run);
        }
        out
    }
}

/// Runs a plan; if an operator fails, what messages call it.
fn tried(compiled: &dyn Executable, inputs: &[Tensor]) -> Result<(), String> {
    match compiled.run(inputs) {
        Ok(_) => Ok(()),
        Err(BackendError::Operator { op, .. }) => Err(op),
        Err(_) => Err(String::new()),
    }
}

/// The inputs with every integer replaced by one number.
pub(crate) fn with_integers(inputs: &[Tensor], n: i64) -> Vec<Tensor> {
    let of = |t: &Tensor| match t.dtype().is_int() {
        true => Tensor::from_i64(t.dtype(), t.shape().to_vec(), &vec![n; t.len()]),
        false => t.clone(),
    };
    inputs.iter().map(of).collect()
}
