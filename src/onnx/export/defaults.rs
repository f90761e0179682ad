//! Attributes that say nothing: those with the value that an `onnx` item gives them where they are absent.

use crate::import::bind::attribute;
use crate::import::items::{Items, imports};
use crate::raw::{RawAttr, RawGraph, RawModel, RawNode};
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::ir::{Attr, DType, Extent, Type};
use mlc_dsl::library::{Library, OnnxItem};
use mlc_dsl::onnx::{Param, ParamKind};

/// The model without the attributes that say nothing.
pub fn without_defaults(model: &RawModel, library: &Library) -> RawModel {
    let items = Items::of(library, &imports(model, library));
    let mut out = model.clone();
    strip(&mut out.graph, &items);
    out
}

fn strip(graph: &mut RawGraph, items: &Items<'_>) {
    for n in &mut graph.nodes {
        if let Some(item) = items.find(n) {
            let param = |name: &str| item.decl.params.iter().find(|p| *p.name == *name);
            n.attrs.retain(|name, raw| !param(name).is_some_and(|p| is_default(item, p, raw)));
        }
        let RawNode { attrs, .. } = n;
        attrs.values_mut().flat_map(RawAttr::graphs_mut).for_each(|g| strip(g, items));
    }
}

/// True if an attribute would mean the same if it were absent.
fn is_default(item: &OnnxItem, p: &Param, raw: &RawAttr) -> bool {
    let ParamKind::Attr(kind) = p.kind else { return false };
    let Some((default, given)) = p.default.as_ref().zip(attribute(raw, kind)) else {
        return false;
    };
    let same = |d: &Attr| *d == given || d.as_f64().is_some() && d.as_f64() == given.as_f64();
    if let Ok(d) = eval(default, &Env::default()) {
        return same(&d);
    }
    // A list with an entry per axis says how many axes there are, if no other number of them makes it as long.
    let Some(n) = entries(&given) else { return false };
    let as_long = (0..=n + 8).filter_map(|rank| eval(default, &axes(item, rank)).ok());
    let as_long: Vec<Attr> = as_long.filter(|d| entries(d) == Some(n)).collect();
    matches!(as_long.as_slice(), [d] if same(d))
}

fn entries(a: &Attr) -> Option<usize> {
    match a {
        Attr::Ints(v) => Some(v.len()),
        Attr::Floats(v) => Some(v.len()),
        _ => None,
    }
}

/// The first tensor of an operator, of which nothing but the number of axes is known.
fn axes(item: &OnnxItem, rank: usize) -> Env {
    let mut env = Env::default();
    let is_tensor = |p: &&Param| matches!(p.kind, ParamKind::Tensor { variadic: false, .. });
    if let Some(p) = item.decl.params.iter().find(is_tensor) {
        let shape = (0..rank).map(|i| Extent::sym(&format!("?{i}"))).collect();
        env.bind_tensor(&p.name, Type::new(DType::F32, shape));
    }
    env
}
