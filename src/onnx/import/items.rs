//! The `onnx` items that a model's operator sets admit, and the operators that none declares.

use super::control;
use super::value::origin;
use crate::raw::{RawAttr, RawModel, RawNode};
use mlc_dsl::library::{Library, OnnxItem};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The operators of a model that nothing declares at its operator sets, with the number of their nodes.
pub fn undeclared(model: &RawModel, library: &Library) -> BTreeMap<String, usize> {
    let items = Items::of(library, &imports(model, library));
    let mut out = BTreeMap::new();
    let mut graphs = vec![&model.graph];
    while let Some(graph) = graphs.pop() {
        for n in &graph.nodes {
            graphs.extend(n.attrs.values().flat_map(RawAttr::graphs));
            if !control::is_known(n) && items.find(n).is_none() {
                *out.entry(n.operator()).or_default() += 1;
            }
        }
    }
    out
}

/// The nodes of a model's main graph whose declaration is `opaque`, each by its name, or first result.
pub fn declared_opaque(model: &RawModel, library: &Library) -> BTreeSet<String> {
    let items = Items::of(library, &imports(model, library));
    let is_opaque = |n: &&RawNode| items.find(n).is_some_and(|i| i.decl.opaque);
    model.graph.nodes.iter().filter(is_opaque).map(|n| origin(n).to_string()).collect()
}

/// The operator sets of a model, and the newest one of each domain that it uses and does not import: files that other tools have
/// optimised lack imports, and ONNX Runtime reads them so.
pub(crate) fn imports(model: &RawModel, library: &Library) -> BTreeMap<String, i64> {
    let mut out = model.opset_imports.clone();
    let used = model.graph.domains().into_iter().filter(|d| !d.is_empty());
    for domain in used {
        let declared = library.onnx.iter().filter(|i| i.decl.domain == domain);
        let newest = declared.map(|i| i64::from(i.decl.since)).max().unwrap_or(1);
        out.entry(domain.to_string()).or_insert(newest);
    }
    out
}

/// The declarations by domain and name that the model's operator sets admit, newest first.
pub(crate) struct Items<'a> {
    by_name: HashMap<(&'a str, &'a str), Vec<&'a OnnxItem>>,
}

/// The declarations that a model's operator sets admit, found once for many small models of the same sets.
pub struct NodeItems<'a> {
    pub(crate) items: Items<'a>,
    /// The operator sets, those that the model does not import but uses among them.
    pub opsets: BTreeMap<String, i64>,
}

impl<'a> NodeItems<'a> {
    /// For the nodes of a model.
    pub fn of(model: &RawModel, library: &'a Library) -> NodeItems<'a> {
        let opsets = imports(model, library);
        NodeItems { items: Items::of(library, &opsets), opsets }
    }
}

impl<'a> Items<'a> {
    pub(crate) fn of(library: &'a Library, opsets: &BTreeMap<String, i64>) -> Items<'a> {
        let mut by_name: HashMap<_, Vec<&OnnxItem>> = HashMap::new();
        for item in &library.onnx {
            let Some(&opset) = opsets.get(&item.decl.domain) else { continue };
            if valid_at(item, opset) {
                by_name.entry((item.decl.domain.as_str(), &*item.name)).or_default().push(item);
            }
        }
        for items in by_name.values_mut() {
            // A later text overrides an earlier one of the same version.
            items.reverse();
            items.sort_by_key(|i| std::cmp::Reverse(i.decl.since));
        }
        Items { by_name }
    }

    /// What may help where no declaration is found.
    pub(crate) fn help(&self, node: &RawNode) -> String {
        let of_domain = self.by_name.keys().filter(|(d, _)| *d == node.domain).map(|(_, n)| *n);
        let near = mlc_dsl::diagnostics::suggestions::nearest(&node.op_type, of_domain);
        let meant = near.iter().map(|n| format!("did you mean `{n}`? Else ")).next();
        format!("{}declare it with an `onnx` item in a --rules file", meant.unwrap_or_default())
    }

    pub(crate) fn find(&self, node: &RawNode) -> Option<&'a OnnxItem> {
        self.by_name.get(&(node.domain.as_str(), node.op_type.as_str()))?.first().copied()
    }
}

/// True if the declaration covers that operator set version.
pub(crate) fn valid_at(item: &OnnxItem, opset: i64) -> bool {
    i64::from(item.decl.since) <= opset && item.decl.until.is_none_or(|u| opset <= u.into())
}
