//! Properties of a law that samples must respect: names, conjuncts of its conditions, domains of elements.

use crate::sample::draft::{RangePolicy, SampleDraft};
use crate::sample::special_values;
use mlc_backends::reference::CodeCache;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{self, AttrKind, BinaryOp, Elem, Expr, ExprKind, Monoid, TypePart, UnaryOp};
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::{
    CallId, CallKind, DTypePattern, Dim, Law, LawOrigin, LawTest, Library, Name,
};
use mlc_dsl::term::{TermId, TermKind};
use std::cell::Cell;

/// So many numbers of a law are tried as elements.
const MAX_NUMBERS: usize = 4;

/// Integers up to this one that a law names are tried as extents.
pub(crate) const LARGEST_SIZE: i64 = 300;

/// As an integer of a law: beyond it begin the integers that f16 lacks.
const LARGEST_ATTR: i64 = 2049;

/// Steps of the interpreter that one run may take, and those that count as one draw of attributes.
const MOST_STEPS: f64 = 2e6;
const STEPS: f64 = 1500.0;

/// An axis or segment of the law's variables.
#[derive(Clone, Debug)]
pub(crate) struct AxisOrSegment {
    pub name: Name,
    /// Each member of the family has its own.
    pub private: bool,
    /// What `check` pins it to.
    pub pinned: Option<(i64, i64)>,
}

/// What the elements of a variable must satisfy.
#[derive(Clone, Debug, Default)]
pub(crate) struct ElementRule {
    /// Lowest value, inclusive.
    pub low: Option<f64>,
    /// Highest value, inclusive.
    pub high: Option<f64>,
    /// The bounds themselves are excluded.
    pub open: bool,
    /// All elements are equal.
    pub uniform: bool,
    /// No element is zero.
    pub nonzero: bool,
    /// No NaN and no infinity.
    pub finite: bool,
    /// No negative zero.
    pub unsigned: bool,
    /// Within its bounds an element may be NaN.
    pub missing: bool,
    /// It is no NaN all the same.
    pub number: bool,
}

impl ElementRule {
    /// True if elements of this type can satisfy it.
    pub(crate) fn admits_some(&self, dtype: DType) -> bool {
        let (Some(low), Some(high)) = (self.low, self.high) else { return true };
        let none = if dtype.is_float() { low > high } else { low.ceil() > high.floor() };
        !none || self.missing && dtype.is_float()
    }
}

/// A condition that a sample can break alone.
#[derive(Clone, Debug)]
pub(crate) enum Conjunct {
    /// Decided by extents and attributes; predicates in it count as true.
    Static(Expr),
    /// Decided by the elements of a variable.
    Element(usize, Predicate),
}

/// What a condition asks of elements.
#[derive(Clone, Debug)]
pub(crate) struct Predicate {
    /// What it asks.
    pub asks: expr::Predicate,
    /// The bounds, if it has some.
    bounds: Option<(Expr, Expr)>,
}

impl Predicate {
    /// Of a call in a condition.
    pub(crate) fn of(asks: expr::Predicate, args: &[Expr]) -> Predicate {
        let bounds = match args {
            [_, low, high] => Some((low.clone(), high.clone())),
            _ => None,
        };
        Predicate { asks, bounds }
    }

    /// True if it has no bounds, or they are numbers where names have these values.
    pub(crate) fn is_known(&self, env: &Env) -> bool {
        self.bounds.is_none() || self.bounds(env).is_some()
    }

    /// The bounds where names have these values.
    pub(crate) fn bounds(&self, env: &Env) -> Option<(f64, f64)> {
        let number = |a: &Expr| eval(a, env).ok().and_then(|a| a.as_f64());
        let (low, high) = self.bounds.as_ref()?;
        number(low).zip(number(high))
    }
}

