//! Targets: their cost figures, and their kernels from `target` and `fuse` items.

use super::resolve::Scope;
use crate::check::report::{error, name, suggest};
use crate::diagnostics::Diag;
use crate::diagnostics::span::Ident;
use crate::eval::{Env, eval};
use crate::ir::DType;
use crate::library::{
    CallId, CallKind, Epilogue, KernelTypes, Layout, Library, OpClass, TargetItem, TargetKernel,
};
use crate::syntax::ast::{Expr, Item, Kernel, Target};
use crate::term::TermKind;
use std::collections::BTreeMap;
use std::str::FromStr;

/// Figures of a target, with what each says and an example.
pub const FIGURES: [(&str, &str, &str); 9] = [
    ("flops", "operations per second", "1e11"),
    ("slow", "exponentials, roots and their like per second", "5e9"),
    ("fetched", "elements per second that windows bring in again", "1e10"),
    ("bytes", "bytes of memory per second", "1e10"),
    ("launch", "seconds that starting a kernel takes", "4e-6"),
    ("view", "the part of their cost that views keep", "0.01"),
    ("relayout", "seconds for each byte whose layout changes between kernels", "1e-10"),
    (
        "interpreter",
        "how much slower the reference interpreter is, which computes what no kernel covers",
        "100",
    ),
    ("meaning", "the same of code that is made of an operator's meaning, where it has one", "4"),
];

/// Figures that may be stated for an element type, as `flops_f16`.
const TYPED: [&str; 2] = ["flops", "slow"];

/// What a kernel's work is counted in, in the order of `mlc_extract::cost::fit::FEATURES`.
pub const WORK: [&str; 16] = [
    "launches", "products", "flops", "thin", "windowed", "idle", "fetched", "slow", "rare",
    "points", "rows", "moved", "parts", "read", "fixed", "written",
];

/// Classes of a kernel's work, in the order of `mlc_extract::cost::fit::KernelClass`.
pub const CLASSES: [&str; 5] = ["windowed", "thin", "narrow", "many", "across"];

/// Most kernels of a target that name what follows them.
const EPILOGUES: usize = 62;

/// The target of an item.
pub fn target(library: &Library, source: u32, item: &Item, t: &Target) -> (TargetItem, Vec<Diag>) {
    let mut diags = Vec::new();
    let mut figures = BTreeMap::new();
    for (key, e) in &t.entries {
        if !is_figure(&key.text) {
            let help = suggest(&key.text, FIGURES.iter().map(|f| f.0))
                .unwrap_or_else(|| format!("one of {}", FIGURES.map(|f| f.0).join(", ")));
            let message = format!("`{}` is not a figure of a target", key.text);
            diags.push(error("R012", key.span, message, &help));
            continue;
        }
        match number(e) {
            Some(v) if v.is_finite() && v >= 0.0 => drop(figures.insert(key.text.clone(), v)),
            _ => {
                let message = format!("`{}` must be a non-negative number", key.text);
                let help = FIGURES.iter().find(|f| f.0 == plain(&key.text));
                let help =
                    help.map_or(String::new(), |f| format!("{}, e.g. `{} = {}`", f.1, f.0, f.2));
                diags.push(error("R012", e.span, message, &help));
            }
        }
    }
    let types = element_types(&t.kernels, &mut diags);
    let mut kernels = Vec::new();
    for k in t.kernels.iter().filter(|k| !k.covers.is_empty()) {
        let covers = operators(library, &k.covers, &mut diags);
        let factor = k.cost.as_ref().map_or(1.0, |e| cost(e, &mut diags));
        let class_factors = class_factors(k, &mut diags);
        let epilogue = match k.epilogue.as_deref() {
            None => Epilogue::None,
            Some([]) => Epilogue::Any,
            Some(names) => Epilogue::Of(operators(library, names, &mut diags)),
        };
        let layout = k.layout.as_ref().map_or(Layout::Plain, |l| layout(l, &mut diags));
        let takes = takes(k, &mut diags);
        let (name, prologue) = (k.name.clone(), false);
        kernels.push(TargetKernel {
            name,
            covers,
            epilogue,
            prologue,
            layout,
            factor,
            class_factors,
            takes,
        });
    }
    if let Some(k) = t.kernels.iter().filter(|k| k.epilogue.is_some()).nth(EPILOGUES) {
        let at = k.covers.first().map_or(item.name.span, |c| c.span);
        let message = format!("a target has at most {EPILOGUES} kernels with an epilogue");
        let help = "kernels of one price can be one: name all that it covers";
        diags.push(error("R012", at, message, help));
    }
    let (name, doc, extends) = (name(&item.name.text), item.doc.clone(), t.extends.clone());
    let (devices, pointwise) = (t.devices.clone(), None);
    let item =
        TargetItem { name, doc, extends, devices, source, figures, kernels, pointwise, types };
    (item, diags)
}

/// The figure that one of an element type is about: `flops` of `flops_f16`.
fn plain(key: &str) -> &str {
    match key.split_once('_') {
        Some((figure, dtype)) if TYPED.contains(&figure) && DType::from_str(dtype).is_ok() => {
            figure
        }
        _ => key,
    }
}

