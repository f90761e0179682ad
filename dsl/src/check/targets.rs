//! Targets: their figures, and the kernels that `target` and `fuse` items offer them.

use super::{error, name, suggest};
use crate::diag::Diag;
use crate::eval::{Env, eval};
use crate::library::{CallId, CallKind, Library, OpClass, TargetItem, TargetKernel};
use crate::syntax::ast::{Expr, Item, Target};
use crate::term::TermKind;
use std::collections::HashMap;

/// The target of an item.
pub fn target(library: &Library, item: &Item, t: &Target) -> (TargetItem, Vec<Diag>) {
    let mut diags = Vec::new();
    let number = |e: &Expr| eval(e, &Env::default()).ok().and_then(|a| a.as_f64());
    let mut figures = HashMap::new();
    for (key, e) in &t.entries {
        match number(e) {
            Some(v) if v.is_finite() && v >= 0.0 => drop(figures.insert(key.text.clone(), v)),
            _ => diags.push(error("R012", e.span, "expected a number".into(), "")),
        }
    }
    let mut kernels = Vec::new();
    for k in &t.kernels {
        let mut covers = Vec::new();
        for c in &k.covers {
            match library.find(&c.text) {
                Some(id) => covers.push(id),
                None => {
                    let names = library.calls.iter().map(|c| &*c.name);
                    let help = suggest(&c.text, names).unwrap_or_default();
                    let message = format!("`{}` is not an operator", c.text);
                    diags.push(error("R003", c.span, message, &help));
                }
            }
        }
        let factor = k.cost.as_ref().and_then(number).unwrap_or(1.0);
        kernels.push(TargetKernel { name: k.name.clone(), covers, epilogue: k.epilogue, factor });
    }
    let target =
        TargetItem { name: name(&item.name.text), doc: item.doc.clone(), figures, kernels };
    (target, diags)
}

/// The one operator in the body of a composition that is not pointwise, if that is all that a kernel
/// must compute before it goes on element by element.
pub fn anchor(library: &Library, id: CallId) -> Option<CallId> {
    let CallKind::Def(body) = &library.call(id).kind else { return None };
    let mut calls = body.terms.iter().filter_map(|(_, t)| match &t.kind {
        TermKind::Apply(call, _) => Some(*call),
        _ => None,
    });
    let beyond = |c: &CallId| {
        let class = library.call(*c).class;
        class != OpClass::Pointwise && Some(*c) != library.find("broadcast")
    };
    let mut anchors = calls.by_ref().filter(beyond);
    let first = anchors.next()?;
    anchors.next().is_none().then_some(first)
}

/// Gives every target the kernels that `fuse` items offer it.
pub fn offer(library: &mut Library) -> Vec<(u32, Vec<Diag>)> {
    let mut out = Vec::new();
    for i in 0..library.fuses.len() {
        let f = library.fuses[i].clone();
        for (target, kernel) in &f.on {
            let Some(t) = library.targets.iter_mut().find(|t| *t.name == *target.text) else {
                let names = library.targets.iter().map(|t| &*t.name);
                let help = suggest(&target.text, names).unwrap_or_default();
                let message = format!("`{}` is not a target", target.text);
                out.push((f.source.0, vec![error("R003", target.span, message, &help)]));
                continue;
            };
            let twin = t.kernels.iter_mut().find(|k| k.name == *kernel && k.epilogue == f.epilogue);
            match twin {
                Some(k) if k.covers.contains(&f.covers) => {}
                Some(k) => k.covers.push(f.covers),
                None => t.kernels.push(TargetKernel {
                    name: kernel.clone(),
                    covers: vec![f.covers],
                    epilogue: f.epilogue,
                    factor: 1.0,
                }),
            }
        }
    }
    out
}