/// A law and what sampling must know of it.
pub(crate) struct LawFacts<'a> {
    /// Where operators are declared.
    pub library: &'a Library,
    pub law: &'a Law,
    /// Dtype variables and fixed patterns of the variables, each once.
    pub dtypes: Vec<Name>,
    /// Axes of the variables.
    pub axes: Vec<AxisOrSegment>,
    /// Segments of the variables.
    pub segs: Vec<AxisOrSegment>,
    /// The conditions, taken apart.
    pub conjuncts: Vec<Conjunct>,
    /// Per variable: the domain that it is declared with.
    pub domains: Vec<ElementRule>,
    /// Per variable: what `check` demands.
    pub elements: Vec<ElementRule>,
    /// Predicates in composed conditions, with their variables.
    composed: Vec<(usize, Predicate)>,
    /// Per term: whether each member of the family has its own.
    pub dependent: Vec<bool>,
    /// The law speaks of families.
    pub each: bool,
    /// An attribute is a list of integers: parts, windows and steps need room.
    pub parts: bool,
    /// Words that an attribute may be compared with.
    pub words: Vec<String>,
    /// Numbers that the sides name, other than zero and one.
    pub numbers: Vec<f64>,
    /// Integers that the law names, and one beyond each narrow type that it names: extents and attributes may turn there.
    pub sizes: Vec<i64>,
    /// The same of types in which few integers are exact: attributes may turn there.
    pub counts: Vec<i64>,
    /// Values of single attributes at which functions and operators turn, each by itself.
    pub specials: Vec<(Name, Attr)>,
    /// Per variable: whether the law asks for a constant there.
    pub given: Vec<bool>,
    /// A condition speaks of element types.
    pub typed: bool,
    /// What the reference interpreter has compiled so far.
    pub codes: CodeCache<'a>,
    /// Drafts and draws of attributes so far.
    draws: Cell<usize>,
}

