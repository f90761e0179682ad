//! Laws from rules, and from definitions, each of which is two laws.

mod operator_conditions;
pub(crate) mod schema;

use super::elaborate::dims::{bears_no_name, find, is_computed};
use super::elaborate::{ElaboratedOperand, Elaborator};
use super::resolve::Scope;
use super::signature;
use crate::check::report::{error, name};
use crate::diagnostics::span::{SourceSpan, Span};
use crate::diagnostics::{Diag, Severity};
use crate::expr::{AttrKind, Expr, ExprKind};
use crate::library::{
    AttrParam, Body, CallId, CallKind, DTypePattern, Dim, ErrorClass, Input, Law, LawOrigin,
    LawSide, LawTest, Library, Name, TestGraph,
};
use crate::syntax::ast::{self, Binding, ErrorClause, Item, Rule, RuleTest, Side};
use crate::term::{Term, TermId, TermKind};
use std::collections::HashSet;

/// The body of a definition.
pub fn body(
    library: &Library,
    id: CallId,
    lets: &[Binding],
    value: &ast::Expr,
    outputs: usize,
) -> (Option<Body>, Vec<Diag>) {
    let c = library.call(id);
    let mut e = Elaborator::new(library, &c.inputs, &c.attrs);
    let roots = elaborate_lets(&mut e, lets)
        .and_then(|()| e.operand(value))
        .and_then(|o| roots(&mut e, o, outputs, value.span));
    let roots = roots.map(|r| conform_outputs(&mut e, r, id));
    let diags = std::mem::take(&mut e.diags);
    (roots.map(|roots| Body { terms: e.terms, roots }), diags)
}

/// A result declared with the body's axes in another order is transposed to that order; one with more
/// axes is broadcast. What cannot become what is declared is diagnosed.
fn conform_outputs(e: &mut Elaborator<'_>, roots: Vec<TermId>, id: CallId) -> Vec<TermId> {
    let library = e.library;
    let declared = library.call(id).outputs.iter().map(|(_, ty)| ty);
    let pairs: Vec<_> = roots.into_iter().zip(declared).collect();
    pairs
        .into_iter()
        .map(|(r, ty)| {
            let Some(d) = ty.dims.as_deref() else { return r };
            let (own, span) = (e.dims(r), e.terms.get(r).span);
            let found = e.terms.get(r).dtype.clone();
            if contradicts(&found, &ty.dtype, &library.call(id).inputs) {
                let message = format!(
                    "the body is {}, but {} is declared",
                    super::dtype_name(&found),
                    super::dtype_name(&ty.dtype)
                );
                let help = "declare that type, or convert: `cast(…, to=…)`";
                e.diags.push(error("R025", span, message, help));
            }
            if super::elaborate::dims::places(&own, d).is_some() {
                if let Some(lost) = lost(e, r, d) {
                    let lost = super::elaborate::dims::key(lost);
                    let message = format!("the result declares `{lost}`, which the body reduces");
                    let help = "declare the result without it; a reduction applies to the whole product that follows it: \
                                `(sum(n) x) * y` multiplies the sum";
                    e.diags.push(error("R025", span, message, help));
                    return r;
                }
                return e.conform(r, d, span);
            }
            if super::elaborate::dims::differ(&own, d, &library.call(id).wheres) {
                let message = format!(
                    "the body has the axes [{}], but [{}] are declared",
                    super::elaborate::dims::without_fresh(&super::elaborate::dims::keys(&own)),
                    super::elaborate::dims::keys(d)
                );
                let help = "declare the axes that the body has; a sum over an axis removes it, and \
                            operands with other axes add theirs";
                e.diags.push(error("R025", span, message, help));
            }
            r
        })
        .collect()
}

/// A declared axis that a part of the body has and its result has no more.
fn lost<'d>(e: &Elaborator<'_>, root: TermId, declared: &'d [Dim]) -> Option<&'d Dim> {
    let own = e.dims(root);
    // What an operator computed may be the axis that is declared.
    if own.iter().any(is_computed) {
        return None;
    }
    let mut missing: Vec<&Dim> = declared.iter().filter(|d| find(&own, d).is_none()).collect();
    missing.retain(|d| !bears_no_name(d));
    let (mut stack, mut seen) = (vec![root], HashSet::new());
    while let Some(t) = stack.pop().filter(|_| !missing.is_empty()) {
        if seen.insert(t) {
            let found = e.terms.get(t).dims.iter().flatten();
            let found = found.into_iter().find_map(|d| missing.iter().find(|m| **m == d));
            if let Some(d) = found {
                return Some(d);
            }
            stack.extend(&e.terms.get(t).args);
        }
    }
    None
}

