//! Schemas: rules that range over operators, instantiated as one rule for every operator that fits.
//!
//! Works on syntax trees, before anything is elaborated, so that everything later sees ordinary laws.

use super::super::meaning::operator_properties;
use super::operator_conditions::{choice, reads_meaning};
use crate::check::report::{error, name};
use crate::diagnostics::Diag;
use crate::library::{CallId, Callable, DTypePattern, Library, Schema};
use crate::syntax::ast::{
    Arg, AttrType, Binding, Domain, Elem, ErrorClause, Expr, ExprKind, Ident, Item, Param,
    ParamKind, Rule, RuleTest, Side, Span, TensorType,
};
use crate::syntax::{written_domain, written_type};
use std::collections::{BTreeMap, BTreeSet};

/// Operands that the packs of a schema are dealt out to in every way; of more, all take the first pack.
const DEALT: usize = 4;

/// One rule that a schema stands for.
pub struct Instance {
    /// Its name: the schema's, and its operators in brackets.
    pub name: Ident,
    /// The rule.
    pub rule: Rule,
    /// What it is an instance of.
    pub schema: Schema,
}

/// True if a rule ranges over operators.
pub fn is_schema(rule: &Rule) -> bool {
    rule.given.iter().any(|p| class(p).is_some()) || rule.given.iter().any(|p| p.pack)
}

/// The class that an operator's variable ranges over.
fn class(p: &Param) -> Option<&Ident> {
    match &p.kind {
        ParamKind::Attr(Some(ty)) if crate::syntax::CLASSES.contains(&ty.name.text.as_str()) => {
            Some(&ty.name)
        }
        _ => None,
    }
}

/// The rules that a schema stands for, in the order of the operators. Operators of a `fuse` take no part: they name what
/// kernels compute, not what programs apply.
pub fn instances(library: &Library, item: &Item, rule: &Rule) -> Result<Vec<Instance>, Diag> {
    let plan = Plan::of(rule, item)?;
    let fused: BTreeSet<CallId> = library.fuses.iter().map(|f| f.call).collect();
    let calls = || (0..library.calls.len() as u32).map(CallId).filter(|c| !fused.contains(c));
    let mut choices: Vec<Vec<CallId>> = vec![vec![]];
    for v in &plan.variables {
        let named = plan.asked.iter().find_map(|e| choice(e, v.name));
        let fits = |c: &CallId| {
            let call = library.call(*c);
            named.as_ref().is_none_or(|n| n.contains(&*call.name)) && plan.admits(library, v, call)
        };
        let fitting: Vec<CallId> = calls().filter(fits).collect();
        let extend = |c: Vec<CallId>| fitting.iter().map(move |&f| [c.clone(), vec![f]].concat());
        choices = choices.into_iter().flat_map(extend).collect();
    }
    let mut out = Vec::new();
    for calls in choices {
        for dealt in plan.deals(library, &calls) {
            let of = Writer { library, plan: &plan, calls: &calls, dealt: &dealt };
            if of.holds(rule)? {
                out.push(of.instance(item, rule));
            }
        }
    }
    if out.is_empty() {
        let message = format!("no operator fits the schema `{}`", item.name.text);
        let help = "an operator must have the class, the number of tensors and the attributes that the schema names, and \
                    meet all conditions on it";
        return Err(error("R026", item.name.span, message, help));
    }
    Ok(out)
}

/// How a schema is written: its variables for operators, and which operands each pack stands for.
pub(crate) struct Plan<'r> {
    pub(crate) variables: Vec<Variable<'r>>,
    /// By pack: the variable whose operands its members are, and the packed argument that they stand in.
    packs: BTreeMap<&'r str, (usize, usize)>,
    /// The names of axes and segments in the types of its variables.
    axes: BTreeSet<&'r str>,
    /// Conditions that ask about operators.
    asked: Vec<&'r Expr>,
}

/// A variable that stands for an operator.
pub(crate) struct Variable<'r> {
    pub(crate) name: &'r str,
    class: &'r str,
    /// Tensors that it is applied to singly.
    single: usize,
    /// Packed arguments that it is applied to.
    packed: usize,
    /// Attributes that the schema names.
    attrs: BTreeSet<&'r str>,
}

