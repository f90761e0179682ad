//! A launch from the statements of its function: its parameters, its name and its text.

use super::emit::Emitter;
use super::grid::GridSize;
use super::kernel::{KernelProgram, unsupported};
use super::stages::Stage;
use super::{Generator, KernelSite, WAIT};
use crate::launch::{Argument, Launch};
use mlc_backends::BackendError;
use mlc_dsl::ir::NodeId;
use std::hash::{DefaultHasher, Hasher};

/// The parameters of a function, and the arguments that they get.
#[derive(Default)]
pub(super) struct Signature {
    parameters: Vec<String>,
    arguments: Vec<Argument>,
    /// What the function takes as numbers behind them, `m0` and on.
    pub(super) numbers: Vec<i64>,
}

/// The statements of a function.
pub(super) struct FunctionBody {
    /// Whether it records faults.
    pub(super) faults: bool,
    /// Registers of a thread, if not the default.
    pub(super) registers: Option<u32>,
    /// What is before the function waits for the launches ahead of it.
    pub(super) ahead: String,
    pub(super) text: String,
}

impl From<Emitter<'_>> for FunctionBody {
    fn from(e: Emitter<'_>) -> FunctionBody {
        let text = e.text();
        FunctionBody { faults: e.faults, registers: e.registers, ahead: e.ahead, text }
    }
}

impl Signature {
    pub(super) fn push(&mut self, parameter: String, argument: Argument) {
        self.parameters.push(parameter);
        self.arguments.push(argument);
    }
}

impl Generator<'_> {
    /// The launch of a function whose body an emitter has written.
    pub(super) fn assembled(
        &mut self,
        site: KernelSite<'_>,
        what: String,
        body: FunctionBody,
        mut signature: Signature,
        grid: GridSize,
    ) -> Result<Launch, BackendError> {
        let GridSize { blocks, threads: block } = grid;
        let grid = u32::try_from(blocks).ok().filter(|&b| b <= i32::MAX as u32);
        let grid = grid.ok_or_else(|| unsupported(format!("a launch of {blocks} blocks")))?;
        if body.faults {
            signature.push("GLOBAL(unsigned long long) fault".into(), Argument::fault());
        }
        let numbers = (0..signature.numbers.len()).map(|i| format!("long long m{i}"));
        signature.parameters.extend(numbers);
        let parameters = signature.parameters.join(", ");
        let text = format!("({parameters}) {{\n{}{WAIT}{}}}\n", body.ahead, body.text);
        let function = self.function_name(format!("{block} {text}"), site.name);
        let limits = match body.registers {
            Some(registers) => format!("{block}, {registers}"),
            None => block.to_string(),
        };
        let source = format!("// {what}\nKERNEL({limits}) {function}{text}");
        Ok(Launch {
            function,
            source,
            grid: [grid, 1, 1],
            block,
            arguments: signature.arguments,
            numbers: signature.numbers,
            kernel: site.number,
            fallback: None,
        })
    }

    /// The name of a function of this text. Where extents are open it depends on the text alone: sets of extents have functions in common.
    pub(super) fn function_name(&mut self, text: String, of: &str) -> String {
        if let Some(known) = self.names.get(&text) {
            return known.clone();
        }
        let mut name = format!("kernel_{}_{}", self.names.len(), identifier(of));
        if !self.forms.is_empty() {
            let mut hasher = DefaultHasher::new();
            hasher.write(text.as_bytes());
            name = format!("kernel_{:016x}", hasher.finish());
            while self.names.values().any(|other| *other == name) {
                name.push('_');
            }
        }
        self.names.insert(text, name.clone());
        name
    }

    /// What a function is, for its reader.
    pub(super) fn describe(&self, k: usize, kernel: &KernelProgram, stage: &Stage) -> String {
        let (kernel, ty) = (self.kernel_words(k), kernel.program.ty(stage.value));
        format!("{kernel}: {ty}, {}.", stage.schedule.words())
    }

    /// A kernel of the plan and what it computes.
    pub(super) fn kernel_words(&self, k: usize) -> String {
        match self.plan.kernels.get(k) {
            Some(kernel) => {
                let name = |n: &NodeId| self.library.node_name(&self.plan.program, *n);
                let nodes: Vec<_> = kernel.nodes.iter().map(name).collect();
                format!("Kernel `{}` of {}", kernel.name, nodes.join(", "))
            }
            None => "An output that is there already".into(),
        }
    }
}

/// A name of C++ from a kernel's.
fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