/// True if a body's element type is another than the declared one, whatever the parameters' types.
fn contradicts(found: &DTypePattern, declared: &DTypePattern, inputs: &[Input]) -> bool {
    let of_input = |p: &DTypePattern| inputs.iter().any(|i| i.ty.dtype == *p);
    match (found, declared) {
        (DTypePattern::Fixed(f), DTypePattern::Fixed(d)) => f != d,
        (DTypePattern::Fixed(_), DTypePattern::Var(_)) => of_input(declared),
        (DTypePattern::Var(_), DTypePattern::Fixed(_)) => of_input(found),
        (DTypePattern::Var(f), DTypePattern::Var(d)) => {
            f != d && of_input(found) && of_input(declared)
        }
    }
}

fn elaborate_lets(e: &mut Elaborator<'_>, lets: &[Binding]) -> Option<()> {
    for l in lets {
        let value = e.operand(&l.value)?;
        bind_names(e, l, value)?;
    }
    Some(())
}

/// Parts and nesting of a number that a `let` or a `where` names: it is written out wherever the name stands.
const PARTS: usize = 1000;
const DEPTH: usize = 256;

/// How many parts an expression has, and how deep they lie in each other.
fn extent_of(e: &Expr) -> (usize, usize) {
    let (mut parts, mut deepest) = (0, 0);
    let mut level = vec![e];
    while !level.is_empty() {
        parts += level.len();
        deepest += 1;
        level = level.into_iter().flat_map(Expr::parts).collect();
    }
    (parts, deepest)
}

fn bind_names(e: &mut Elaborator<'_>, l: &Binding, value: ElaboratedOperand) -> Option<()> {
    match (l.names.as_slice(), value) {
        ([n], ElaboratedOperand::Scalar(v)) => {
            e.check_names(&v)?;
            let (parts, depth) = extent_of(&v);
            if parts > PARTS || depth > DEPTH {
                let message =
                    format!("`{}` is a number of {parts} parts, nested {depth} deep", n.text);
                let help = format!(
                    "names are substituted where they occur; keep it to {PARTS} parts and {DEPTH} deep"
                );
                return e.fail("R023", l.value.span, message, &help);
            }
            e.lets.push((n.text.clone(), ElaboratedOperand::Scalar(v)));
        }
        ([n], v) => e.lets.push((n.text.clone(), v)),
        (names, ElaboratedOperand::Tuple(vs)) if names.len() == vs.len() => {
            e.lets.extend(names.iter().map(|n| n.text.clone()).zip(vs));
        }
        (names, value) => {
            let parts = match &value {
                ElaboratedOperand::Tuple(parts) => {
                    format!("it has {}", super::counted(parts.len(), "part"))
                }
                ElaboratedOperand::Term(_) => "it is one tensor".into(),
                ElaboratedOperand::Scalar(_) => "it is a number".into(),
            };
            let message = format!("the value does not have {} parts", names.len());
            let help = format!("{parts}; give as many names");
            return e.fail("R010", l.value.span, message, &help);
        }
    }
    Some(())
}

fn roots(
    e: &mut Elaborator<'_>,
    o: ElaboratedOperand,
    n: usize,
    span: Span,
) -> Option<Vec<TermId>> {
    let parts = match o {
        ElaboratedOperand::Tuple(parts) => parts,
        one => vec![one],
    };
    if parts.len() != n {
        let message = format!(
            "{} declared, the value has {}",
            super::counted(n, "result"),
            super::counted(parts.len(), "part")
        );
        let help = "a body yields one value, or a tuple `(a, b)` of as many as are declared";
        return e.fail("R010", span, message, help);
    }
    parts
        .into_iter()
        .map(|p| match p {
            ElaboratedOperand::Term(t) => Some(t),
            ElaboratedOperand::Scalar(_) | ElaboratedOperand::Tuple(_) => {
                let help =
                    "a number becomes a tensor when it is combined with one, e.g. `0 * x + 3`";
                e.fail("R010", span, "a result must be a tensor".into(), help)
            }
        })
        .collect()
}

