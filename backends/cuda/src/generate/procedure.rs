//! Launches that are written by hand for one operator: plain data.

use mlc_dsl::ir::{DType, Program};
use mlc_dsl::library::Library;
use std::fmt::Write;

/// The element type and the extents of a value.
pub type TypedShape = (DType, Vec<usize>);

/// A pointer argument of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// An argument of the operator: `a0`, `a1`, ...
    Argument(usize),
    /// A result: `y0`, `y1`, ...
    Result(usize),
    /// Scratch memory of the procedure: `s0`, `s1`, ...
    Scratch(usize),
}

/// One hand-written launch.
pub struct ProcedureLaunch {
    /// The suffix of the function's name.
    pub name: &'static str,
    /// Blocks; without any there is nothing to launch.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Its operands, and whether it writes them.
    pub operands: Vec<(Operand, bool)>,
    /// Whether an index may be out of range: then `NODE` in the statements is the operator's number in the record.
    pub faults: bool,
    /// Its statements.
    pub body: String,
}

impl ProcedureLaunch {
    /// The launch bounds in `KERNEL`: the threads of a block, and the registers of each for a cooperative launch.
    pub fn limits(&self, is_cooperative: bool) -> String {
        match is_cooperative {
            true => format!("{}, {}", self.threads, (65536 / self.threads).min(255)),
            false => self.threads.to_string(),
        }
    }
}

/// A program computed from meanings before the launches of a procedure.
pub struct Prologue {
    /// The program, by the arguments that its inputs are.
    pub program: fn(&Library, &[TypedShape]) -> Result<Program, String>,
    /// These arguments.
    pub arguments: Vec<usize>,
    /// The scratch memory that its only output goes to.
    pub into: usize,
}

/// The launches of an application, in order.
pub struct Procedure {
    /// The types of its scratch memory.
    pub scratch: Vec<TypedShape>,
    /// What is computed before the launches.
    pub prologue: Option<Prologue>,
    /// The launches.
    pub launches: Vec<ProcedureLaunch>,
    /// A cooperative launch that replaces the last of these, where a device supports it.
    pub cooperative: Option<ProcedureLaunch>,
}

impl Procedure {
    /// A procedure of launches alone.
    pub fn new(scratch: Vec<TypedShape>, parts: Vec<ProcedureLaunch>) -> Procedure {
        Procedure { scratch, prologue: None, launches: parts, cooperative: None }
    }
}

/// The lines of a function.
#[derive(Default)]
pub struct Statements(pub String);

impl Statements {
    /// Adds a line.
    pub fn line(&mut self, depth: usize, text: impl AsRef<str>) {
        let _ = writeln!(self.0, "{}{}", "  ".repeat(depth), text.as_ref());
    }
}
