//! Incremental resolution for new extents: a kernel is prepared again if a changed symbol occurs in it, or if an operand's location changed.

use super::kernel_cache::Location;
use super::link::ResolvedPlan;
use super::{ResolveContext, Resolver, ValueLocations};
use mlc_backends::BackendError;
use mlc_backends::symbols::SymbolBindings;
use mlc_dsl::ir::{NodeKind, Value};
use mlc_dsl::plan::{Memory, Worklist};

impl<'a> Resolver<'a> {
    /// Resolves the program for symbols that differ from those of `before` only in the kernels `mentioning` them; `None` where computed values
    /// determine extents.
    pub fn resolve_incremental(
        cx: ResolveContext<'a>,
        before: &'a ResolvedPlan,
        places: &'a ValueLocations,
        symbols: SymbolBindings,
        mentioning: &[usize],
        plan: &'a Memory,
    ) -> Result<Option<ResolvedPlan>, BackendError> {
        let mut r = Resolver::new(cx, symbols, plan);
        r.others = Some(&places.of);
        let push_append = plan.appends.iter().map(|(k, _)| *k);
        let first = mentioning.iter().copied().chain(push_append);
        let mut work = Worklist::new(&cx.graph.readers, first);
        r.other_inputs(&mut work)?;
        let (mut kernels, mut again) = (before.all.clone(), vec![]);
        while let Some(k) = work.next() {
            let prepared = r.prepared(k, &cx.graph.groups[k], false)?;
            if !(kernels[k].learned.is_empty() && prepared.learned.is_empty()) {
                return Ok(None);
            }
            for (v, place) in &prepared.places {
                r.put(*v, place, &mut work);
            }
            kernels[k] = prepared;
            again.push(k);
        }
        let outputs = cx.graph.program.outputs.iter().zip(&before.outputs);
        let outputs = outputs.map(|((_, v), known)| match r.places.contains_key(v) {
            true => r.output(*v),
            false => Ok(known.clone()),
        });
        let outputs = outputs.collect::<Result<_, _>>()?;
        Ok(Some(r.relink(kernels, outputs, before, &again)))
    }

    fn other_inputs(&mut self, work: &mut Worklist<'_>) -> Result<(), BackendError> {
        for &id in &self.cx.graph.readers.inputs {
            let node = self.cx.graph.program.node(id);
            let NodeKind::Input(k) = node.kind else { continue };
            let known = self.symbols.shape(&node.types[0]);
            let (dtype, shape) = known.ok_or_else(|| self.fail(id, "unknown input shape"))?;
            let storage = self.memory_of_input(k as usize);
            let layout = self.layout_of_input(&storage, &shape);
            let place = Location { dtype, layout, storage };
            let value = Value { node: id, output: 0 };
            self.places.insert(value, place.clone());
            self.put(value, &place, work);
        }
        Ok(())
    }

    /// Records a value's location, and that its readers must be prepared again if it changed.
    fn put(&mut self, v: Value, place: &Location, work: &mut Worklist<'_>) {
        if self.others.and_then(|others| others.get(&v)) == Some(place) {
            self.places.remove(&v);
        } else {
            work.differs(v.node);
        }
    }
}