impl<'r> Plan<'r> {
    fn of(rule: &'r Rule, item: &Item) -> Result<Plan<'r>, Diag> {
        let variables = rule.given.iter().filter_map(|p| {
            let class = &class(p)?.text;
            let none = BTreeSet::new();
            Some(Variable { name: &p.name.text, class, single: 0, packed: 0, attrs: none })
        });
        let types = rule.given.iter().filter_map(|p| match &p.kind {
            ParamKind::Tensor { ty, .. } => ty.dims.as_ref(),
            ParamKind::ConstInput { .. } | ParamKind::Attr(_) => None,
        });
        let axes = types.flatten().filter_map(|d| match &d.expr().kind {
            ExprKind::Name(n) => Some(n.as_str()),
            _ => None,
        });
        let mut plan = Plan {
            variables: variables.collect(),
            packs: BTreeMap::new(),
            axes: axes.collect(),
            asked: vec![],
        };
        let declared: BTreeSet<&str> =
            rule.given.iter().filter(|p| p.pack).map(|p| p.name.text.as_str()).collect();
        let sides = rule.left.iter().chain(&rule.right).map(|s| &s.value);
        let mut applied = Vec::new();
        sides.chain(rule.wheres.iter().map(|w| &w.value)).for_each(|e| calls(e, &mut applied));
        for (callee, args) in applied {
            plan.note(callee, args, &declared)?;
        }
        // What a pack is computed from is one, too.
        for w in &rule.wheres {
            let [n] = w.names.as_slice() else { continue };
            if let Some(&of) = plan.free(&w.value).first().and_then(|p| plan.packs.get(p)) {
                plan.packs.insert(&n.text, of);
            }
        }
        for p in rule.given.iter().filter(|p| p.pack) {
            if !plan.packs.contains_key(p.name.text.as_str()) {
                let message =
                    format!("the pack `{}` is not used as operands of an operator", p.name.text);
                let help = "use a pack in an argument of an operator's variable, e.g. `f(transpose(xs, perm=p)...)`";
                return Err(error("R026", p.name.span, message, help));
            }
        }
        if let Some(v) = plan.variables.iter().find(|v| v.single + v.packed == 0) {
            let message = format!("`{}` is not applied to a tensor", v.name);
            return Err(error(
                "R026",
                item.name.span,
                message,
                "apply it on the left side, e.g. `f(x)`",
            ));
        }
        let asked = |e: &&Expr| plan.asks(e);
        plan.asked = rule.conditions.iter().chain(&rule.hints).filter(asked).collect();
        Ok(plan)
    }

    /// Notes what an application says of an operator's variable.
    fn note(
        &mut self,
        callee: &'r Ident,
        args: &'r [Arg],
        declared: &BTreeSet<&'r str>,
    ) -> Result<(), Diag> {
        let Some(at) = self.variables.iter().position(|v| *v.name == *callee.text) else {
            return Ok(());
        };
        let tensors = || args.iter().filter(|a| a.name.is_none());
        let packed: Vec<&Arg> = tensors().filter(|a| a.pack).collect();
        let single = tensors().count() - packed.len();
        let v = &mut self.variables[at];
        if v.single + v.packed > 0 && (v.single, v.packed) != (single, packed.len())
            || single > 0 && !packed.is_empty()
        {
            let message = format!("`{}` is applied in two ways", v.name);
            let help =
                "apply it either to single tensors or to packs, with the same number everywhere";
            return Err(error("R026", callee.span, message, help));
        }
        (v.single, v.packed) = (single, packed.len());
        v.attrs.extend(args.iter().filter_map(|a| a.name.as_ref()).map(|n| n.text.as_str()));
        for (group, a) in packed.into_iter().enumerate() {
            let mut clash = None;
            super::super::walk(&a.value, &mut |e| {
                let n = match &e.kind {
                    ExprKind::Name(n) => n,
                    ExprKind::Index { base, .. } => &base.text,
                    _ => return,
                };
                if let Some(&p) = declared.get(n.as_str())
                    && *self.packs.entry(p).or_insert((at, group)) != (at, group)
                {
                    clash = Some(error(
                        "R026",
                        e.span,
                        format!("the pack `{p}` is used in two positions"),
                        "each packed argument of an operator must have the same packs wherever the operator is applied",
                    ));
                }
            });
            if let Some(d) = clash {
                return Err(d);
            }
        }
        Ok(())
    }

    /// The packs that an expression mentions outside of packed arguments.
    pub(crate) fn free(&self, e: &Expr) -> Vec<&'r str> {
        let own = |n: &str| self.packs.get_key_value(n).map(|(k, _)| *k);
        match &e.kind {
            ExprKind::Name(n) => own(n).into_iter().collect(),
            ExprKind::Call { args, .. } => {
                args.iter().filter(|a| !a.pack).flat_map(|a| self.free(&a.value)).collect()
            }
            ExprKind::Index { base, .. } => {
                let inner = super::super::parts(e).into_iter().flat_map(|e| self.free(e));
                own(&base.text).into_iter().chain(inner).collect()
            }
            _ => super::super::parts(e).into_iter().flat_map(|e| self.free(e)).collect(),
        }
    }