impl<'a> LawFacts<'a> {
    /// Reads a law.
    pub(crate) fn of(library: &'a Library, law: &'a Law) -> LawFacts<'a> {
        LawFacts::with_conditions(library, law, &law.conditions)
    }

    /// Reads a law under other conditions than its own.
    pub(crate) fn with_conditions(
        library: &'a Library,
        law: &'a Law,
        conditions: &[Expr],
    ) -> LawFacts<'a> {
        let each = law.vars.iter().any(|v| v.each);
        let mut f = LawFacts {
            library,
            law,
            dtypes: Vec::new(),
            axes: Vec::new(),
            segs: Vec::new(),
            conjuncts: Vec::new(),
            domains: Vec::new(),
            elements: Vec::new(),
            composed: Vec::new(),
            dependent: dependent(law),
            each,
            parts: law.attrs.iter().any(|a| a.ty.kind == AttrKind::Ints),
            words: Vec::new(),
            numbers: Vec::new(),
            sizes: Vec::new(),
            counts: Vec::new(),
            specials: special_values::special_values(law),
            given: vec![false; law.vars.len()],
            typed: conditions.iter().any(asks_dtype),
            codes: CodeCache::bounded(library, MOST_STEPS),
            draws: Cell::default(),
        };
        f.names();
        f.domains();
        for c in conditions {
            f.conjunct(c);
        }
        f.collect_words();
        f.collect_numbers();
        f.collect_sizes();
        conditions.iter().chain(&law.hints).for_each(|c| f.constants(c));
        f
    }

    /// True of the two laws that a definition makes.
    pub(crate) fn defined(&self) -> bool {
        matches!(self.law.origin, LawOrigin::Fold | LawOrigin::Unfold)
    }

    /// True of a rule whose left sides are variables and numbers: they are no patterns.
    pub(crate) fn matches_all(&self) -> bool {
        let bare =
            |root| matches!(self.law.terms.get(root).kind, TermKind::Var(_) | TermKind::Scalar(_));
        self.law.origin == LawOrigin::Rule && self.law.left.iter().all(|side| bare(side.root))
    }

    /// Notes of so many drafts or draws of attributes.
    pub(crate) fn drew(&self, draws: usize) {
        self.draws.set(self.draws.get() + draws);
    }

    /// The work that samples have taken so far, in draws of attributes.
    pub(crate) fn work(&self) -> usize {
        self.draws.get() + (self.codes.spent() / STEPS) as usize
    }

    /// True if an operator of the law adds up along axes.
    pub(crate) fn sums(&self) -> bool {
        self.computes(&|e| matches!(&e.kind, ExprKind::Reduce(r) if r.monoid == Monoid::Sum))
    }

    /// True if an operator of the law applies a function to elements.
    pub(crate) fn applies(&self) -> bool {
        self.computes(
            &|e| matches!(&e.kind, ExprKind::Call(_, args) if args.iter().any(Expr::reads)),
        )
    }

    /// True if an operator of the law has such a part; what a body has is not looked for.
    fn computes(&self, part: &dyn Fn(&Expr) -> bool) -> bool {
        let has = |call: &CallId| match &self.library.call(*call).kind {
            CallKind::Op(meanings) => meanings.iter().any(|m| m.value.any(&mut |e| part(e))),
            CallKind::Def(_) => true,
            CallKind::Extern(_) => false,
        };
        self.law.terms.iter().any(|(_, t)| matches!(&t.kind, TermKind::Apply(c, _) if has(c)))
    }

    /// The dimensions of a variable; one segment of its own if none are declared.
    pub(crate) fn dims(&self, var: usize) -> Vec<Dim> {
        let v = &self.law.vars[var];
        v.ty.dims.clone().unwrap_or_else(|| vec![Dim::Seg(Name::from(format!("{}.shape", v.name)))])
    }

    fn names(&mut self) {
        for (i, v) in self.law.vars.iter().enumerate() {
            if let DTypePattern::Var(n) = &v.ty.dtype
                && !self.dtypes.contains(n)
            {
                self.dtypes.push(n.clone());
            }
            for d in self.dims(i) {
                let (list, name) = match d {
                    Dim::Axis(n) => (&mut self.axes, n),
                    Dim::Seg(n) => (&mut self.segs, n),
                    Dim::Value(_) | Dim::Splice(_) => continue,
                };
                match list.iter_mut().find(|e| e.name == name) {
                    Some(e) => e.private &= v.each,
                    None => list.push(AxisOrSegment { name, private: v.each, pinned: None }),
                }
            }
        }
    }

    fn domains(&mut self) {
        let number = |e: &Expr| eval(e, &Env::default()).ok().and_then(|a| a.as_f64());
        for v in &self.law.vars {
            let mut rule = ElementRule::default();
            if let Some(d) = &v.domain {
                let bound = number(&d.bound);
                match d.op {
                    BinaryOp::Ge => rule.low = bound,
                    BinaryOp::Le => rule.high = bound,
                    BinaryOp::Gt => (rule.low, rule.open) = (bound, true),
                    BinaryOp::Lt => (rule.high, rule.open) = (bound, true),
                    _ => {}
                }
            }
            self.domains.push(rule);
            self.elements.push(ElementRule::default());
        }
        for t in &self.law.tests {
            let LawTest::Check { name, low, high } = t else { continue };
            let (Some(low), Some(high)) = (number(low), number(high)) else { continue };
            if let Some(i) = self.law.vars.iter().position(|v| v.name == *name) {
                (self.elements[i].low, self.elements[i].high) = (Some(low), Some(high));
                self.elements[i].finite = true;
            }
            if let Some(a) = self.axes.iter_mut().find(|a| a.name == *name) {
                a.pinned = Some((low as i64, high as i64));
            }
        }
    }

    fn conjunct(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Binary(BinaryOp::And, a, b) => {
                self.conjunct(a);
                self.conjunct(b);
            }
            ExprKind::Test(p, args) => {
                if *p != expr::Predicate::Const {
                    for a in p.split(args).0 {
                        if let Some(i) = self.variable(a) {
                            let predicate = Predicate::of(*p, args);
                            self.conjuncts.push(Conjunct::Element(i, predicate));
                        }
                    }
                }
            }
            _ => {
                let plain = self.without_predicates(e);
                if !matches!(plain.kind, ExprKind::Bool(true)) {
                    self.conjuncts.push(Conjunct::Static(plain));
                }
            }
        }
    }

    fn variable(&self, e: &Expr) -> Option<usize> {
        let n = e.as_name()?;
        self.law.vars.iter().position(|v| v.name == *n)
    }

    /// The condition with every predicate on tensors taken for true and its elements held to it.
    fn without_predicates(&mut self, e: &Expr) -> Expr {
        let of = |kind| Expr { kind, span: e.span };
        match &e.kind {
            ExprKind::Test(p, args) => {
                for a in args {
                    if let Some(i) = self.variable(a) {
                        self.composed.push((i, Predicate::of(*p, args)));
                    }
                }
                of(ExprKind::Bool(true))
            }
            ExprKind::Unary(UnaryOp::Not, a) if matches!(a.kind, ExprKind::Test(..)) => {
                of(ExprKind::Bool(true))
            }
            ExprKind::Unary(op, a) => {
                of(ExprKind::Unary(*op, Box::new(self.without_predicates(a))))
            }
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
                let (a, b) = (self.without_predicates(a), self.without_predicates(b));
                let decided = *op == BinaryOp::Or
                    && [&a, &b].iter().any(|e| matches!(e.kind, ExprKind::Bool(true)));
                if decided {
                    return of(ExprKind::Bool(true));
                }
                of(ExprKind::Binary(*op, Box::new(a), Box::new(b)))
            }
            _ => e.clone(),
        }
    }

    /// Notes of which variables a clause asks that they be constants.
    fn constants(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Binary(BinaryOp::And, a, b) => {
                self.constants(a);
                self.constants(b);
            }
            ExprKind::Test(expr::Predicate::Const, args) => {
                for a in args {
                    if let Some(i) = self.variable(a) {
                        self.given[i] = true;
                    }
                }
            }
            _ => {}
        }
    }

    fn collect_words(&mut self) {
        let mut words: Vec<String> = Vec::new();
        let mut note = |e: &Expr| {
            e.walk(&mut |e| {
                if let ExprKind::Str(s) = &e.kind
                    && !words.contains(s)
                {
                    words.push(s.clone());
                }
            });
        };
        self.law.conditions.iter().for_each(&mut note);
        for (_, t) in self.law.terms.iter() {
            if let TermKind::Apply(call, _) = &t.kind {
                let c = self.library.call(*call);
                c.conditions
                    .iter()
                    .chain(c.attrs.iter().filter_map(|a| a.default.as_ref()))
                    .for_each(&mut note);
            }
        }
        self.words = words;
    }

    fn collect_numbers(&mut self) {
        let mut numbers: Vec<f64> = Vec::new();
        let mut note = |e: &Expr| {
            e.walk(&mut |e| {
                let Some(v) = eval(e, &Env::default()).ok().and_then(|a| a.as_f64()) else {
                    return;
                };
                let new = v.is_finite() && v.abs() != 1.0 && v != 0.0 && !numbers.contains(&v);
                if new && numbers.len() < MAX_NUMBERS {
                    numbers.push(v);
                }
            });
        };
        for (_, t) in self.law.terms.iter() {
            match &t.kind {
                TermKind::Scalar(e) => note(e),
                TermKind::Apply(call, attrs) | TermKind::EachFold(call, attrs) => {
                    let declared = &self.library.call(*call).attrs;
                    let real = declared.iter().map(|a| a.ty.kind == AttrKind::Float);
                    real.zip(attrs)
                        .filter(|(real, _)| *real)
                        .filter_map(|(_, e)| e.as_ref())
                        .for_each(&mut note);
                }
                TermKind::Var(_) | TermKind::Output(_) | TermKind::EachPart(_) => {}
            }
        }
        self.numbers = numbers;
    }

    fn collect_sizes(&mut self) {
        let mut counts: Vec<i64> = Vec::new();
        let mut note = |e: &Expr| {
            e.walk(&mut |e| {
                let size = match &e.kind {
                    ExprKind::Int(v) => *v,
                    ExprKind::DType(d) => match first_inexact_integer(*d) {
                        Some(size) => size,
                        None => return,
                    },
                    _ => return,
                };
                if (2..=LARGEST_ATTR).contains(&size) && !counts.contains(&size) {
                    counts.push(size);
                }
            });
        };
        self.law.conditions.iter().for_each(&mut note);
        for v in &self.law.vars {
            if let DTypePattern::Fixed(d) = &v.ty.dtype {
                note(&Expr::new(ExprKind::DType(*d)));
            }
        }
        for (_, t) in self.law.terms.iter() {
            match &t.kind {
                TermKind::Scalar(e) | TermKind::EachPart(e) => note(e),
                TermKind::Apply(_, attrs) | TermKind::EachFold(_, attrs) => {
                    attrs.iter().flatten().for_each(&mut note);
                }
                TermKind::Var(_) | TermKind::Output(_) => {}
            }
        }
        self.sizes = counts.iter().copied().filter(|size| *size <= LARGEST_SIZE).collect();
        self.counts = counts;
    }

    /// The numbers that the law names, and those that its attributes are.
    pub(crate) fn numbers_of(&self, attrs: &[(Name, Attr)]) -> Vec<f64> {
        let mut numbers = self.numbers.clone();
        for v in attrs.iter().filter_map(|(_, a)| a.as_f64()) {
            let new = v.is_finite() && v.abs() != 1.0 && v != 0.0 && !numbers.contains(&v);
            if new && numbers.len() < 2 * MAX_NUMBERS {
                numbers.push(v);
            }
        }
        numbers
    }

    /// The element rules of all variables of a sample where the given conjunct is broken.
    pub(crate) fn element_rules(
        &self,
        broken: Option<usize>,
        draft: &SampleDraft,
    ) -> Vec<ElementRule> {
        let env = draft.env(self, 0).unwrap_or_default();
        let mut rules = self.elements.clone();
        for (var, predicate) in &self.composed {
            apply_predicate(predicate, &env, &mut rules[*var]);
        }
        if !matches!(draft.stray, RangePolicy::Any(_)) {
            for (rule, domain) in rules.iter_mut().zip(&self.domains) {
                rule.low = rule.low.or(domain.low);
                rule.high = rule.high.or(domain.high);
                rule.open |= domain.open;
            }
        }
        for (i, c) in self.conjuncts.iter().enumerate() {
            if let Conjunct::Element(var, predicate) = c
                && broken != Some(i)
            {
                apply_predicate(predicate, &env, &mut rules[*var]);
            }
        }
        rules
    }

    /// The condition as text.
    pub(crate) fn conjunct_text(&self, i: usize) -> String {
        match &self.conjuncts[i] {
            Conjunct::Static(e) => e.to_string(),
            Conjunct::Element(var, p) => {
                let bounds = p.bounds.as_ref();
                let bounds = bounds.map(|(l, h)| format!(", {l}, {h}")).unwrap_or_default();
                format!("{}({}{bounds})", p.asks, self.law.vars[*var].name)
            }
        }
    }
}