/// The two laws that a definition is: body to name (fold), where `hints` say it pays, and name to body
/// (unfold).
pub fn of_definition(library: &Library, id: CallId, hints: &[Expr]) -> Vec<Law> {
    let c = library.call(id);
    let CallKind::Def(body) = &c.kind else { return vec![] };
    let mut terms = body.terms.clone();
    let span = c.source.span;
    let e = Elaborator::new(library, &c.inputs, &c.attrs);
    let mut e = Elaborator { terms: std::mem::take(&mut terms), ..e };
    let args: Vec<TermId> = (0..c.inputs.len()).map(|i| e.var(i, span)).collect();
    let attr = |a: &AttrParam| Some(Expr { kind: ExprKind::Name(a.name.clone()), span });
    let attrs = c.attrs.iter().map(attr).collect();
    let first = e.terms.get(body.roots[0]).clone();
    let whole = e.terms.push(Term {
        kind: TermKind::Apply(id, attrs),
        args,
        dims: first.dims,
        dtype: first.dtype,
        span,
    });
    let named: Vec<TermId> = if body.roots.len() == 1 {
        vec![whole]
    } else {
        let output = |(i, r): (usize, &TermId)| {
            let t = e.terms.get(*r).clone();
            e.terms.push(Term { kind: TermKind::Output(i), args: vec![whole], ..t })
        };
        body.roots.iter().enumerate().map(output).collect()
    };
    let sides = |roots: &[TermId]| -> Vec<LawSide> {
        roots.iter().map(|&root| LawSide { name: name(""), each: false, root }).collect()
    };
    let fold = Law {
        name: c.name.clone(),
        doc: c.doc.clone(),
        origin: LawOrigin::Fold,
        vars: c.inputs.clone(),
        attrs: c.attrs.clone(),
        terms: e.terms,
        left: sides(&body.roots),
        right: sides(&named),
        conditions: vec![],
        hints: hints.to_vec(),
        error: ErrorClass::Exact,
        tests: vec![],
        schema: None,
        source: c.source,
    };
    let unfold = Law {
        name: Name::from(format!("{}.rev", c.name)),
        origin: LawOrigin::Unfold,
        left: fold.right.clone(),
        right: fold.left.clone(),
        hints: vec![],
        ..fold.clone()
    };
    let mut out = Vec::new();
    if unbound(&fold).is_empty() {
        out.push(fold);
    }
    out.push(unfold);
    out
}

/// The parameters of a definition that matching its body would not find: with any, it is not recognised.
pub fn hidden(library: &Library, id: CallId) -> Vec<Name> {
    let c = library.call(id);
    let CallKind::Def(body) = &c.kind else { return vec![] };
    let sides = body.roots.iter().map(|&root| LawSide { name: name(""), each: false, root });
    let left: Vec<LawSide> = sides.collect();
    let attr = |a: &AttrParam| ExprKind::Name(a.name.clone());
    let mut terms = body.terms.clone();
    // Every parameter is wanted on the right.
    let attrs = c.attrs.iter().map(|a| Some(Expr { kind: attr(a), span: c.source.span })).collect();
    let dtype = c.outputs[0].1.dtype.clone();
    let kind = TermKind::Apply(id, attrs);
    terms.push(Term { kind, args: vec![], dims: None, dtype, span: c.source.span });
    unbound(&Law {
        name: c.name.clone(),
        doc: vec![],
        origin: LawOrigin::Fold,
        vars: c.inputs.clone(),
        attrs: c.attrs.clone(),
        terms,
        right: left.clone(),
        left,
        conditions: vec![],
        hints: vec![],
        error: ErrorClass::Exact,
        tests: vec![],
        schema: None,
        source: c.source,
    })
}

/// A condition that compares or computes with the elements of a tensor.
fn compared(condition: &Expr, given: &[Input], attrs: &[AttrParam]) -> Option<Diag> {
    let mut found = None;
    condition.walk(&mut |e| {
        let ExprKind::Binary(_, a, b) = &e.kind else { return };
        for side in [a, b] {
            let ExprKind::Name(n) = &side.kind else { continue };
            if given.iter().any(|v| v.name == *n) && !attrs.iter().any(|a| a.name == *n) {
                found.get_or_insert((n.clone(), side.span));
            }
        }
    });
    let (n, span) = found?;
    let message = format!("`{n}` is a tensor, and conditions compare extents and attributes");
    let help = format!(
        "ask of its elements with `positive({n})`, `nonzero({n})`, `finite({n})` or `within({n}, 0, 1)`"
    );
    Some(error("R010", span, message, &help))
}

