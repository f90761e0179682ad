//! Targets: their figures, and the kernels that `target` and `fuse` items offer them.

use super::{error, name, suggest};
use crate::diag::Diag;
use crate::eval::{Env, eval};
use crate::library::{CallId, CallKind, Library, OpClass, TargetItem, TargetKernel};
use crate::syntax::ast::{Expr, Item, Target};
use crate::term::TermKind;
use std::collections::HashMap;

/// Figures of a target, with what each says and an example.
pub const FIGURES: [(&str, &str, &str); 5] = [
    ("flops", "operations per second", "1e11"),
    ("bytes", "bytes of memory per second", "1e10"),
    ("launch", "seconds that starting a kernel takes", "4e-6"),
    ("pointwise", "the part of their cost that pointwise operators keep once fused", "0.1"),
    ("view", "the part of their cost that views keep", "0.01"),
];

/// The target of an item.
pub fn target(library: &Library, item: &Item, t: &Target) -> (TargetItem, Vec<Diag>) {
    let mut diags = Vec::new();
    let number = |e: &Expr| eval(e, &Env::default()).ok().and_then(|a| a.as_f64());
    let mut figures = HashMap::new();
    for (key, e) in &t.entries {
        if !FIGURES.iter().any(|f| f.0 == key.text) {
            let help = suggest(&key.text, FIGURES.iter().map(|f| f.0))
                .unwrap_or_else(|| format!("one of {}", FIGURES.map(|f| f.0).join(", ")));
            let message = format!("`{}` is no figure of a target", key.text);
            diags.push(error("R012", key.span, message, &help));
            continue;
        }
        match number(e) {
            Some(v) if v.is_finite() && v >= 0.0 => drop(figures.insert(key.text.clone(), v)),
            _ => {
                let message = format!("`{}` is a number that is not negative", key.text);
                let help = FIGURES.iter().find(|f| f.0 == key.text);
                let help =
                    help.map_or(String::new(), |f| format!("{}, e.g. `{} = {}`", f.1, f.0, f.2));
                diags.push(error("R012", e.span, message, &help));
            }
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
        let factor = match &k.cost {
            None => 1.0,
            Some(e) => number(e).filter(|v| v.is_finite() && *v > 0.0).unwrap_or_else(|| {
                let message = "the cost of a kernel is a number above zero".into();
                let help = "it multiplies the roofline: `cost 1.5` takes half as long again";
                diags.push(error("R012", e.span, message, help));
                1.0
            }),
        };
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
                let help = suggest(&target.text, names.clone()).unwrap_or_else(|| {
                    let names: Vec<&str> = names.collect();
                    match names.is_empty() {
                        true => "declare it with `target`".into(),
                        false => format!("there are {}", names.join(", ")),
                    }
                });
                let message = format!("`{}` is not a target", target.text);
                out.push((f.source.0, vec![error("R021", target.span, message, &help)]));
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