fn apply_predicate(predicate: &Predicate, env: &Env, rule: &mut ElementRule) {
    match predicate.asks {
        expr::Predicate::Within => {
            let (low, high) = predicate.bounds(env).unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
            rule.low = Some(rule.low.map_or(low, |l| l.max(low)));
            rule.high = Some(rule.high.map_or(high, |h| h.min(high)));
            rule.missing = true;
        }
        expr::Predicate::Uniform => rule.uniform = true,
        expr::Predicate::Nonzero => rule.nonzero = true,
        expr::Predicate::Finite => rule.finite = true,
        expr::Predicate::Nonnegative => {
            rule.low = Some(rule.low.unwrap_or(0.0).max(0.0));
            rule.unsigned = true;
            rule.missing = true;
        }
        expr::Predicate::Positive => {
            rule.low = Some(rule.low.unwrap_or(0.0).max(0.0));
            rule.nonzero = true;
            rule.number = true;
        }
        expr::Predicate::Const => {}
    }
}

/// From where on a type lacks integers.
pub(crate) fn first_inexact_integer(dtype: DType) -> Option<i64> {
    match (dtype, dtype.int_range()) {
        (DType::Bool, _) => None,
        (_, Some((_, high))) => Some(i64::try_from(high + 2).unwrap_or(i64::MAX)),
        (DType::BF16, _) => Some(257),
        (DType::F16, _) => Some(LARGEST_ATTR),
        _ => None,
    }
}

/// True if a condition asks for an element type.
fn asks_dtype(e: &Expr) -> bool {
    e.any(&mut |e| matches!(e.kind, ExprKind::Type(TypePart::DType, _)))
}

fn dependent(law: &Law) -> Vec<bool> {
    let mut out: Vec<bool> = Vec::with_capacity(law.terms.len());
    for (_, t) in law.terms.iter() {
        let by_args = t.args.iter().any(|a: &TermId| out[a.0 as usize]);
        out.push(match &t.kind {
            TermKind::Var(i) => law.vars[*i].each,
            TermKind::EachFold(..) => false,
            TermKind::EachPart(_) => true,
            TermKind::Scalar(_) | TermKind::Apply(..) | TermKind::Output(_) => by_args,
        });
    }
    out
}

/// The single name that an expression is: `n` or `|n|`.
pub(crate) fn single_name(e: &Expr) -> Option<&str> {
    match &e.kind {
        ExprKind::Name(n) | ExprKind::Size(n) => Some(n),
        ExprKind::List(items) => match items.as_slice() {
            [Elem::Splice(e)] => single_name(e),
            _ => None,
        },
        _ => None,
    }
}