fn is_figure(key: &str) -> bool {
    FIGURES.iter().any(|f| f.0 == plain(key))
}

/// The number that an expression is, if it is one.
fn number(e: &Expr) -> Option<f64> {
    let e = Scope::of(&[], &[]).expr(e).ok()?;
    eval(&e, &Env::default()).ok()?.as_f64()
}

/// The operators of these names.
fn operators(library: &Library, names: &[Ident], diags: &mut Vec<Diag>) -> Vec<CallId> {
    let mut out = Vec::new();
    for c in names {
        match library.find(&c.text) {
            Some(id) => out.push(id),
            None => {
                let names = library.calls.iter().map(|c| &*c.name);
                let help = suggest(&c.text, names)
                    .unwrap_or_else(|| "a kernel covers operators, by their names".into());
                let message = format!("`{}` is not an operator", c.text);
                diags.push(error("R003", c.span, message, &help));
            }
        }
    }
    out
}

/// The layout of this name.
fn layout(name: &Ident, diags: &mut Vec<Diag>) -> Layout {
    match name.text.as_str() {
        "blocked" => Layout::Blocked,
        "same" => Layout::Same,
        "dense" => Layout::Dense,
        _ => {
            let message = format!("`{}` is not a layout", name.text);
            let help = "`blocked` is the runtime's own, `same` that of the operands, `dense` no view in another order";
            diags.push(error("R012", name.span, message, help));
            Layout::Plain
        }
    }
}

/// The element types that kernels take, by their names.
fn element_types(kernels: &[Kernel], diags: &mut Vec<Diag>) -> BTreeMap<String, KernelTypes> {
    let mut out: BTreeMap<String, KernelTypes> = BTreeMap::new();
    for k in kernels {
        let Some(span) = k.types.first().map(|n| n.span) else { continue };
        let mut dtypes = Vec::new();
        for n in &k.types {
            match n.text.parse() {
                Ok(dtype) => dtypes.push(dtype),
                Err(()) => {
                    let names = DType::ALL.iter().map(|d| d.name());
                    let help = suggest(&n.text, names.clone()).unwrap_or_else(|| {
                        format!("one of {}", names.collect::<Vec<_>>().join(", "))
                    });
                    let message = format!("`{}` is not an element type", n.text);
                    diags.push(error("R015", n.span, message, &help));
                }
            }
        }
        if out.insert(k.name.clone(), KernelTypes { dtypes, span }).is_some() {
            let message = format!("the element types of the kernel \"{}\" are given twice", k.name);
            let help = "they belong to the kernel's name: give them on one of its lines";
            diags.push(error("R012", span, message, help));
        }
    }
    out
}

/// The multiple of the roofline that a kernel takes.
fn cost(e: &Expr, diags: &mut Vec<Diag>) -> f64 {
    number(e).filter(|v| v.is_finite() && *v > 0.0).unwrap_or_else(|| {
        let message = "the cost of a kernel must be a positive number".into();
        let help = "it multiplies the roofline: `cost 1.5` takes half as long again";
        diags.push(error("R012", e.span, message, help));
        1.0
    })
}

/// The same for classes of its work.
fn class_factors(k: &Kernel, diags: &mut Vec<Diag>) -> Vec<(String, f64)> {
    let mut out = Vec::new();
    for (class, e) in &k.class_costs {
        match CLASSES.contains(&class.text.as_str()) {
            true => out.push((class.text.clone(), cost(e, diags))),
            false => {
                let help = suggest(&class.text, CLASSES.into_iter())
                    .unwrap_or_else(|| format!("one of {}", CLASSES.join(", ")));
                let message = format!("`{}` is not a class of a kernel's work", class.text);
                diags.push(error("R012", class.span, message, &help));
            }
        }
    }
    out
}