/// The laws of a rule: one, or two if it goes both ways.
pub fn of_rule(library: &Library, source: u32, item: &Item, rule: &Rule) -> (Vec<Law>, Vec<Diag>) {
    if signature::untyped(&rule.given) {
        return (vec![], vec![]);
    }
    let mut diags = Vec::new();
    let (given, attrs) = signature::parameters(&rule.given, &mut diags);
    let vars: Vec<Input> = given.iter().filter(|v| !only_tested(rule, &v.name)).cloned().collect();
    let mut e = Elaborator::new(library, &vars, &attrs);
    e.declare_attrs = true;
    let left = sides(&mut e, &rule.left);
    e.declare_attrs = rule.both_ways;
    if let Some(s) = left.iter().flatten().find(|s| s.each) {
        e.each_dims = Some(e.dims(s.root));
    }
    let right = elaborate_lets(&mut e, &rule.wheres).and_then(|()| sides(&mut e, &rule.right));
    let mut resolved = |list: &[ast::Expr]| list.iter().filter_map(|c| e.resolve(c)).collect();
    let (conditions, hints): (Vec<Expr>, Vec<Expr>) =
        (resolved(&rule.conditions), resolved(&rule.hints));
    for c in conditions.iter().chain(&hints) {
        e.check_names(c);
    }
    diags.extend(conditions.iter().chain(&hints).filter_map(|c| compared(c, &given, &e.attrs)));
    let tests = tests(&mut e, rule, &given);
    diags.append(&mut e.diags);
    let attrs = e.attrs;
    let terms = e.terms;
    let (Some(left), Some(right)) = (left, right) else { return (vec![], diags) };
    let Some(class) = rule.error.as_ref().map(error_class) else {
        let help = "write `error exact`, `error reorder` or `error approx(abs=…, rel=…)`";
        let message = format!("the law `{}` has no error class", item.name.text);
        diags.push(error("R018", item.name.span, message, help));
        return (vec![], diags);
    };
    let right = match pair_up(&left, right) {
        Ok(right) => right,
        Err(message) => {
            let span = match (rule.right.first(), rule.right.last()) {
                (Some(first), Some(last)) => first.value.span.to(last.value.span),
                _ => item.name.span,
            };
            diags.push(error("R019", span, message, "both sides name the same outputs"));
            return (vec![], diags);
        }
    };
    let law = Law {
        name: name(&item.name.text),
        doc: item.doc.clone(),
        origin: LawOrigin::Rule,
        vars: vars.clone(),
        attrs,
        terms,
        left,
        right,
        conditions,
        hints,
        error: class,
        tests,
        schema: None,
        source: SourceSpan::new(source, item.span),
    };
    let mut laws = vec![law];
    if rule.both_ways {
        let law = &laws[0];
        laws.push(Law {
            name: Name::from(format!("{}.rev", law.name)),
            origin: LawOrigin::Reverse,
            left: law.right.clone(),
            right: law.left.clone(),
            ..law.clone()
        });
    }
    for law in &laws {
        for n in unbound(law) {
            let message = format!("`{n}` is not bound by the left side of `{}`", law.name);
            let help = "every variable of the result must be bound by the match";
            let given = rule.given.iter().find(|p| p.name.text == *n);
            let span = given.map_or(item.name.span, |p| p.name.span);
            diags.push(error("R020", span, message, help));
        }
    }
    if diags.iter().any(|d| d.severity == Severity::Error) {
        return (vec![], diags);
    }
    (laws, diags)
}

/// True if a variable occurs in the graphs of tests alone: the law itself does not have it.
fn only_tested(rule: &Rule, var: &str) -> bool {
    let among = |sides: &[Side]| sides.iter().any(|s| super::occurs(&s.value, var));
    let tested = |t: &RuleTest| matches!(t, RuleTest::Never { sides, .. } if among(sides));
    let of_law = among(&rule.left) || among(&rule.right);
    !of_law && rule.tests.iter().any(tested)
}

/// The tests of a rule over its own terms; what cannot be elaborated is diagnosed and left out.
fn tests(e: &mut Elaborator<'_>, rule: &Rule, given: &[Input]) -> Vec<LawTest> {
    let mut out = Vec::new();
    for t in &rule.tests {
        out.extend(match t {
            RuleTest::Check { name: n, low, high } => {
                let bounds = (closed(e, low), closed(e, high));
                let (Some(low), Some(high)) = bounds else { continue };
                Some(LawTest::Check { name: name(&n.text), low, high })
            }
            RuleTest::Picks { side, at } => {
                let at: Vec<(Name, Expr)> =
                    at.iter().filter_map(|(n, v)| Some((name(&n.text), closed(e, v)?))).collect();
                let root = e.term(side);
                root.map(|root| LawTest::Picks { side: root, at, span: side.span })
            }
            RuleTest::Never { sides: graph, reason } => {
                let mut inner = Elaborator::new(e.library, given, &e.attrs);
                let roots = sides(&mut inner, graph);
                e.diags.append(&mut inner.diags);
                roots.map(|roots| LawTest::Never {
                    graph: TestGraph {
                        vars: given.to_vec(),
                        terms: inner.terms,
                        roots: roots.iter().map(|s| s.root).collect(),
                    },
                    reason: reason.clone(),
                    span: graph.first().map_or(Span::default(), |s| s.value.span),
                })
            }
        });
    }
    out
}

