//! Weights in blocks of few bits as numbers, for targets that have no operator which decodes them: a file holds what is computed with.
//!
//! Only what the language declares as a stored type is decoded, by the kernels of this processor. Rows that are chosen first are chosen of numbers.

use crate::error::Error;
use crate::pipeline::planning::{CPU, target};
use mlc_backends::Backend;
use mlc_cpu::Cpu;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{CallId, Library};
use mlc_extract::kernels::selection::select_kernels;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The same program with its stored weights decoded; none if it has no such weights, or operators for them are `allowed`.
pub fn decoded(
    program: &Program,
    library: &Arc<Library>,
    allowed: &HashSet<CallId>,
) -> Result<Option<Program>, Error> {
    let decodes: HashSet<CallId> =
        library.stored.iter().map(|s| s.call).filter(|c| !allowed.contains(c)).collect();
    let applies = |kind: &NodeKind| matches!(kind, NodeKind::Apply(c, _) if decodes.contains(c));
    if !program.nodes.iter().any(|n| applies(&n.kind)) {
        return Ok(None);
    }
    let mut d = Decoder { library, program, builder: Builder::new(library), known: HashMap::new() };
    let mut values: HashMap<Value, Value> = HashMap::new();
    let inputs: Vec<Value> =
        program.inputs.iter().map(|(n, t)| d.builder.input(n, t.clone())).collect();
    for (i, node) in program.nodes.iter().enumerate() {
        d.builder.set_origin(&node.origin);
        let made = match &node.kind {
            NodeKind::Input(k) => vec![inputs[*k as usize]],
            NodeKind::Const(c) => vec![d.builder.constant(program.consts.get(*c).clone())],
            NodeKind::Apply(call, attrs) => {
                let args: Vec<Value> = node.args.iter().map(|a| values[a]).collect();
                let numbers = match decodes.contains(call) {
                    true => d.numbers(*call, node.args[0], &values)?,
                    false => None,
                };
                let attrs = || attrs.iter().cloned().map(Some).collect::<Vec<_>>();
                match numbers {
                    Some(numbers) => vec![numbers],
                    None => d.builder.apply(*call, &attrs(), &args)?,
                }
            }
        };
        let id = NodeId(i as u32);
        let named = made.into_iter().zip(0..);
        values.extend(named.map(|(new, output)| (Value { node: id, output }, new)));
    }
    let outputs = program.outputs.iter().map(|(n, v)| (n.clone(), values[v])).collect();
    Ok(Some(d.builder.finish(outputs)))
}

struct Decoder<'a> {
    library: &'a Arc<Library>,
    program: &'a Program,
    builder: Builder<'a>,
    /// Weights that are decoded, by what decodes them.
    known: HashMap<(CallId, Value), Value>,
}

impl Decoder<'_> {
    /// What a decoder makes of a constant, or of rows of one; none of anything else.
    fn numbers(
        &mut self,
        decoder: CallId,
        of: Value,
        values: &HashMap<Value, Value>,
    ) -> Result<Option<Value>, Error> {
        if self.program.as_const(of).is_some() {
            return self.constant(decoder, of).map(Some);
        }
        let node = self.program.node(of.node);
        let NodeKind::Apply(call, attrs) = &node.kind else { return Ok(None) };
        let chooses = Some(*call) == self.library.find("gather")
            && attrs.first().and_then(Attr::as_i64) == Some(0);
        let [table, places] = node.args.as_slice() else { return Ok(None) };
        if !chooses || self.program.as_const(*table).is_none() {
            return Ok(None);
        }
        let table = self.constant(decoder, *table)?;
        let rows = self.builder.apply(*call, &[Some(Attr::int(0))], &[table, values[places]])?;
        Ok(rows.first().copied())
    }

    fn constant(&mut self, decoder: CallId, of: Value) -> Result<Value, Error> {
        if let Some(known) = self.known.get(&(decoder, of)) {
            return Ok(*known);
        }
        let stored = self.program.as_const(of).ok_or_else(|| Error::unexpected("no constant"))?;
        let numbers = computed(self.library, decoder, stored)?;
        let value = self.builder.constant(numbers.computed_from([stored]));
        self.known.insert((decoder, of), value);
        Ok(value)
    }
}

/// The numbers of a stored tensor.
fn computed(library: &Arc<Library>, decoder: CallId, stored: &Tensor) -> Result<Tensor, Error> {
    let mut b = Builder::new(library);
    let input = b.input("w", Type::known(stored.dtype(), stored.shape()));
    let made = b.apply(decoder, &[], &[input])?;
    let outputs = made.into_iter().map(|v| ("v".to_string(), v)).collect();
    let cpu = target(library, CPU)?;
    let plan = select_kernels(b.finish(outputs), library, &cpu);
    let made = Cpu::new(1).compile(&plan, library.clone())?.run(std::slice::from_ref(stored))?;
    made.into_iter().next().ok_or_else(|| Error::unexpected("nothing is decoded"))
}