    /// True if a condition is about operators, not about what they are applied to.
    pub(crate) fn asks(&self, e: &Expr) -> bool {
        let mut found = false;
        super::super::walk(e, &mut |e| {
            found |= match &e.kind {
                ExprKind::Name(n) => self.variables.iter().any(|v| v.name == n),
                ExprKind::Call { callee, .. } => callee.text == "count",
                _ => false,
            }
        });
        found
    }

    /// True if an operator can stand in a variable's place.
    fn admits(&self, library: &Library, v: &Variable<'_>, c: &Callable) -> bool {
        let of_class = match v.class {
            "pointwise" => operator_properties::pointwise(library, c),
            "reduction" => operator_properties::reduces_by(c).is_some(),
            _ => c.outputs.len() == 1,
        };
        let tensors = match v.packed {
            0 => c.inputs.len() == v.single,
            _ => !c.inputs.is_empty(),
        };
        of_class && tensors && v.attrs.iter().all(|n| c.attrs.iter().any(|a| *a.name == **n))
    }

    /// The ways to deal out operands to packed arguments: per variable and operand, the argument. The first one has one
    /// operand at least, and operands that commute are dealt out in one order.
    fn deals(&self, library: &Library, calls: &[CallId]) -> Vec<Vec<Vec<usize>>> {
        let mut out: Vec<Vec<Vec<usize>>> = vec![vec![]];
        for (v, &call) in self.variables.iter().zip(calls) {
            let c = library.call(call);
            let mut ways: Vec<Vec<usize>> = vec![vec![]];
            for _ in c.inputs.iter().filter(|_| v.packed > 0) {
                let of = if c.inputs.len() > DEALT { 1 } else { v.packed };
                let next = |w: Vec<usize>| (0..of).map(move |g| [w.clone(), vec![g]].concat());
                ways = ways.into_iter().flat_map(next).collect();
            }
            ways.retain(|w| v.packed == 0 || w.contains(&0));
            ways.retain(|w| !c.commutative || w.is_sorted());
            let extend = |d: Vec<Vec<usize>>| {
                ways.iter().map(move |w| [d.clone(), vec![w.clone()]].concat())
            };
            out = out.into_iter().flat_map(extend).collect();
        }
        out
    }
}

/// Writes out a schema for its operators.
pub(crate) struct Writer<'w, 'r> {
    pub(crate) library: &'w Library,
    pub(crate) plan: &'w Plan<'r>,
    pub(crate) calls: &'w [CallId],
    /// Per variable and operand, the packed argument that it is of.
    dealt: &'w [Vec<usize>],
}

/// The member of a pack: the variable whose operand it is, and which one.
pub(crate) type Member = (usize, usize);

impl Writer<'_, '_> {
    fn operator(&self, v: usize) -> &Callable {
        self.library.call(self.calls[v])
    }

    /// The operands that a pack stands for.
    pub(crate) fn members(&self, pack: &str) -> Vec<Member> {
        let Some(&(v, group)) = self.plan.packs.get(pack) else { return vec![] };
        let of = self.dealt[v].iter().enumerate().filter(|(_, g)| **g == group);
        of.map(|(i, _)| (v, i)).collect()
    }

