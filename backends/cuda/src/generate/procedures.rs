//! Operators whose kernels are written, not generated from a meaning: their launches, by the operators' names.

use super::super::launch::{Argument, Launch, Place};
use super::kernel::{KernelProgram, known, unsupported};
use super::{Generator, bytes_of, identifier, places, spelling, take};
use super::{choices, elimination, recurrent, regions, trees};
use mlc_backends::BackendError;
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{DType, NodeId, Value};
use std::collections::HashMap;

/// A value's type.
pub type Known = (DType, Vec<usize>);

/// A pointer that a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// An argument of the operator: `a0`, `a1`, ...
    Argument(usize),
    /// A result: `y0`, `y1`, ...
    Result(usize),
    /// Scratch memory of the procedure: `s0`, `s1`, ...
    Scratch(usize),
}

/// One launch.
pub struct Part {
    /// What the function's name ends with.
    pub name: &'static str,
    /// Blocks; without any there is nothing to launch.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// What it takes, and whether it writes there.
    pub operands: Vec<(Operand, bool)>,
    /// Whether an index may be out of range: then `NODE` in the statements is the operator's number in the record.
    pub faults: bool,
    /// Its statements.
    pub body: String,
}

/// The launches of an application, in order.
pub struct Procedure {
    /// What lies in its scratch memory.
    pub scratch: Vec<Known>,
    /// The launches.
    pub parts: Vec<Part>,
}

/// Writes the launches for arguments and results of these types.
type Writer = fn(&Env, &[Known], &[Known]) -> Result<Procedure, String>;

const WRITERS: &[(&str, Writer)] = &[
    ("lstm", recurrent::lstm),
    ("gru", recurrent::gru),
    ("bit_cast", places::bit_cast),
    ("sort_places", places::sort_places),
    ("scatter", places::scatter),
    ("det", elimination::det),
    ("roi_align", regions::roi_align),
    ("tree_ensemble", trees::tree_ensemble),
    ("unique_rows", choices::unique_rows),
    ("choose_boxes", choices::choose_boxes),
];

/// True if there is code for the operator of this name.
pub fn is_known(operator: &str) -> bool {
    WRITERS.iter().any(|w| w.0 == operator)
}

/// The launches of an application of the operator of this name; none if there is no code for it.
pub fn write(
    operator: &str,
    env: &Env,
    args: &[Known],
    results: &[Known],
) -> Option<Result<Procedure, String>> {
    let (_, writer) = WRITERS.iter().find(|w| w.0 == operator)?;
    Some(writer(env, args, results))
}

/// Gives these results of a node their places.
pub fn place_results(
    kernel: &KernelProgram,
    node: NodeId,
    is_placed: &dyn Fn(&Value) -> bool,
    places: &mut HashMap<Value, Place>,
    scratch: &mut u64,
) -> Result<(), BackendError> {
    let results = 0..kernel.program.node(node).types.len() as u32;
    for v in results.map(|output| Value { node, output }).filter(is_placed) {
        let place = match kernel.outputs.iter().find(|o| o.0 == v) {
            Some((_, place)) => *place,
            None => Place::Arena(take(scratch, bytes_of(&known(&kernel.program, v)?))?),
        };
        places.insert(v, place);
    }
    Ok(())
}

impl Generator<'_> {
    /// The launches of a procedure; its results, and what else is to be equal to them, become places.
    pub(super) fn procedure(
        &mut self,
        (k, first): (usize, usize),
        kernel: &KernelProgram,
        node: NodeId,
        places: &mut HashMap<Value, Place>,
        scratch: &mut u64,
    ) -> Result<Vec<Launch>, BackendError> {
        let procedure = &kernel.procedures[&node];
        let of = kernel.program.node(node);
        place_results(kernel, node, &|_| true, places, scratch)?;
        let mut own = vec![];
        for ty in &procedure.scratch {
            own.push(Place::Arena(take(scratch, bytes_of(ty))?));
        }
        let mut out = vec![];
        for part in procedure.parts.iter().filter(|p| p.blocks > 0) {
            let grid = u32::try_from(part.blocks).ok().filter(|&b| b <= i32::MAX as u32);
            let grid =
                grid.ok_or_else(|| unsupported(format!("a launch of {} blocks", part.blocks)))?;
            let (mut parameters, mut arguments) = (vec![], vec![]);
            for &(operand, written) in &part.operands {
                let (name, place, ty) = match operand {
                    Operand::Argument(i) => {
                        (format!("a{i}"), places[&of.args[i]], known(&kernel.program, of.args[i])?)
                    }
                    Operand::Result(i) => {
                        let v = Value { node, output: i as u32 };
                        (format!("y{i}"), places[&v], known(&kernel.program, v)?)
                    }
                    Operand::Scratch(i) => (format!("s{i}"), own[i], procedure.scratch[i].clone()),
                };
                let constant = if written { "" } else { "const " };
                parameters.push(format!("GLOBAL({constant}{}) {name}", spelling::stored(ty.0)));
                self.reads(place);
                arguments.push(Argument { place, bytes: bytes_of(&ty), dtype: ty.0, written });
            }
            if part.faults {
                parameters.push("GLOBAL(unsigned long long) fault".into());
                arguments.push(Argument::fault());
            }
            let number = (first + node.0 as usize).to_string();
            let body = part.body.replace("NODE", &number);
            let text = format!("({}) {{\n{body}}}\n", parameters.join(", "));
            let of_kernel = self.plan.kernels.get(k).map_or("copy", |kernel| &kernel.name);
            let name = identifier(&format!("{of_kernel}_{}", part.name));
            let name = format!("kernel_{}_{name}", self.names.len());
            let (block, key) = (part.threads, format!("{} {text}", part.threads));
            let function = self.names.entry(key).or_insert(name).clone();
            let what = kernel.program.ty(Value { node, output: 0 });
            let source = format!(
                "// {}: {what}, {} of its launches.\nKERNEL({block}) {function}{text}",
                self.kernel_words(k),
                part.name
            );
            out.push(Launch { function, source, grid: [grid, 1, 1], block, arguments, kernel: k });
        }
        Ok(out)
    }
}
