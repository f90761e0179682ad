//! The work of operators (operations and bytes), derived from their meanings; costs and plans share this count.
//!
//! Knows no operator by name. Where an extent is symbolic, it counts as a [`Size`] says.

use super::Work;
use crate::cost::size::Size;
use crate::cost::target::VIEW;
use mlc_dsl::eval::Env;
use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::{AttrKind, BinaryOp, Expr, ExprKind, IndexVar};
use mlc_dsl::ir::unfold::definition;
use mlc_dsl::ir::{Attr, NodeKind, Program, Type, Value};
use mlc_dsl::library::{
    AttrParam, CallId, CallKind, Callable, Dim, Input, Library, Name, OpClass, TypePattern,
};
use mlc_dsl::plan::Kernel;
use mlc_dsl::typing::infer::infer;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

/// An application: operator, attributes, types of its arguments.
type Application = (CallId, Vec<Attr>, Vec<Type>);

/// Counts the work of operators; that of applications that are alike is counted once.
pub struct Works<'a> {
    library: &'a Library,
    at: Size,
    known: RefCell<HashMap<Application, Work>>,
}

impl<'a> Works<'a> {
    /// For the operators of a library, at the default size.
    pub fn new(library: &'a Library) -> Works<'a> {
        Works::at(library, Size::default())
    }

    /// The same at another size.
    pub fn at(library: &'a Library, at: Size) -> Works<'a> {
        Works { library, at, known: RefCell::default() }
    }

    /// The size that work is counted at.
    pub fn size(&self) -> &Size {
        &self.at
    }

    /// Operations of an application and points of its results; no bytes and no launch, for those are
    /// the kernel's that computes it.
    pub fn of(&self, id: CallId, attrs: &[Attr], args: &[&Type], results: &[Type]) -> Work {
        let call = self.library.call(id);
        if call.class == OpClass::View {
            let points: f64 = results.iter().map(|t| self.at.elements(t)).sum();
            let moved = if reorders(call, attrs) { points } else { 0.0 };
            let rows = repeated_runs(&self.at, call, attrs, results);
            return Work { moved, rows, ..Work::default() };
        }
        let key = (id, attrs.to_vec(), args.iter().map(|t| (*t).clone()).collect::<Vec<_>>());
        if let Some(known) = self.known.borrow().get(&key) {
            return *known;
        }
        let work = match &call.kind {
            CallKind::Op(_) => {
                let moved = across(&self.at, call, attrs, args);
                let launches = STEP * steps(&self.at, call, results);
                Work { moved, launches, ..operations(&self.at, call, attrs, args, results) }
            }
            CallKind::Def(_) => self.definition(id, attrs, args, results),
            CallKind::Extern(_) => procedure(&self.at, call, args, results),
        };
        self.known.borrow_mut().insert(key, work);
        work
    }

    /// The work of a plan's kernel. A view that does not reorder is free.
    pub fn kernel(&self, program: &Program, k: &Kernel) -> Work {
        let mut work = Work { launches: 1.0, ..Work::default() };
        let copied = |v: &Value| self.copied_by_view(program, *v);
        let copies = |args: &[Value]| args.iter().map(copied).collect::<Vec<_>>();
        for &n in &k.nodes {
            let node = program.node(n);
            if let NodeKind::Apply(call, attrs) = &node.kind {
                let args: Vec<&Type> = node.args.iter().map(|a| program.ty(*a)).collect();
                let own = self.of(*call, attrs, &args, &node.types);
                let own = self.of_copies(own, &args, &copies(&node.args));
                let is_view = self.library.call(*call).class == OpClass::View;
                // A constant is seen in another order before the first run.
                let done = is_view && node.args.iter().all(|a| program.as_const(*a).is_some());
                work += if done { Work::default() } else { own };
            }
        }
        if k.name == VIEW && work.moved == 0.0 {
            return Work::default();
        }
        let constants = k.inputs.iter().filter(|v| program.as_const(**v).is_some());
        work.fixed = constants.map(|v| self.at.bytes(program.ty(*v))).sum();
        let read = |v: &Value| match copied(v) {
            Some(n) => n * program.ty(*v).dtype.size() as f64,
            None => self.at.bytes(program.ty(*v)),
        };
        work.read = k.inputs.iter().map(read).sum();
        work.written = k.outputs.iter().map(|v| self.at.bytes(program.ty(*v))).sum();
        work
    }

    /// Elements of a value of type `to` that is made by a view of one of type `from`, if it repeats these along an open axis. How often
    /// is not known, and a runtime multiplies all copies at once.
    pub fn copied(&self, from: &Type, to: &Type) -> Option<f64> {
        let is_open = to.shape.iter().any(|e| e.as_const().is_none());
        let elements = |t: &Type| self.at.elements(t);
        (is_open && elements(from) < elements(to)).then(|| elements(from))
    }

    /// The same of a value of a program.
    pub fn copied_by_view(&self, program: &Program, v: Value) -> Option<f64> {
        let NodeKind::Apply(call, _) = &program.node(v.node).kind else { return None };
        let is_view = self.library.call(*call).class == OpClass::View;
        let from = program.node(v.node).args.first().filter(|_| is_view)?;
        self.copied(program.ty(*from), program.ty(v))
    }

    /// The work of a contraction whose operands are [copies](Self::copied): of each, the elements that there are.
    pub fn of_copies(&self, mut work: Work, args: &[&Type], copied: &[Option<f64>]) -> Work {
        if work.thin > 0.0 && copied.iter().any(Option::is_some) {
            let terms = work.products / 2.0;
            let elements = |t: &Type| self.at.elements(t);
            let sizes = args.iter().zip(copied).map(|(t, n)| n.unwrap_or_else(|| elements(t)));
            work.thin *= thinness_of(terms, sizes) / thinness(&self.at, terms, args);
        }
        work
    }

    fn definition(&self, id: CallId, attrs: &[Attr], args: &[&Type], results: &[Type]) -> Work {
        let points = results.iter().map(|t| self.at.elements(t)).sum();
        let work = self.body(id, attrs, args).map_or(Work::default(), |w| Work { points, ..w });
        let moved = across(&self.at, self.library.call(id), attrs, args);
        Work { rows: rows(&self.at, work.products, args, results), moved, ..work }
    }

    /// The work of a definition's body; `None` if it does not apply to these arguments.
    fn body(&self, id: CallId, attrs: &[Attr], args: &[&Type]) -> Option<Work> {
        let program = definition(self.library, id, attrs, args).ok()?;
        let mut work = Work::default();
        for n in &program.nodes {
            if let NodeKind::Apply(call, attrs) = &n.kind {
                let args: Vec<&Type> = n.args.iter().map(|&a| program.ty(a)).collect();
                work += self.of(*call, attrs, &args, &n.types);
            }
        }
        Some(work)
    }
}

/// The part of a launch that a step of a recurrence takes besides its elements.
const STEP: f64 = 0.05;

/// The steps of a recurrence, one after the other; 0 for other operators.
fn steps(at: &Size, call: &Callable, results: &[Type]) -> f64 {
    let extent = |(output, ty): (usize, &Type)| {
        let axis = call.axis_of_steps(output, ty.rank())?;
        ty.shape.get(axis).map(|e| at.extent(e))
    };
    results.iter().enumerate().filter_map(extent).fold(0.0, f64::max)
}

/// True if an attribute of the operator is a permutation that moves something.
fn reorders(call: &Callable, attrs: &[Attr]) -> bool {
    let moves = |a: &Attr| a.as_i64s().is_some_and(|p| !p.is_sorted());
    call.attrs.iter().zip(attrs).any(|(p, a)| p.ty.kind == AttrKind::Perm && moves(a))
}

/// Runs that a repetition along new axes is written in: copies of neighbours, or one element many times, whichever its last
/// axes are. Zero for other views.
fn repeated_runs(at: &Size, call: &Callable, attrs: &[Attr], results: &[Type]) -> f64 {
    let map = |(p, a): (&AttrParam, &Attr)| (*p.name == *"map").then(|| a.as_i64s()).flatten();
    let (Some(map), Some(result)) = (call.attrs.iter().zip(attrs).find_map(map), results.first())
    else {
        return 0.0;
    };
    let axes =
        result.shape.iter().map(|e| at.extent(e)).enumerate().rev().filter(|(_, n)| *n != 1.0);
    let copied = |axis: usize| map.contains(&(axis as i64));
    let last = axes.clone().next().map(|(axis, _)| copied(axis));
    let run: f64 =
        axes.take_while(|(axis, _)| Some(copied(*axis)) == last).map(|(_, n)| n).product();
    at.elements(result) / run.max(1.0)
}

/// Elements that an operator visits across their order: its attributes name axes, but not the last.
fn across(at: &Size, call: &Callable, attrs: &[Attr], args: &[&Type]) -> f64 {
    let Some(first) = args.first() else { return 0.0 };
    let last = first.rank() as i64 - 1;
    let crosses = |(p, a): (&AttrParam, &Attr)| match p.ty.kind {
        AttrKind::Axis => a.as_i64().is_some_and(|v| v != last && v != -1),
        AttrKind::Axes => a.as_i64s().is_some_and(|v| !v.is_empty() && !v.contains(&last)),
        _ => false,
    };
    if call.attrs.iter().zip(attrs).any(crosses) { at.elements(first) } else { 0.0 }
}

/// What a procedure does, read off its signature: each operand meets the first one, or the first result,
/// wherever they share an axis.
fn procedure(at: &Size, call: &Callable, args: &[&Type], results: &[Type]) -> Work {
    let points: f64 = results.iter().map(|t| at.elements(t)).sum();
    let axes = |t: &TypePattern, ty: &Type| -> BTreeMap<Name, f64> {
        let dims = t.dims.iter().flatten().zip(&ty.shape);
        let named = dims.filter_map(|(d, e)| match d {
            Dim::Axis(n) => Some((n.clone(), at.extent(e))),
            _ => None,
        });
        named.collect()
    };
    let all: Vec<BTreeMap<Name, f64>> =
        call.inputs.iter().zip(args).map(|(i, t)| axes(&i.ty, t)).collect();
    let result = call.outputs.first().zip(results.first()).map(|(o, t)| axes(&o.1, t));
    let mut flops = points;
    for own in all.iter().skip(1) {
        let met = all.first().into_iter().chain(&result);
        let met = met.filter(|m| m.keys().any(|k| own.contains_key(k)));
        let union = |m: &BTreeMap<Name, f64>| -> f64 {
            let more = own.iter().filter(|(k, _)| !m.contains_key(*k));
            m.values().chain(more.map(|(_, v)| v)).product()
        };
        let least = met.map(union).fold(f64::INFINITY, f64::min);
        flops += if least.is_finite() { 2.0 * least } else { 0.0 };
    }
    let thin = flops * thinness(at, flops / 2.0, args);
    Work {
        flops,
        products: flops - points,
        thin,
        points,
        rows: rows(at, flops - points, args, results),
        ..Work::default()
    }
}

/// Groups that an attribute cuts the operands of a contraction into.
fn groups(call: &Callable, attrs: &[Attr]) -> f64 {
    let of = |(p, a): (&AttrParam, &Attr)| (*p.name == *"group").then(|| a.as_i64()).flatten();
    call.attrs.iter().zip(attrs).find_map(of).map_or(1.0, |n| n.max(1) as f64)
}

/// True if an attribute says that elements are left out between those that are met.
fn strides(call: &Callable, attrs: &[Attr]) -> bool {
    let leaves = |a: &Attr| a.as_i64s().is_some_and(|v| v.iter().any(|s| *s > 1));
    call.attrs.iter().zip(attrs).any(|(p, a)| *p.name == *"stride" && leaves(a))
}

/// Problems of a contraction that share nothing: the extents of the axes that all operands have.
fn problems(at: &Size, call: &Callable, app: &Env) -> f64 {
    let Some((first, rest)) = call.inputs.split_first() else { return 0.0 };
    let has = |i: &Input, d: &Dim| {
        i.ty.dims.iter().flatten().any(|e| match (d, e) {
            (Dim::Axis(a), Dim::Axis(b)) | (Dim::Seg(a), Dim::Seg(b)) => a == b,
            _ => false,
        })
    };
    let kept = |d: &&Dim| {
        let result = call.outputs.first().and_then(|o| o.1.dims.as_ref());
        let stays = result.is_some_and(|r| {
            r.iter().any(|e| match (*d, e) {
                (Dim::Axis(a), Dim::Axis(b)) | (Dim::Seg(a), Dim::Seg(b)) => a == b,
                _ => false,
            })
        });
        stays && rest.iter().all(|i| has(i, d))
    };
    let extent = |d: &Dim| match d {
        Dim::Axis(n) => app.axis(n).map_or(1.0, |e| at.extent(e)),
        Dim::Seg(n) => app.seg(n).map_or(1.0, |s| at.product(s)),
        Dim::Value(_) | Dim::Splice(_) => 1.0,
    };
    first.ty.dims.iter().flatten().filter(kept).map(extent).product()
}

/// Elements that a vector unit takes at once.
const LANES: f64 = 16.0;

/// How many operations are done in vain for one that is not: vectors run along what results end in.
fn idleness(at: &Size, call: &Callable, env: &Env) -> f64 {
    let last = call.outputs.first().and_then(|o| o.1.dims.as_ref()?.last());
    let run = match last {
        Some(Dim::Axis(n)) => env.axis(n).map(|e| at.extent(e)),
        Some(Dim::Seg(n)) => env.seg(n).map(|s| at.product(s)),
        _ => None,
    };
    run.filter(|n| *n >= 1.0).map_or(0.0, |n| (n / LANES).ceil() * LANES / n - 1.0)
}

/// What part of a contraction's terms must be brought in: each operand meets the result's axes that another
/// operand has. Axes that no operand names follow from the first one's.
fn fetched(at: &Size, call: &Callable, env: &Env, result: &Type, groups: f64) -> f64 {
    let dims = |i: &Input| i.ty.dims.clone().unwrap_or_default();
    let has = |i: &Input, name: &str| {
        dims(i).iter().any(|d| matches!(d, Dim::Axis(n) | Dim::Seg(n) if **n == *name))
    };
    let of_result = call.outputs.first().and_then(|o| o.1.dims.clone()).unwrap_or_default();
    let reuse = |nth: usize, own: &Input| -> f64 {
        let mut met = 1.0;
        for d in &of_result {
            let (name, extent) = match d {
                Dim::Axis(n) => (n, env.axis(n).map(|e| at.extent(e))),
                Dim::Seg(n) => (n, env.seg(n).map(|s| at.product(s))),
                Dim::Value(_) | Dim::Splice(_) => continue,
            };
            let named = call.inputs.iter().any(|i| has(i, name));
            if !has(own, name) && (named || nth > 0) {
                met *= extent.unwrap_or(1.0);
            }
        }
        // An element of the first operand meets the results of its own group.
        let met = if nth == 0 { met / groups } else { met };
        met.clamp(1.0, at.elements(result).max(1.0))
    };
    call.inputs.iter().enumerate().map(|(nth, i)| 1.0 / reuse(nth, i)).sum()
}

/// Runs of neighbours along the last axis. Where there are products the first operand's and the results' count: others are packed.
fn rows(at: &Size, products: f64, args: &[&Type], results: &[Type]) -> f64 {
    let args = if products > 0.0 { &args[..args.len().min(1)] } else { args };
    let of = |t: &Type| at.elements(t) / t.shape.last().map_or(1.0, |e| at.extent(e)).max(1.0);
    args.iter().map(|t| of(t)).chain(results.iter().map(of)).fold(0.0, f64::max)
}

/// Uses of an operand's element that keep a processor's units busy: about what its registers hold.
const BUSY: f64 = 16.0;

/// The part of a contraction's operations that wait for operands.
fn thinness(at: &Size, terms: f64, args: &[&Type]) -> f64 {
    thinness_of(terms, args.iter().map(|t| at.elements(t)))
}

fn thinness_of(terms: f64, sizes: impl Iterator<Item = f64>) -> f64 {
    let uses = sizes.map(|n| terms / n.max(1.0)).fold(f64::INFINITY, f64::min);
    (BUSY / uses.max(1.0)).min(1.0)
}

/// Scalar operations: those in the meaning, times the points they are computed at.
fn operations(
    at: &Size,
    call: &Callable,
    attrs: &[Attr],
    args: &[&Type],
    results: &[Type],
) -> Work {
    let points: f64 = results.iter().map(|t| at.elements(t)).sum();
    let given: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
    let (CallKind::Op(meanings), Ok(app)) = (&call.kind, infer(call, args, &given)) else {
        return Work {
            flops: points,
            points,
            rows: rows(at, 0.0, args, results),
            ..Work::default()
        };
    };
    let extent = |v: &IndexVar| -> f64 {
        let n = &v.name;
        let seg = app.env.seg(n).map(|s| at.product(s));
        app.env.axis(n).map(|e| at.extent(e)).or(seg).unwrap_or(1.0)
    };
    let mut work = Work { points, ..Work::default() };
    let groups = groups(call, attrs);
    if call.class == OpClass::Contraction {
        work.parts = problems(at, call, &app.env) * groups;
    }
    if call.class == OpClass::Movement {
        let indices = args.iter().skip(1).filter(|t| t.dtype.is_int());
        work.parts = indices.map(|t| at.elements(t)).sum();
    }
    for (m, t) in meanings.iter().zip(results) {
        let met = met(&m.value, call, attrs);
        let [quick, slow, rare] = per_point(&m.value, &extent).map(|n| n * met);
        work.flops += at.elements(t) * quick;
        work.slow += at.elements(t) * slow;
        work.rare += at.elements(t) * rare;
        if call.class == OpClass::Contraction {
            // A product and a sum are one term.
            let terms = at.elements(t) * quick / 2.0;
            work.products += 2.0 * terms;
            work.thin += 2.0 * terms * thinness(at, terms, args);
            let all: f64 = args.iter().map(|t| at.elements(t)).sum();
            let beyond = terms * fetched(at, call, &app.env, t, groups) - all;
            // Less is rounding.
            work.fetched += if beyond > 1e-3 * all { beyond } else { 0.0 };
            if beyond > 1e-3 * all || strides(call, attrs) {
                work.windowed += 2.0 * terms;
            }
            work.idle += 2.0 * terms * idleness(at, call, &app.env);
        }
    }
    Work { rows: rows(at, work.products, args, results), ..work }
}

/// The part of the terms of a meaning that read an element: where a place must be a multiple of a stride, one of so many does, and what
/// lies between meets nothing.
fn met(e: &Expr, call: &Callable, attrs: &[Attr]) -> f64 {
    let stride = |e: &Expr| -> Option<f64> {
        let ExprKind::Name(name) = &e.kind else { return None };
        let at = call.attrs.iter().position(|p| p.name == *name)?;
        let all = attrs.get(at)?.as_i64s()?;
        Some(all.iter().map(|n| (*n).max(1) as f64).product())
    };
    let own = match &e.kind {
        ExprKind::Call(Function::Exact, args) => args.get(1).and_then(stride),
        _ => None,
    };
    e.parts().into_iter().map(|p| met(p, call, attrs)).fold(1.0 / own.unwrap_or(1.0), f64::min)
}

/// One operation that a processor has an instruction for.
const QUICK_ONE: [f64; 3] = [1.0, 0.0, 0.0];

/// One slow operation that vector units are not given.
const RARE_ONE: [f64; 3] = [0.0, 1.0, 1.0];

/// One application of a function.
fn price(f: Function) -> [f64; 3] {
    match f {
        Function::Abs
        | Function::Floor
        | Function::Ceil
        | Function::Round
        | Function::Sign
        | Function::Minimum
        | Function::Maximum => QUICK_ONE,
        // Slow, and common enough for vector units to be given them.
        Function::Exp | Function::Log | Function::Sqrt | Function::Erf | Function::Tanh => {
            [0.0, 1.0, 0.0]
        }
        _ => RARE_ONE,
    }
}

/// Quick, slow, and of these rare scalar operations of an expression at one point; index arithmetic is free.
fn per_point(e: &Expr, extent: &dyn Fn(&IndexVar) -> f64) -> [f64; 3] {
    let inner = |e: &Expr| per_point(e, extent);
    let add = |a: [f64; 3], b: [f64; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
    match &e.kind {
        ExprKind::Unary(_, a) => add(QUICK_ONE, inner(a)),
        ExprKind::Binary(op, a, b) => {
            let own = if *op == BinaryOp::Pow { RARE_ONE } else { QUICK_ONE };
            add(own, add(inner(a), inner(b)))
        }
        ExprKind::Call(f, args) => args.iter().map(inner).fold(price(*f), add),
        ExprKind::Reduce(r) => {
            let terms = r.over.iter().map(extent).product::<f64>();
            let [quick, slow, rare] = inner(&r.body);
            [(1.0 + quick) * terms, slow * terms, rare * terms]
        }
        ExprKind::If { cond, then, otherwise } => {
            let (t, o) = (inner(then), inner(otherwise));
            let most = std::array::from_fn(|i| f64::max(t[i], o[i]));
            add(inner(cond), most)
        }
        _ => [0.0; 3],
    }
}