    fn instance(&self, item: &Item, rule: &Rule) -> Instance {
        let sides = |sides: &[Side]| -> Vec<Side> {
            sides.iter().map(|s| Side { value: self.expr(&s.value, None), ..s.clone() }).collect()
        };
        let wheres = rule.wheres.iter().flat_map(|w| {
            self.over(&w.value, |e, at| {
                let names = w.names.iter().map(|n| self.ident(n, at)).collect();
                Binding { names, value: e }
            })
        });
        let clauses = |list: &[Expr]| -> Vec<Expr> {
            let kept = list.iter().filter(|e| !self.plan.asks(e));
            kept.flat_map(|e| self.over(e, |e, _| e)).collect()
        };
        let tests = rule.tests.iter().flat_map(|t| self.test(t));
        let instance = Rule {
            left: sides(&rule.left),
            both_ways: rule.both_ways,
            right: sides(&rule.right),
            given: self.given(rule),
            wheres: wheres.collect(),
            conditions: clauses(&rule.conditions),
            hints: clauses(&rule.hints),
            error: self.class(rule),
            tests: tests.collect(),
        };
        let operators: Vec<String> = (0..self.calls.len()).map(|v| self.label(v)).collect();
        let text = format!("{}[{}]", item.name.text, operators.join(","));
        let parametric = self.plan.variables.iter().all(|v| v.class == "pointwise")
            && !self.plan.asked.iter().any(|e| reads_meaning(e));
        let schema =
            Schema { name: name(&item.name.text), operators: self.calls.to_vec(), parametric };
        Instance { name: Ident { text, span: item.name.span }, rule: instance, schema }
    }

    /// An operator's name, and the operands that are not of the first pack.
    fn label(&self, v: usize) -> String {
        let c = self.operator(v);
        let others = self.dealt[v].iter().zip(&c.inputs).filter(|(g, _)| **g > 0);
        let others: Vec<&str> = others.map(|(_, i)| &*i.name).collect();
        match others.is_empty() {
            true => c.name.to_string(),
            false => format!("{}:{}", c.name, others.join("+")),
        }
    }

    /// What chooses among elements rounds nothing, whatever the schema allows for the others.
    fn class(&self, rule: &Rule) -> Option<ErrorClause> {
        let reduction = |v: &usize| self.plan.variables[*v].class == "reduction";
        let reductions: Vec<usize> = (0..self.calls.len()).filter(reduction).collect();
        let chosen = |f: usize| {
            reductions
                .iter()
                .any(|&r| operator_properties::joins(self.operator(f), self.operator(r)))
        };
        let exact = !reductions.is_empty()
            && reductions.iter().all(|&r| operator_properties::selects(self.operator(r)))
            && (0..self.calls.len()).all(|v| reductions.contains(&v) || chosen(v));
        match &rule.error {
            Some(ErrorClause::Reorder) if exact => Some(ErrorClause::Exact),
            other => other.clone(),
        }
    }

    /// What is made of an expression: once, or once for each member of the pack that it mentions.
    fn over<T>(&self, e: &Expr, make: impl Fn(Expr, Option<Member>) -> T) -> Vec<T> {
        match self.plan.free(e).first() {
            None => vec![make(self.expr(e, None), None)],
            Some(pack) => {
                let members = self.members(pack).into_iter();
                members.map(|m| make(self.expr(e, Some(m)), Some(m))).collect()
            }
        }
    }

    fn given(&self, rule: &Rule) -> Vec<Param> {
        let mut out = Vec::new();
        for p in rule.given.iter().filter(|p| class(p).is_none()) {
            if !p.pack {
                out.push(self.single(p));
                continue;
            }
            for (v, i) in self.members(&p.name.text) {
                let own = &self.operator(v).inputs[i];
                let kind = match &p.kind {
                    ParamKind::Tensor { ty, optional, variadic } => {
                        let ty =
                            self.typed(ty, &own.ty.dtype, own.domain.as_ref().map(written_domain));
                        ParamKind::Tensor { ty, optional: *optional, variadic: *variadic }
                    }
                    other => other.clone(),
                };
                let name = self.ident(&p.name, Some((v, i)));
                out.push(Param { name, pack: false, kind, ..p.clone() });
            }
        }
        for (v, variable) in self.plan.variables.iter().enumerate() {
            for a in &self.operator(v).attrs {
                let named = variable.attrs.contains(&*a.name);
                if named {
                    continue;
                }
                let span = rule.given.first().map_or(Span::default(), |p| p.span);
                let ty = AttrType { span, ..written_type(&a.ty) };
                let name = Ident { text: passed(variable.name, &a.name), span };
                let kind = ParamKind::Attr(Some(ty));
                out.push(Param { each: false, name, pack: false, kind, default: None, span });
            }
        }
        out
    }

