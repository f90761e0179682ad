//! Fuses pointwise nodes into one pass.

use super::Resolver;
use super::kernel_cache::Location;
use crate::pointwise::fused::Map;
use crate::pointwise::{CodeBuilder, ElementSource, Fused, Ref, lower};
use mlc_backends::BackendError;
use mlc_dsl::ir::{Attr, DType, NodeId, NodeKind, Value};
use rustc_hash::FxHashMap;
use std::sync::Arc;

impl Resolver<'_> {
    /// Launches pointwise nodes of one shape that yield what is `wanted`.
    pub(super) fn pointwise(
        &mut self,
        nodes: &[NodeId],
        wanted: &[Value],
    ) -> Result<(), BackendError> {
        let Some(&last) = nodes.last() else { return Ok(()) };
        let Some((_, shape)) = self.symbols.shape(&self.cx.graph.program.node(last).types[0])
        else {
            return self.fall_back(last);
        };
        let own = |v: &Value| nodes.contains(&v.node);
        let wanted: Vec<Value> = wanted.iter().copied().filter(own).collect();
        if let Some((fused, inputs, dtypes)) = self.fuse(nodes, &shape, None, &wanted)? {
            let result = |(v, d): (Value, DType)| (Some(v), d, shape.clone());
            let outputs: Vec<_> = wanted.into_iter().zip(dtypes).map(result).collect();
            let map = Map::new(fused, shape.iter().product());
            return self.define_values(Box::new(map), inputs, &outputs, None, last);
        }
        match nodes {
            [id] => self.fall_back(*id),
            // Values between them are handed on in the kernel's workspace.
            _ => nodes
                .iter()
                .try_for_each(|&id| self.pointwise(&[id], &[Value { node: id, output: 0 }])),
        }
    }

    /// The fused program of pointwise nodes, its inputs, and the types of the values that it yields. `held` becomes input 0 and
    /// has no place.
    #[allow(clippy::type_complexity, reason = "a program with its inputs and outputs")]
    pub(super) fn fuse(
        &mut self,
        nodes: &[NodeId],
        shape: &[usize],
        held: Option<Value>,
        wanted: &[Value],
    ) -> Result<Option<(Fused, Vec<Location>, Vec<DType>)>, BackendError> {
        let mut code = CodeBuilder::default();
        let mut refs: FxHashMap<Value, (Ref, DType)> = FxHashMap::default();
        let (mut sources, mut inputs) = (vec![], vec![]);
        if let Some(v) = held {
            let dtype = self.cx.graph.program.ty(v).dtype;
            refs.insert(v, (code.input(dtype), dtype));
            sources.push(ElementSource::Dense(0));
        }
        for &id in nodes {
            let node = self.cx.graph.program.node(id);
            let NodeKind::Apply(call, attrs) = &node.kind else { return Ok(None) };
            let mut args = Vec::with_capacity(node.args.len());
            for a in &node.args {
                if let Some(known) = refs.get(a) {
                    args.push(*known);
                    continue;
                }
                let place = self.place(*a)?.clone();
                if *place.layout.shape != *shape || inputs.len() > 60_000 {
                    return Ok(None);
                }
                let known = match self.number(&place) {
                    Some(v) => (lower::constant(&mut code, v, place.dtype), place.dtype),
                    None => {
                        let Some(source) = ElementSource::of(&place.layout) else {
                            return Ok(None);
                        };
                        sources.push(source);
                        inputs.push(place.clone());
                        (code.input(place.dtype), place.dtype)
                    }
                };
                refs.insert(*a, known);
                args.push(known);
            }
            let attrs: Vec<Attr> = attrs.iter().map(|a| self.symbols.attr(a)).collect();
            let dtype = node.types[0].dtype;
            let call = self.cx.library.call(*call);
            let Some(r) = lower::lower(&mut code, call, &attrs, &args, 0, dtype) else {
                return Ok(None);
            };
            refs.insert(Value { node: id, output: 0 }, (r, dtype));
        }
        let Some(results) = wanted.iter().map(|v| refs.get(v).copied()).collect::<Option<Vec<_>>>()
        else {
            return Ok(None);
        };
        let fused = Fused::new(Arc::new(code.finish(&results)), sources);
        Ok(Some((fused, inputs, results.into_iter().map(|r| r.1).collect())))
    }

    /// The number behind a constant whose elements are all one float.
    fn number(&self, place: &Location) -> Option<f64> {
        let t = place.constant()?;
        let repeated =
            place.layout.shape.iter().zip(&place.layout.strides).all(|(&d, &s)| d == 1 || s == 0);
        let number = place.dtype.is_float() || place.dtype == DType::Bool;
        (repeated && number && place.layout.offset < t.len())
            .then(|| t.get_f64(place.layout.offset))
    }
}
