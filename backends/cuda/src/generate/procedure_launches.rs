//! Turns the hand-written launches of a procedure into launches of a plan.

use super::kernel::{KernelProgram, known_type, unsupported};
use super::procedure::{Operand, ProcedureLaunch, Prologue, TypedShape};
use super::{Generator, KernelSite, StageMemory, WAIT, bytes_of, spelling};
use crate::launch::{Argument, Launch, Place};
use mlc_backends::BackendError;
use mlc_dsl::ir::{NodeId, Value};
use std::collections::HashMap;

/// Gives these results of a node their places.
pub fn place_results(
    kernel: &KernelProgram,
    node: NodeId,
    is_placed: &dyn Fn(&Value) -> bool,
    memory: &mut StageMemory,
) -> Result<(), BackendError> {
    let results = 0..kernel.program.node(node).types.len() as u32;
    for v in results.map(|output| Value { node, output }).filter(is_placed) {
        let place = match kernel.outputs.iter().find(|o| o.0 == v) {
            Some((_, place)) => *place,
            None => memory.allocate(&known_type(&kernel.program, v)?)?,
        };
        memory.places.insert(v, place);
    }
    Ok(())
}

/// Where the values of a procedure are.
struct ProcedureSite<'a> {
    of: KernelSite<'a>,
    kernel: &'a KernelProgram,
    node: NodeId,
    places: &'a HashMap<Value, Place>,
    scratch: Vec<(Place, TypedShape)>,
}

impl ProcedureSite<'_> {
    /// The name of an operand in a function, its place and its type.
    fn operand(&self, operand: Operand) -> Result<(String, Place, TypedShape), BackendError> {
        let program = &self.kernel.program;
        let value = |name: String, v: Value| Ok((name, self.places[&v], known_type(program, v)?));
        match operand {
            Operand::Argument(i) => value(format!("a{i}"), program.node(self.node).args[i]),
            Operand::Result(i) => {
                value(format!("y{i}"), Value { node: self.node, output: i as u32 })
            }
            Operand::Scratch(i) => {
                let (place, ty) = &self.scratch[i];
                Ok((format!("s{i}"), *place, ty.clone()))
            }
        }
    }
}

impl Generator<'_> {
    /// The launches of a procedure; its results, and what else is to be equal to them, become places.
    pub(super) fn procedure(
        &mut self,
        of: KernelSite<'_>,
        kernel: &KernelProgram,
        node: NodeId,
        memory: &mut StageMemory,
    ) -> Result<Vec<Launch>, BackendError> {
        let procedure = &kernel.procedures[&node];
        place_results(kernel, node, &|_| true, memory)?;
        let mut own = vec![];
        for ty in &procedure.scratch {
            own.push((memory.allocate(ty)?, ty.clone()));
        }
        let places = &memory.places;
        let site = ProcedureSite { of, kernel, node, places, scratch: own };
        if let Some(before) = &procedure.prologue {
            memory.scratch = self.prologue(before, &site, memory.scratch)?;
        }
        let mut out = vec![];
        for part in procedure.launches.iter().filter(|p| p.blocks > 0) {
            out.push(self.part(part, &site, false)?);
        }
        if let Some(part) = &procedure.cooperative {
            let mut launch = self.part(part, &site, true)?;
            launch.fallback = out.pop().map(Box::new);
            out.push(launch);
        }
        Ok(out)
    }

    /// Adds the launches of what is computed from its meaning.
    fn prologue(
        &mut self,
        before: &Prologue,
        site: &ProcedureSite<'_>,
        scratch: u64,
    ) -> Result<u64, BackendError> {
        let (mut inputs, mut types) = (vec![], vec![]);
        for &i in &before.arguments {
            let (_, place, ty) = site.operand(Operand::Argument(i))?;
            inputs.push(place);
            types.push(ty);
        }
        let program = (before.program)(self.library, &types).map_err(unsupported)?;
        let outputs = [site.scratch[before.into].0];
        let kernel = KernelProgram::of(program, self.library, inputs, &outputs, self.target)?;
        self.launch_stages(site.of, &kernel, scratch)
    }

    /// The launch of a part; `together` if its blocks wait for each other.
    fn part(
        &mut self,
        part: &ProcedureLaunch,
        site: &ProcedureSite<'_>,
        together: bool,
    ) -> Result<Launch, BackendError> {
        let grid = u32::try_from(part.blocks).ok().filter(|&b| b <= i32::MAX as u32);
        let grid =
            grid.ok_or_else(|| unsupported(format!("a launch of {} blocks", part.blocks)))?;
        let (mut parameters, mut arguments) = (vec![], vec![]);
        for &(operand, written) in &part.operands {
            let (name, place, ty) = site.operand(operand)?;
            let constant = if written { "" } else { "const " };
            // What other blocks write meanwhile is read from memory every time.
            let pointer = if together && written { "PLAIN" } else { "GLOBAL" };
            parameters.push(format!("{pointer}({constant}{}) {name}", spelling::stored(ty.0)));
            self.reads(place);
            arguments.push(Argument { place, bytes: bytes_of(&ty), dtype: ty.0, written });
        }
        if part.faults {
            parameters.push("GLOBAL(unsigned long long) fault".into());
            arguments.push(Argument::fault());
        }
        if together {
            parameters.push("PLAIN(unsigned) grid".into());
            arguments.push(Argument::grid());
        }
        let number = (site.of.first_node + site.node.0 as usize).to_string();
        let body = part.body.replace("NODE", &number);
        let wait = if together { "" } else { WAIT };
        let text = format!("({}) {{\n{wait}{body}}}\n", parameters.join(", "));
        let name = format!("{}_{}", site.of.name, part.name);
        let limits = part.limits(together);
        let function = self.function_name(format!("{limits} {text}"), &name);
        let what = site.kernel.program.ty(Value { node: site.node, output: 0 });
        let source = format!(
            "// {}: {what}, {} of its launches.\nKERNEL({limits}) {function}{text}",
            self.kernel_words(site.of.number),
            part.name
        );
        let (grid, block) = ([grid, 1, 1], part.threads);
        Ok(Launch {
            function,
            source,
            grid,
            block,
            arguments,
            numbers: vec![],
            kernel: site.of.number,
            fallback: None,
        })
    }
}