    /// A variable that is no pack: of any type, it has the one that the first reduction takes.
    fn single(&self, p: &Param) -> Param {
        let first = self.plan.variables.iter().position(|v| v.packed == 0);
        match (&p.kind, first) {
            (ParamKind::Tensor { ty, optional, variadic }, Some(v)) => {
                let ty = self.typed(ty, &self.operator(v).inputs[0].ty.dtype, ty.domain.clone());
                let kind = ParamKind::Tensor { ty, optional: *optional, variadic: *variadic };
                Param { kind, ..p.clone() }
            }
            _ => p.clone(),
        }
    }

    /// A type whose elements, if they may be any, are those that an operand has.
    fn typed(&self, ty: &TensorType, dtype: &DTypePattern, domain: Option<Domain>) -> TensorType {
        if ty.dtype.text != "T" {
            return ty.clone();
        }
        let text = match dtype {
            DTypePattern::Fixed(d) => d.to_string(),
            DTypePattern::Var(v) => v.to_string(),
        };
        TensorType { dtype: Ident { text, ..ty.dtype.clone() }, domain, ..ty.clone() }
    }

    fn test(&self, t: &RuleTest) -> Vec<RuleTest> {
        match t {
            RuleTest::Check { name, low, high } => {
                let one = |at| RuleTest::Check {
                    name: self.ident(name, at),
                    low: low.clone(),
                    high: high.clone(),
                };
                match self.plan.packs.contains_key(name.text.as_str()) {
                    true => self.members(&name.text).into_iter().map(|m| one(Some(m))).collect(),
                    false => vec![one(None)],
                }
            }
            RuleTest::Picks { side, at } => {
                vec![RuleTest::Picks { side: self.expr(side, None), at: at.clone() }]
            }
            RuleTest::Never { sides, reason } => {
                let one = |s: &Side| Side { value: self.expr(&s.value, None), ..s.clone() };
                vec![RuleTest::Never {
                    sides: sides.iter().map(one).collect(),
                    reason: reason.clone(),
                }]
            }
        }
    }

    /// A name as it is called for a member of its pack.
    fn ident(&self, n: &Ident, at: Option<Member>) -> Ident {
        match at.filter(|_| self.plan.packs.contains_key(n.text.as_str())) {
            Some((v, i)) => {
                let own = &self.operator(v).inputs[i].name;
                Ident { text: format!("{}_{own}", n.text), span: n.span }
            }
            None => n.clone(),
        }
    }

    /// An expression for one member of its packs.
    fn expr(&self, e: &Expr, at: Option<Member>) -> Expr {
        let one = |e: &Expr| Box::new(self.expr(e, at));
        let elems = |items: &[Elem]| -> Vec<Elem> {
            let elem = |i: &Elem| match i {
                Elem::One(e) => Elem::One(self.expr(e, at)),
                Elem::Splice(e) => Elem::Splice(self.expr(e, at)),
            };
            items.iter().map(elem).collect()
        };
        let own = |text: &str| self.ident(&Ident { text: text.into(), span: e.span }, at).text;
        let kind = match &e.kind {
            ExprKind::Name(n) => ExprKind::Name(own(n)),
            ExprKind::Call { callee, args } => self.call(callee, args, at),
            ExprKind::List(items) => ExprKind::List(elems(items)),
            ExprKind::Tuple(items) => {
                ExprKind::Tuple(items.iter().map(|e| self.expr(e, at)).collect())
            }
            ExprKind::Unary(op, a) => ExprKind::Unary(*op, one(a)),
            ExprKind::Binary(op, a, b) => ExprKind::Binary(*op, one(a), one(b)),
            ExprKind::Index { base, index, otherwise } => ExprKind::Index {
                base: self.ident(base, at),
                index: elems(index),
                otherwise: otherwise.as_deref().map(one),
            },
            ExprKind::Axes { of, index } => ExprKind::Axes { of: one(of), index: elems(index) },
            ExprKind::Reduce { monoid, axes, body } => {
                ExprKind::Reduce { monoid: monoid.clone(), axes: axes.clone(), body: one(body) }
            }
            ExprKind::If { cond, then, otherwise } => {
                ExprKind::If { cond: one(cond), then: one(then), otherwise: one(otherwise) }
            }
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Str(_)
            | ExprKind::Bool(_)
            | ExprKind::Size(_) => e.kind.clone(),
        };
        Expr { kind, span: e.span }
    }

