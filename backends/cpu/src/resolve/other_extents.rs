//! A program at extents that differ in some symbols from those for which it was resolved: a kernel is prepared again if one of these symbols
//! occurs in it, or if something that it reads lies otherwise.

use super::{Location, Places, Resolved, Resolver, Surroundings};
use mlc_backends::BackendError;
use mlc_backends::symbols::SymbolBindings;
use mlc_dsl::ir::{NodeId, NodeKind, Value};
use mlc_dsl::plan::Memory;

impl<'a> Resolver<'a> {
    /// Resolves the program with symbols of which some are others than `before`: those of the bits in `changed`. `None` where what is computed
    /// decides extents.
    pub fn resolve_other(
        cx: Surroundings<'a>,
        (before, places): (&'a Resolved, &'a Places),
        symbols: SymbolBindings,
        changed: u64,
        plan: &'a Memory,
    ) -> Result<Option<Resolved>, BackendError> {
        let mut r = Resolver::new(cx, symbols, plan);
        r.others = Some(&places.of);
        let mut differs = vec![false; cx.graph.program.nodes.len()];
        r.other_inputs(&mut differs)?;
        let mut kernels = Vec::with_capacity(before.all.len());
        for ((k, group), known) in cx.graph.groups.iter().enumerate().zip(&before.all) {
            let is_other = group.mentions & changed != 0
                || plan.appended(k).is_some()
                || group.reads.iter().any(|v| differs[v.node.0 as usize]);
            if !is_other {
                kernels.push(known.clone());
                continue;
            }
            let prepared = r.prepared(k, group, false)?;
            if !(known.learned.is_empty() && prepared.learned.is_empty()) {
                return Ok(None);
            }
            for (v, place) in &prepared.places {
                r.put(*v, place, &mut differs);
            }
            kernels.push(prepared);
        }
        let outputs =
            cx.graph.program.outputs.iter().zip(&before.outputs).map(|((_, v), known)| {
                if differs[v.node.0 as usize] { r.output(*v) } else { Ok(known.clone()) }
            });
        let outputs = outputs.collect::<Result<_, _>>()?;
        Ok(Some(r.linked(kernels, outputs, &before.all)))
    }

    fn other_inputs(&mut self, differs: &mut [bool]) -> Result<(), BackendError> {
        for (i, node) in self.cx.graph.program.nodes.iter().enumerate() {
            let NodeKind::Input(k) = node.kind else { continue };
            let id = NodeId(i as u32);
            let known = self.symbols.shape(&node.types[0]);
            let (dtype, shape) = known.ok_or_else(|| self.fail(id, "unknown input shape"))?;
            let storage = self.memory_of_input(k as usize);
            let layout = self.layout_of_input(&storage, &shape);
            let place = Location { dtype, layout, storage };
            let value = Value { node: id, output: 0 };
            self.places.insert(value, place.clone());
            self.put(value, &place, differs);
        }
        Ok(())
    }

    /// Notes whether a value lies otherwise.
    fn put(&mut self, v: Value, place: &Location, differs: &mut [bool]) {
        if self.others.and_then(|others| others.get(&v)) == Some(place) {
            self.places.remove(&v);
        } else {
            differs[v.node.0 as usize] = true;
        }
    }
}