/// A number in a test, which speaks of nothing but itself.
fn closed(e: &mut Elaborator<'_>, number: &ast::Expr) -> Option<Expr> {
    Scope::of(&[], &[]).told(number, &mut e.diags)
}

fn error_class(e: &ErrorClause) -> ErrorClass {
    match e {
        ErrorClause::Exact => ErrorClass::Exact,
        ErrorClause::Reorder => ErrorClass::Reorder,
        ErrorClause::Approx { abs, rel } => {
            ErrorClass::Approx { abs: abs.unwrap_or(0.0), rel: rel.unwrap_or(0.0) }
        }
    }
}

fn sides(e: &mut Elaborator<'_>, sides: &[Side]) -> Option<Vec<LawSide>> {
    let mut out = Vec::new();
    for s in sides {
        let value = e.operand(&s.value)?;
        let n = s.names.len().max(1);
        let roots = roots(e, value, n, s.value.span)?;
        for (i, root) in roots.into_iter().enumerate() {
            let name = name(s.names.get(i).map_or("", |n| &n.text));
            out.push(LawSide { name, each: s.each, root });
        }
    }
    Some(out)
}

/// The right sides in the order of the left ones, by name.
fn pair_up(left: &[LawSide], right: Vec<LawSide>) -> Result<Vec<LawSide>, String> {
    if left.len() != right.len() {
        return Err(format!("{} outputs on the left, {} on the right", left.len(), right.len()));
    }
    left.iter()
        .map(|l| {
            let found = right.iter().find(|r| r.name == l.name);
            found.cloned().ok_or_else(|| format!("the right side has no output `{}`", l.name))
        })
        .collect()
}

/// Variables and attributes that matching the left side does not bind.
fn unbound(law: &Law) -> Vec<Name> {
    let mut seen: HashSet<TermId> = HashSet::new();
    let mut vars: HashSet<usize> = HashSet::new();
    let mut attrs: HashSet<Name> = HashSet::new();
    let mut stack: Vec<TermId> = law.left.iter().map(|s| s.root).collect();
    while let Some(t) = stack.pop() {
        if !seen.insert(t) {
            continue;
        }
        let term = law.terms.get(t);
        stack.extend(&term.args);
        match &term.kind {
            TermKind::Var(i) => drop(vars.insert(*i)),
            TermKind::Scalar(e) => bind_name(e, &mut attrs),
            TermKind::Apply(_, list) => {
                list.iter().flatten().for_each(|e| bind_name(e, &mut attrs));
                list.iter().flatten().for_each(|e| bind_entries(e, &mut attrs));
            }
            TermKind::Output(_) | TermKind::EachFold(..) | TermKind::EachPart(_) => {}
        }
    }
    let used = used_names(law);
    let vars = law.vars.iter().enumerate().filter(|(i, _)| !vars.contains(i)).map(|(_, v)| &v.name);
    let attrs = law.attrs.iter().filter(|a| {
        // The position of an axis follows from the types once the variables are bound.
        !attrs.contains(&a.name) && a.ty.kind != AttrKind::Axis && used.contains(&a.name)
    });
    vars.chain(attrs.map(|a| &a.name)).cloned().collect()
}

fn bind_name(e: &Expr, out: &mut HashSet<Name>) {
    if let ExprKind::Name(n) = &e.kind {
        out.insert(n.clone());
    }
}

/// The names that a list in a pattern binds: of spliced ones there may be one.
fn bind_entries(e: &Expr, out: &mut HashSet<Name>) {
    let names = crate::eval::list_patterns::names(e);
    let spliced = names.iter().filter(|(spliced, n)| *spliced && !out.contains(*n)).count();
    if spliced < 2 {
        out.extend(names.iter().map(|(_, n)| (*n).clone()));
    }
}

/// All names in the attribute expressions of both sides.
fn used_names(law: &Law) -> HashSet<Name> {
    let mut out = HashSet::new();
    let mut note = |e: &Expr| {
        e.walk(&mut |e| bind_name(e, &mut out));
    };
    for (_, t) in law.terms.iter() {
        match &t.kind {
            TermKind::Scalar(e) | TermKind::EachPart(e) => note(e),
            TermKind::Apply(_, list) | TermKind::EachFold(_, list) => {
                list.iter().flatten().for_each(&mut note);
            }
            TermKind::Var(_) | TermKind::Output(_) => {}
        }
    }
    law.conditions.iter().for_each(&mut note);
    out
}