    fn call(&self, callee: &Ident, args: &[Arg], at: Option<Member>) -> ExprKind {
        let variable = self.plan.variables.iter().position(|v| *v.name == *callee.text);
        let member = |a: &Arg, at| Arg { value: self.expr(&a.value, at), pack: false, ..a.clone() };
        let Some(v) = variable else {
            let mut out = Vec::new();
            for a in args {
                match self.packs_of(a).first() {
                    Some(pack) => {
                        out.extend(self.members(pack).into_iter().map(|m| member(a, Some(m))));
                    }
                    None => out.push(member(a, at)),
                }
            }
            return ExprKind::Call { callee: callee.clone(), args: out };
        };
        let c = self.operator(v);
        if let Some(axes) = self.named_axes(v, args)
            && let Some(x) = args.iter().find(|a| a.name.is_none())
        {
            let monoid = Ident { text: c.name.to_string(), span: callee.span };
            return ExprKind::Reduce { monoid, axes, body: Box::new(self.expr(&x.value, at)) };
        }
        let packed: Vec<&Arg> = args.iter().filter(|a| a.pack).collect();
        let operands = self.dealt[v].iter().enumerate();
        let mut out: Vec<Arg> = operands.map(|(i, &g)| member(packed[g], Some((v, i)))).collect();
        out.extend(args.iter().filter(|a| !a.pack).map(|a| member(a, at)));
        for a in &c.attrs {
            if args.iter().any(|g| g.name.as_ref().is_some_and(|n| *n.text == *a.name)) {
                continue;
            }
            let ident = |text: String| Ident { text, span: callee.span };
            let value = ExprKind::Name(passed(&callee.text, &a.name));
            let value = Expr { kind: value, span: callee.span };
            out.push(Arg {
                name: Some(ident(a.name.to_string())),
                each: false,
                pack: false,
                value,
            });
        }
        ExprKind::Call { callee: Ident { text: c.name.to_string(), span: callee.span }, args: out }
    }

    /// The axes that a reduction is applied over, if they are given by name, as in `sum(n) x`.
    fn named_axes(&self, v: usize, args: &[Arg]) -> Option<Vec<Elem>> {
        let given = |a: &&Arg| a.name.as_ref().is_some_and(|n| n.text == "axes");
        let ExprKind::List(axes) = &args.iter().find(given)?.value.kind else { return None };
        let is_axis = |e: &Elem| matches!(&e.expr().kind, ExprKind::Name(n) if self.plan.axes.contains(n.as_str()));
        let named = !axes.is_empty() && axes.iter().all(is_axis);
        (self.plan.variables[v].class == "reduction" && named).then(|| axes.clone())
    }

    /// The packs in a packed argument.
    fn packs_of(&self, a: &Arg) -> Vec<&str> {
        if a.pack { self.plan.free(&a.value) } else { vec![] }
    }
}

/// The variable that an attribute which a schema does not name is passed on in.
fn passed(variable: &str, attr: &str) -> String {
    format!("{variable}_{attr}")
}

/// All applications in an expression.
fn calls<'e>(e: &'e Expr, out: &mut Vec<(&'e Ident, &'e [Arg])>) {
    if let ExprKind::Call { callee, args } = &e.kind {
        out.push((callee, args));
    }
    for part in super::super::parts(e) {
        calls(part, out);
    }
}
