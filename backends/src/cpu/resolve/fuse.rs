//! Pointwise nodes as one program.

use super::{Place, Resolver, Storage};
use crate::BackendError;
use crate::cpu::fused::Map;
use crate::cpu::pointwise::{Builder, Fused, Ref, Source, lower};
use mlc_dsl::ir::{Attr, DType, NodeId, NodeKind, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl Resolver<'_> {
    /// Launches pointwise nodes of one shape.
    pub(super) fn pointwise(
        &mut self,
        nodes: &[NodeId],
        shape: &[usize],
    ) -> Result<(), BackendError> {
        let Some(&last) = nodes.last() else { return Ok(()) };
        if let Some((fused, inputs, outs)) = self.fuse(nodes, shape, None)? {
            let outputs: Vec<_> = outs.iter().map(|(_, d)| (*d, shape.to_vec())).collect();
            let map = Map::new(fused, shape.iter().product());
            let name = self.name(last);
            let places = self.step(Box::new(map), inputs, &outputs, None, &name)?;
            self.places.extend(outs.into_iter().map(|o| o.0).zip(places));
            return Ok(());
        }
        if let [id] = nodes {
            let dtype = self.graph.program.node(*id).types[0].dtype;
            return self.judged(*id, Some(&[(dtype, shape.to_vec())]));
        }
        for &id in nodes {
            // Values between them become shared now.
            self.pointwise(&[id], shape)?;
        }
        Ok(())
    }

    /// The fused program of pointwise nodes, its inputs, and the values it yields. `held` becomes input 0 and has no place.
    #[allow(clippy::type_complexity, reason = "a program with its inputs and outputs")]
    pub(super) fn fuse(
        &mut self,
        nodes: &[NodeId],
        shape: &[usize],
        held: Option<Value>,
    ) -> Result<Option<(Fused, Vec<Place>, Vec<(Value, DType)>)>, BackendError> {
        let mut code = Builder::default();
        let mut refs: HashMap<Value, (Ref, DType)> = HashMap::new();
        let (mut sources, mut inputs) = (vec![], vec![]);
        if let Some(v) = held {
            refs.insert(v, (code.input(DType::F32), DType::F32));
            sources.push(Source::Dense(0));
        }
        for &id in nodes {
            let node = self.graph.program.node(id);
            let NodeKind::Apply(call, attrs) = &node.kind else { return Ok(None) };
            let mut args = Vec::with_capacity(node.args.len());
            for a in &node.args {
                if let Some(known) = refs.get(a) {
                    args.push(*known);
                    continue;
                }
                let place = self.place(*a)?.clone();
                if place.layout.shape != shape || inputs.len() > 60_000 {
                    return Ok(None);
                }
                let known = match self.number(&place) {
                    Some(v) => (lower::constant(&mut code, v, place.dtype), place.dtype),
                    None => {
                        let Some(source) = Source::of(&place.layout) else { return Ok(None) };
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
            let call = self.library.call(*call);
            let Some(r) = lower::lower(&mut code, call, &attrs, &args, 0, dtype) else {
                return Ok(None);
            };
            refs.insert(Value { node: id, output: 0 }, (r, dtype));
        }
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let outs: Vec<(Value, DType)> = nodes
            .iter()
            .map(|&node| Value { node, output: 0 })
            .filter(|v| self.graph.shared.contains(v) || self.read_outside(v, &inside))
            .map(|v| (v, refs[&v].1))
            .collect();
        let results: Vec<(Ref, DType)> = outs.iter().map(|(v, d)| (refs[v].0, *d)).collect();
        let fused = Fused::new(Arc::new(code.finish(&results)), sources);
        Ok(Some((fused, inputs, outs)))
    }

    /// True if a node that is not in the set reads `v`.
    pub(super) fn read_outside(&self, v: &Value, inside: &HashSet<NodeId>) -> bool {
        self.graph.readers.get(v).is_some_and(|r| r.iter().any(|n| !inside.contains(n)))
    }

    /// The number behind a constant whose elements are all one float.
    fn number(&self, place: &Place) -> Option<f64> {
        let Storage::Const(c) = place.storage else { return None };
        let repeated =
            place.layout.shape.iter().zip(&place.layout.strides).all(|(&d, &s)| d == 1 || s == 0);
        let number = place.dtype.is_float() || place.dtype == DType::Bool;
        let t = &self.out.consts[c];
        (repeated && number && place.layout.offset < t.len())
            .then(|| t.get_f64(place.layout.offset))
    }
}
