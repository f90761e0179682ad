//! Passthrough (opaque) nodes, which are kept as they are: the types of their results, and what can still be imported after them.
//!
//! A data-dependent extent is a fresh symbol. Where another node does not fit such an extent, the model is not at fault: that
//! node is kept, too.

use super::super::Importer;
use super::super::error::ImportError;
use super::super::value::{NodeValue, origin};
use crate::opaque;
use crate::raw::{RawDim, RawGraph, RawNode, RawValueInfo};
use crate::subgraphs;
use crate::subgraphs::{OuterValue, ResultType};
use mlc_dsl::ir::{Extent, Type, Value};
use mlc_dsl::shown;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Why the type of a value is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UntypedReason {
    /// Nothing declares what makes it.
    Foreign,
    /// Only a run knows it.
    DataDependent,
}

/// Symbols of data-dependent extents.
#[derive(Default)]
pub(crate) struct DataDependentExtents {
    symbols: HashSet<String>,
    /// The symbol of each extent that was computed from what is supposed.
    named: HashMap<Extent, Extent>,
}

impl DataDependentExtents {
    fn is_in(&self, extent: &Extent) -> bool {
        !self.symbols.is_empty() && extent.symbols().iter().any(|s| self.symbols.contains(&**s))
    }
}

impl Importer<'_> {
    /// True if the current node failed where an extent stands that only a run computes.
    pub(crate) fn is_data_dependent(&self, node: &RawNode) -> bool {
        if let Some(need) = self.draft.conflict() {
            return self.data_dependent.is_in(&need.of) || self.data_dependent.is_in(&need.is);
        }
        let read = opaque::reads(node);
        let mut tensors = read.iter().filter_map(|n| self.values.get(n)?.tensor());
        tensors.any(|v| self.draft.builder.ty(v).shape.iter().any(|e| self.data_dependent.is_in(e)))
    }

    /// A name of a symbol that nothing bears.
    pub(crate) fn fresh_symbol(&mut self, of: &str, axis: usize) -> String {
        let mut name = format!("{of}_dim{axis}");
        while !self.symbols.insert(name.clone()) {
            name.push('_');
        }
        name
    }

    /// Keeps a node as it is. A result whose type is not known is known to other such nodes only.
    pub(crate) fn keep(&mut self, node: &RawNode, why: ImportError) {
        self.draft.take_conflict();
        self.draft.take_needed_fact();
        let mut node = node.clone();
        self.hoist(&mut node);
        let by_data = matches!(why, ImportError::Undecided { .. });
        let mut types: Vec<Option<Type>> = vec![];
        for name in &node.outputs {
            let read = self.values.remove(name).and_then(|v| v.tensor());
            let read = read.map(|v| self.draft.builder.ty(v).clone());
            let declared = self.declared.get(name).filter(|info| is_complete(info)).cloned();
            types.push(read.or_else(|| self.input_type(&declared?).ok()));
        }
        if types.iter().zip(&node.outputs).any(|(t, name)| t.is_none() && !name.is_empty()) {
            let found = self.found_types(&node);
            types.iter_mut().zip(found).for_each(|(t, found)| *t = t.take().or(found));
        }
        for (ty, name) in types.into_iter().zip(&node.outputs).filter(|(_, n)| !n.is_empty()) {
            let declared = self.declared.get(name).cloned();
            let Some(ty) = ty.or_else(|| self.input_type(&declared?).ok()) else {
                let why =
                    if by_data { UntypedReason::DataDependent } else { UntypedReason::Foreign };
                self.untyped.insert(name.clone(), why);
                continue;
            };
            let symbols = ty.shape.iter().flat_map(Extent::symbols).map(|s| s.to_string());
            let own: Vec<String> = symbols.filter(|s| !self.symbols.contains(s)).collect();
            self.data_dependent.symbols.extend(own.into_iter().filter(|_| by_data));
            let v = self.draft.builder.input(name, ty);
            self.values.insert(name.clone(), NodeValue::Tensor(v));
        }
        self.opaque.nodes.push((node, why));
    }

    /// The types of a node's results, by its item or its bodies. Extents that only a run computes are symbols.
    fn found_types(&mut self, node: &RawNode) -> Vec<Option<Type>> {
        let found = match node.attrs.values().any(|a| !a.graphs().is_empty()) {
            true => self.types_by_bodies(node),
            false => self.types_by_item(node),
        };
        let mut types = vec![];
        for (result, name) in found.unwrap_or_default().into_iter().zip(&node.outputs) {
            types.push(result.map(|ResultType { dtype, shape }| {
                let extents = shape.into_iter().enumerate();
                Type::new(dtype, extents.map(|(i, e)| self.data_dependent(name, i, e)).collect())
            }));
        }
        types
    }

    /// An extent of a result, a symbol if only a run computes it.
    fn data_dependent(&mut self, name: &str, axis: usize, extent: Option<Extent>) -> Extent {
        if let Some(e) = &extent {
            if !self.draft.mentions_symbolic_value(e) {
                return e.clone();
            }
            if let Some(symbol) = self.data_dependent.named.get(e) {
                return symbol.clone();
            }
        }
        let symbol = self.fresh_symbol(name, axis);
        self.data_dependent.symbols.insert(symbol.clone());
        let symbol = Extent::sym(&symbol);
        extent.map(|e| self.data_dependent.named.insert(e, symbol.clone()));
        symbol
    }

    fn types_by_item(&mut self, node: &RawNode) -> Option<Vec<Option<ResultType>>> {
        let item = self.items.find(node)?;
        self.draft.begin_node();
        self.draft.begin_symbolic_values();
        let read = self.read_item(item, node);
        self.draft.end_symbolic_values();
        let of = |v: Value| {
            let Type { dtype, shape } = self.draft.builder.ty(v).clone();
            ResultType { dtype, shape: shape.into_iter().map(Some).collect() }
        };
        Some(read.ok()?.into_iter().map(|v| v.map(of)).collect())
    }

    pub(crate) fn types_by_bodies(&self, node: &RawNode) -> Option<Vec<Option<ResultType>>> {
        let outer = |name: &str| {
            let v = self.values.get(name)?.tensor()?;
            Some(match self.draft.builder.program().as_const(v) {
                Some(tensor) => OuterValue::Constant(tensor.clone()),
                None => OuterValue::Typed(self.draft.builder.ty(v).clone()),
            })
        };
        Some(subgraphs::find(node, self.opsets, self.draft.library(), &outer)?.results)
    }

    /// Refuses to read what reads a value of unknown type.
    pub(crate) fn typed(&mut self, node: &RawNode) -> Result<(), ImportError> {
        if self.untyped.is_empty() {
            return Ok(());
        }
        let untyped = |n: String| self.untyped.get(&n).map(|why| (n, *why));
        let Some((name, why)) = opaque::reads(node).into_iter().find_map(untyped) else {
            return Ok(());
        };
        let reason = format!("it reads `{}`, whose type is not known", shown(&name));
        if why == UntypedReason::DataDependent {
            return Err(ImportError::node(node, reason).data_dependent());
        }
        let reason = self.draft.unsupported(reason);
        let help = "`onnx.shape_inference` may find the type, or declare the operator that computes it with an \
                    `onnx` item in a --rules file";
        Err(ImportError::Node { node: node.label(), reason, help: help.into() })
    }

    /// The nodes of the main graph that make the sequences and optionals which kept nodes read, or which are outputs.
    pub(crate) fn makers_of_kept_lists(&self, graph: &RawGraph) -> BTreeSet<String> {
        let mut makers = BTreeSet::new();
        if self.keeps.is_none() {
            return makers;
        }
        let is_list = |n: &String| self.values.get(n).is_some_and(|v| v.tensor().is_none());
        let of = |n: &RawNode| opaque::reads(n).into_iter().filter(is_list).collect::<Vec<_>>();
        let mut open: Vec<String> = self.opaque.nodes.iter().flat_map(|(n, _)| of(n)).collect();
        open.extend(graph.outputs.iter().map(|o| o.name.clone()).filter(is_list));
        let maker: HashMap<&String, &RawNode> =
            graph.nodes.iter().flat_map(|n| n.outputs.iter().map(move |o| (o, n))).collect();
        while let Some(name) = open.pop() {
            if let Some(node) = maker.get(&name)
                && makers.insert(origin(node).to_string())
            {
                open.extend(of(node));
            }
        }
        makers
    }
}

/// True if every extent is declared.
fn is_complete(info: &RawValueInfo) -> bool {
    let known = |dims: &Vec<RawDim>| dims.iter().all(|d| *d != RawDim::Unknown);
    info.dtype.is_some() && info.containers.is_empty() && info.dims.as_ref().is_some_and(known)
}