/// Seconds for each unit of a kernel's work.
fn takes(k: &Kernel, diags: &mut Vec<Diag>) -> Vec<(String, f64)> {
    let mut out = Vec::new();
    for (key, e) in &k.takes {
        if !WORK.contains(&key.text.as_str()) {
            let help = suggest(&key.text, WORK.into_iter())
                .unwrap_or_else(|| format!("one of {}", WORK.join(", ")));
            let message = format!("a kernel's work is not counted in `{}`", key.text);
            diags.push(error("R012", key.span, message, &help));
            continue;
        }
        match number(e).filter(|v| v.is_finite() && *v >= 0.0) {
            Some(v) => out.push((key.text.clone(), v)),
            None => {
                let message = format!("`{}` must be a non-negative number of seconds", key.text);
                diags.push(error(
                    "R012",
                    e.span,
                    message,
                    "e.g. `takes launches = 2e-6, flops = 7e-12`",
                ));
            }
        }
    }
    out
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

/// True if the body of a composition is its argument: what a kernel computes is then the open part alone.
pub fn is_bare(library: &Library, id: CallId) -> bool {
    let CallKind::Def(body) = &library.call(id).kind else { return false };
    body.terms.iter().all(|(_, t)| matches!(t.kind, TermKind::Var(_)))
}

/// Gives every target the kernels that `fuse` items offer it.
pub fn offer(library: &mut Library) -> Vec<(u32, Vec<Diag>)> {
    let mut out = Vec::new();
    for i in 0..library.fuses.len() {
        let f = library.fuses[i].clone();
        let bare = f.epilogue && is_bare(library, f.call);
        for (target, kernel) in &f.on {
            let Some(t) = library.targets.iter_mut().find(|t| *t.name == *target.text) else {
                out.push((f.source.file, vec![undeclared(library.targets.iter(), target)]));
                continue;
            };
            if bare {
                t.pointwise = Some(kernel.clone());
                continue;
            }
            let epilogue = if f.epilogue { Epilogue::Any } else { Epilogue::None };
            let twin = t.kernels.iter_mut().find(|k| {
                let of_list = matches!(k.epilogue, Epilogue::Of(_)) && !f.epilogue;
                k.name == *kernel && k.prologue == f.prologue && (of_list || k.epilogue == epilogue)
            });
            match twin {
                Some(k) if k.covers.contains(&f.covers) => {}
                Some(k) => k.covers.push(f.covers),
                None => t.kernels.push(TargetKernel {
                    name: kernel.clone(),
                    covers: vec![f.covers],
                    epilogue,
                    prologue: f.prologue,
                    layout: Layout::Plain,
                    factor: 1.0,
                    class_factors: vec![],
                    takes: vec![],
                }),
            }
        }
    }
    out
}

/// Gives every target that extends another what it does not state itself: figures, kernels for operators that none of its
/// own covers, and element types.
pub fn inherit(targets: &mut [TargetItem]) -> Vec<(u32, Vec<Diag>)> {
    let mut out = Vec::new();
    for i in 0..targets.len() {
        let stated = targets[i].types.clone();
        let mut seen = vec![targets[i].name.clone()];
        let mut at = i;
        while let Some(base) = targets[at].extends.clone() {
            let Some(j) = targets.iter().position(|t| *t.name == *base.text) else {
                // Said once, of the target that names it.
                if at == i {
                    out.push((
                        targets[i].source,
                        vec![undeclared(targets.iter().filter(|t| t.name != seen[0]), &base)],
                    ));
                }
                break;
            };
            if seen.contains(&targets[j].name) {
                let message = format!("the target `{}` extends itself", targets[i].name);
                let help = "a target can only extend one that does not extend it";
                out.push((targets[i].source, vec![error("R021", base.span, message, help)]));
                break;
            }
            seen.push(targets[j].name.clone());
            let from = targets[j].clone();
            take_over(&mut targets[i], from);
            at = j;
        }
        out.extend(unused(&targets[i], &stated).map(|d| (targets[i].source, vec![d])));
    }
    out
}

/// Messages about element types that are stated of kernels which the target does not have.
fn unused(t: &TargetItem, stated: &BTreeMap<String, KernelTypes>) -> impl Iterator<Item = Diag> {
    let names: Vec<&str> =
        t.kernels.iter().map(|k| &*k.name).chain(t.pointwise.as_deref()).collect();
    let missing = stated.iter().filter(move |(name, _)| !names.contains(&name.as_str()));
    missing.map(|(name, types)| {
        let message = format!("the target `{}` has no kernel \"{name}\"", t.name);
        let names = t.kernels.iter().map(|k| &*k.name).chain(t.pointwise.as_deref());
        let help = suggest(name, names).unwrap_or_else(|| {
            "a kernel is named with what it `covers`, or where a `fuse` item runs `on` the target".into()
        });
        error("R012", types.span, message, &help)
    })
}

/// What `t` does not state itself, from the target that it extends.
fn take_over(t: &mut TargetItem, from: TargetItem) {
    for (key, value) in from.figures {
        t.figures.entry(key).or_insert(value);
    }
    t.pointwise = t.pointwise.take().or(from.pointwise);
    for (kernel, types) in from.types {
        t.types.entry(kernel).or_insert(types);
    }
    let own: Vec<CallId> = t.kernels.iter().flat_map(|k| k.covers.iter().copied()).collect();
    for mut k in from.kernels {
        k.covers.retain(|c| !own.contains(c));
        let twin = |o: &&mut TargetKernel| {
            o.name == k.name && (&o.epilogue, o.prologue) == (&k.epilogue, k.prologue)
        };
        match t.kernels.iter_mut().find(twin) {
            _ if k.covers.is_empty() => {}
            Some(o) => o.covers.extend(k.covers),
            None => t.kernels.push(k),
        }
    }
}

/// A name that no target has.
fn undeclared<'a>(known: impl Iterator<Item = &'a TargetItem> + Clone, target: &Ident) -> Diag {
    let names = known.map(|t| &*t.name);
    let help = suggest(&target.text, names.clone()).unwrap_or_else(|| {
        let names: Vec<&str> = names.collect();
        match names.is_empty() {
            true => "declare it with `target`".into(),
            false => format!("there are {}", names.join(", ")),
        }
    });
    error("R021", target.span, format!("`{}` is not a target", target.text), &help)
}
