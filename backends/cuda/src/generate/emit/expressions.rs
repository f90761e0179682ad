//! Emits expressions and statements for the body of one node.

use super::{Emitter, coordinates, parts_name, reads_slots, touch};
use crate::generate::product::strided_read::or_number;
use crate::generate::spelling::{self as spell, ScalarKind};
use mlc_backends::reference::accelerated::affine::visitor::AffineVisitor;
use mlc_backends::reference::code::{
    Affine, Int, Quantifier, Read, Real, Reduce, Sign, Slot, Truth,
};
use mlc_dsl::ir::Value;
use std::collections::BTreeSet;

/// The node whose code is written.
#[derive(Clone, Copy)]
pub struct NodeScope {
    pub node: Value,
    pub double: bool,
}

/// Writes the statements of a function.
pub trait StatementWriter: Sized {
    /// Adds a line.
    fn line(&mut self, text: impl AsRef<str>);

    /// Opens a block: elements computed in it are not known after it.
    fn open(&mut self, head: &str);

    /// Closes the last block.
    fn close(&mut self);
}

/// Writes statements, and what in an expression depends on how it names variables and finds elements.
pub trait ElementWriter: StatementWriter {
    /// A new local variable.
    fn local(&mut self) -> String;

    /// Opens a loop over the values of an index variable.
    fn open_loop(&mut self, slot: Slot, extent: i64);

    /// A variable of the code.
    fn variable_text(&mut self, slot: Slot) -> String;

    /// A linear form of variables.
    fn affine_text(&mut self, a: &Affine) -> String;

    /// An element of an input, `r`, as a float.
    fn read_real(&mut self, scope: NodeScope, r: &Real, read: &Read<Real>) -> String;

    /// An element of an input as an integer.
    fn read_int(&mut self, scope: NodeScope, read: &Read<Int>) -> String;

    /// What a condition chooses, if it is read from memory without a branch.
    fn selected_real(&mut self, scope: NodeScope, r: &Real) -> Option<String>;

    /// A reduction of floats.
    fn reduce_real(&mut self, scope: NodeScope, r: &Reduce<Real>) -> String;

    /// A reduction of integers.
    fn reduce_int(&mut self, scope: NodeScope, r: &Reduce<Int>) -> String;

    /// Assigns what `what` emits to a variable.
    fn branch(&mut self, name: &str, what: impl FnOnce(&mut Self) -> String) {
        let value = what(self);
        self.line(format!("{name} = {value};"));
    }

    /// `cond ? then : otherwise`, where either side may need statements.
    fn choose(
        &mut self,
        kind: &str,
        cond: &str,
        then: impl Fn(&mut Self) -> String,
        otherwise: impl Fn(&mut Self) -> String,
    ) -> String {
        let name = self.local();
        self.line(format!("{kind} {name};"));
        self.open(&format!("if ({cond})"));
        self.branch(&name, then);
        self.close();
        self.open("else");
        self.branch(&name, otherwise);
        self.close();
        name
    }
}

/// An index that may leave its axis, and the axis' extent, as C++ spells them.
#[derive(Clone)]
pub struct BoundsCheck {
    pub index: String,
    pub axis: usize,
    pub extent: String,
}

/// What `inner` reads where every index is within its axis and every quotient exists, else `otherwise`; if there is none, the fault of
/// `node` is recorded.
pub fn checked<W: ElementWriter>(
    e: &mut W,
    kind: &str,
    node: usize,
    checks: &[BoundsCheck],
    whole: &[String],
    inner: impl Fn(&mut W) -> String,
    otherwise: &dyn Fn(&mut W) -> Option<String>,
) -> String {
    let test = |c: &BoundsCheck| format!("0 <= {0} && {0} < {1}", c.index, c.extent);
    let inside: Vec<String> = whole.iter().cloned().chain(checks.iter().map(test)).collect();
    e.choose(kind, &inside.join(" && "), inner, |e| match otherwise(e) {
        Some(v) => v,
        None => {
            if !whole.is_empty() {
                let whole = whole.join(" && ");
                e.line(format!("if (!({whole})) out_of_range(fault, {node}, -1, 0, 0);"));
            }
            for c in checks {
                let BoundsCheck { index: i, axis, extent: n } = c;
                e.line(format!(
                    "if (!(0 <= {i} && {i} < {n})) out_of_range(fault, {node}, {axis}, {i}, {n});"
                ));
            }
            "0".into()
        }
    })
}

impl StatementWriter for Emitter<'_> {
    fn line(&mut self, text: impl AsRef<str>) {
        Emitter::line(self, text);
    }

    fn open(&mut self, head: &str) {
        Emitter::open(self, head);
    }

    fn close(&mut self) {
        Emitter::close(self);
    }
}

impl ElementWriter for Emitter<'_> {
    fn local(&mut self) -> String {
        Emitter::local(self)
    }

    fn open_loop(&mut self, slot: Slot, n: i64) {
        let (i, kind) = (Emitter::name(slot), self.index_type());
        self.open(&format!("for ({kind} {i} = 0; {i} < {n}; ++{i})"));
    }

    fn variable_text(&mut self, slot: Slot) -> String {
        self.touched.insert(slot);
        Emitter::name(slot)
    }

    fn affine_text(&mut self, a: &Affine) -> String {
        touch(&mut self.touched, a);
        spell::affine(a, &|s| Emitter::name(s))
    }

    fn read_real(&mut self, scope: NodeScope, r: &Real, read: &Read<Real>) -> String {
        let of = scope.source(self, read.input);
        let wide = self.kind(of) == ScalarKind::Real(true);
        let otherwise = read.otherwise.as_ref();
        let kind = spell::real(scope.double);
        let guarded = otherwise.and_then(|_| scope.guarded(self, r));
        let v = guarded.unwrap_or_else(|| {
            scope.read(self, read, kind, &|e| otherwise.map(|o| scope.real(e, o)))
        });
        if wide == scope.double { v } else { format!("({kind}){v}") }
    }

    fn read_int(&mut self, scope: NodeScope, read: &Read<Int>) -> String {
        let otherwise = read.otherwise.as_ref();
        scope.read(self, read, "long long", &|e| otherwise.map(|o| scope.int(e, o)))
    }

    fn selected_real(&mut self, scope: NodeScope, r: &Real) -> Option<String> {
        self.selected(scope.node, r)
    }

    fn reduce_real(&mut self, scope: NodeScope, r: &Reduce<Real>) -> String {
        scope.reduce(self, r, ScalarKind::Real(scope.double), &|e, body| scope.real(e, body))
    }

    fn reduce_int(&mut self, scope: NodeScope, r: &Reduce<Int>) -> String {
        scope.reduce(self, r, ScalarKind::Int(r.dtype), &|e, body| scope.int(e, body))
    }
}

impl NodeScope {
    pub fn real(self, e: &mut impl ElementWriter, r: &Real) -> String {
        match r {
            Real::Const(v) => spell::float(*v, self.double),
            Real::Unary(f, a) => {
                let a = self.real(e, a);
                spell::unary(f.function, &a).unwrap_or(a)
            }
            Real::Neg(a) => format!("(-{})", self.real(e, a)),
            Real::Binary(op, a, b) => {
                let (a, b) = (self.real(e, a), self.real(e, b));
                spell::binary(*op, &a, &b)
            }
            Real::Read(read) => e.read_real(self, r, read),
            Real::If(c, a, b) => {
                if let Some(selected) = e.selected_real(self, r) {
                    return selected;
                }
                let c = self.truth(e, c);
                let kind = spell::real(self.double);
                e.choose(kind, &c, |e| self.real(e, a), |e| self.real(e, b))
            }
            Real::Reduce(r) => e.reduce_real(self, r),
            Real::FromInt(sign, a) => {
                let a = self.int(e, a);
                format!("({}){}", spell::real(self.double), spell::signed(*sign, &format!("({a})")))
            }
            Real::Round(dtype, a) => spell::rounded(*dtype, &self.real(e, a), self.double),
        }
    }

    pub fn int(self, e: &mut impl ElementWriter, i: &Int) -> String {
        match i {
            Int::Const(v) => spell::int(*v),
            Int::Slot(s) => e.variable_text(*s),
            Int::Affine(a) => e.affine_text(a),
            Int::Neg(a) => format!("sub_int(0, {})", self.int(e, a)),
            Int::Abs(a) => format!("abs_int({})", self.int(e, a)),
            Int::Signum(sign, a) => {
                let a = self.int(e, a);
                match sign {
                    Sign::Signed => format!("sign_int({a})"),
                    Sign::Unsigned => format!("(long long)(({a}) != 0)"),
                }
            }
            Int::Binary(op, a, b) => {
                let (a, b) = (self.int(e, a), self.int(e, b));
                spell::binary_int(*op, &a, &b)
            }
            Int::Wrap(dtype, a) => spell::wrapped(*dtype, &self.int(e, a)),
            // Outside of an index a remainder does not occur.
            Int::Exact(a, b) => {
                let (a, b) = (self.int(e, a), self.int(e, b));
                format!("div_int({a}, {b})")
            }
            Int::At(list, at) => {
                let at = self.int(e, at);
                let n = list.len();
                let mut text = "0".to_string();
                for (k, v) in list.iter().enumerate().rev() {
                    let v = self.int(e, v);
                    text = format!("(at == {k} ? {v} : {text})");
                }
                let name = e.local();
                e.line(format!("long long {name};"));
                e.open("");
                e.line(format!("long long at = {at};"));
                e.line(format!("if (at < 0) at += {n};"));
                e.line(format!("{name} = {text};"));
                e.close();
                name
            }
            Int::Read(read) => e.read_int(self, read),
            Int::If(c, a, b) => {
                let c = self.truth(e, c);
                e.choose("long long", &c, |e| self.int(e, a), |e| self.int(e, b))
            }
            Int::Reduce(r) => {
                let v = e.reduce_int(self, r);
                r.dtype.map_or(v.clone(), |d| spell::wrapped(d, &v))
            }
            Int::FromReal(dtype, a) => spell::truncated(*dtype, &self.real(e, a)),
            Int::FromTruth(a) => format!("(long long){}", self.truth(e, a)),
        }
    }

    pub fn truth(self, e: &mut impl ElementWriter, t: &Truth) -> String {
        match t {
            Truth::Const(v) => v.to_string(),
            Truth::Real(cmp, a, b) => {
                let (a, b) = (self.real(e, a), self.real(e, b));
                spell::compare(*cmp, &a, &b)
            }
            Truth::Int(cmp, sign, a, b) => {
                let (a, b) = (self.int(e, a), self.int(e, b));
                spell::compare(*cmp, &spell::signed(*sign, &a), &spell::signed(*sign, &b))
            }
            Truth::And(a, b) => {
                let a = self.truth(e, a);
                e.choose("bool", &a, |e| self.truth(e, b), |_| "false".into())
            }
            Truth::Or(a, b) => {
                let a = self.truth(e, a);
                e.choose("bool", &a, |_| "true".into(), |e| self.truth(e, b))
            }
            Truth::Not(a) => format!("(!{})", self.truth(e, a)),
            Truth::NonZero(a) => format!("({} != 0)", self.int(e, a)),
            Truth::If(c, a, b) => {
                let c = self.truth(e, c);
                e.choose("bool", &c, |e| self.truth(e, a), |e| self.truth(e, b))
            }
            Truth::Quantified(q, over, body) => {
                let (first, op) = match q {
                    Quantifier::Any => ("false", "||"),
                    Quantifier::All => ("true", "&&"),
                };
                let name = e.local();
                e.line(format!("bool {name} = {first};"));
                over.iter().for_each(|&(slot, n)| e.open_loop(slot, n));
                let v = self.truth(e, body);
                e.line(format!("{name} = {name} {op} {v};"));
                over.iter().for_each(|_| e.close());
                name
            }
        }
    }

    /// The value that the node reads as its input of this number.
    fn source(self, e: &Emitter<'_>, input: usize) -> Value {
        let args = &e.kernel.program.node(self.node.node).args;
        // Behind the arguments are the results, which a recurrence reads at other steps.
        let result = || Value { output: (input - args.len()) as u32, ..self.node };
        args.get(input).copied().unwrap_or_else(result)
    }

    /// An element in memory, or a number where positions leave what is there, without a branch.
    fn guarded(self, e: &mut Emitter<'_>, r: &Real) -> Option<String> {
        if e.found.is_some() {
            return None;
        }
        let mut found = or_number(e, self.node, r)?;
        let text = |i: &Affine| spell::affine(i, &|s| Emitter::name(s));
        found.inside.retain(|(i, n)| !e.within.contains(&(text(i), spell::int(*n))));
        if found.inside.is_empty() {
            return None;
        }
        e.guarded(&found)
    }

    /// An element of an input, or something else where the index leaves it.
    fn read<E>(
        self,
        e: &mut Emitter<'_>,
        read: &Read<E>,
        kind: &str,
        otherwise: &dyn Fn(&mut Emitter<'_>) -> Option<String>,
    ) -> String {
        let of = self.source(e, read.input);
        if let Some(found) = e.found.as_mut().filter(|_| of.node == self.node.node) {
            found.own.push((of, read.index.clone()));
        }
        let mut checks: Vec<BoundsCheck> = vec![];
        let mut whole: Vec<String> = vec![];
        match &read.fast {
            Some(fast) => {
                fast.checked.iter().for_each(|(i, ..)| touch(&mut e.touched, i));
                for (i, axis, n) in &fast.checked {
                    let index = spell::affine(i, &|s| Emitter::name(s));
                    checks.push(BoundsCheck { index, axis: *axis, extent: spell::int(*n) });
                }
            }
            None => {
                for (axis, (i, &n)) in read.index.iter().zip(&read.shape).enumerate() {
                    self.remainders(e, i, &mut whole);
                    let i = self.int(e, i);
                    checks.push(BoundsCheck { index: i, axis, extent: spell::int(n) });
                }
            }
        }
        // What is read only where this lies inside is not checked again.
        checks.retain(|c| !e.within.contains(&(c.index.clone(), c.extent.clone())));
        let index = read.index.clone();
        let offset = read.fast.as_ref().map(|f| spell::affine(&f.offset, &|s| Emitter::name(s)));
        let element = |e: &mut Emitter<'_>| match &offset {
            Some(offset) if e.stored.contains_key(&of) && e.kernel.constant(of).is_none() => {
                if let Some(fast) = &read.fast {
                    touch(&mut e.touched, &fast.offset);
                }
                e.loaded(of, &index, offset, read.fast.as_ref().map(|f| &f.offset))
            }
            _ => {
                let index: Vec<Int> =
                    index.iter().zip(&read.shape).map(|(i, n)| self.named(e, i, *n)).collect();
                e.element(of, &index)
            }
        };
        if checks.is_empty() && whole.is_empty() {
            return element(e);
        }
        if e.found.is_none() && read.otherwise.is_none() {
            e.faults = true;
        }
        let known = e.within.len();
        let inner = |e: &mut Emitter<'_>| {
            e.within.extend(checks.iter().map(|c| (c.index.clone(), c.extent.clone())));
            let name = element(e);
            e.within.truncate(known);
            name
        };
        let node = e.first_node + self.node.node.0 as usize;
        checked(e, kind, node, &checks, &whole, inner, otherwise)
    }

    /// An index that means the same outside of this node's code: one that elements decide becomes a variable.
    fn named(self, e: &mut Emitter<'_>, i: &Int, extent: i64) -> Int {
        if let Int::Affine(_) = i {
            return i.clone();
        }
        let text = self.int(e, i);
        let slot = e.variable(extent);
        let kind = e.index_type();
        e.line(format!("{kind} {} = ({kind}){text};", Emitter::name(slot)));
        Emitter::index(slot)
    }

    /// The conditions under which the quotients of an index exist.
    pub fn remainders(self, e: &mut impl ElementWriter, i: &Int, out: &mut Vec<String>) {
        match i {
            Int::Exact(a, b) => {
                self.remainders(e, a, out);
                let (a, b) = (self.int(e, a), self.int(e, b));
                out.push(format!("{b} != 0 && rem_int({a}, {b}) == 0"));
            }
            Int::At(list, at) => {
                let (at, n) = (self.int(e, at), list.len());
                out.push(format!("-{n} <= {at} && {at} < {n}"));
            }
            Int::Neg(a) | Int::Abs(a) | Int::Signum(_, a) | Int::Wrap(_, a) => {
                self.remainders(e, a, out);
            }
            Int::Binary(_, a, b) => {
                self.remainders(e, a, out);
                self.remainders(e, b, out);
            }
            _ => {}
        }
    }

    /// A loop over elements, shared by the threads of a block where they all stand at one index.
    fn reduce<E>(
        self,
        e: &mut Emitter<'_>,
        r: &Reduce<E>,
        kind: ScalarKind,
        body: &dyn Fn(&mut Emitter<'_>, &E) -> String,
    ) -> String {
        let (op, first) = spell::monoid(r.monoid, kind);
        if e.threads.is_some() && e.varying.is_empty() && e.found.is_none() {
            return self.reduce_shared(e, r, kind, None, body);
        }
        let name = e.local();
        e.line(format!("{} {name} = {first};", kind.name()));
        r.over.iter().for_each(|&(slot, n)| e.open_loop(slot, n));
        let v = body(e, &r.body);
        e.line(format!("{name} = {op}()({name}, ({}){v});", kind.name()));
        r.over.iter().for_each(|_| e.close());
        name
    }

    /// A loop over all elements, or those of a range, that the threads of a row share; all of them get the result.
    pub(super) fn reduce_shared<E>(
        self,
        e: &mut Emitter<'_>,
        r: &Reduce<E>,
        kind: ScalarKind,
        range: Option<(&str, &str)>,
        body: &dyn Fn(&mut Emitter<'_>, &E) -> String,
    ) -> String {
        let (op, first) = spell::monoid(r.monoid, kind);
        let slots: Vec<Slot> = r.over.iter().map(|o| o.0).collect();
        self.hoist(e, &slots, &|e| drop(body(e, &r.body)));
        let name = e.local();
        e.line(format!("{} {name} = {first};", kind.name()));
        let add = |e: &mut Emitter<'_>| {
            e.varying.extend(&slots);
            let v = body(e, &r.body);
            e.varying.retain(|s| !slots.contains(s));
            e.line(format!("{name} = {op}()({name}, ({}){v});", kind.name()));
        };
        match range {
            None => e.along(&format!("{name}_"), &r.over, add),
            Some((begin, end)) => {
                let threads = e.threads.as_ref().map_or(1, |t| t.threads);
                let (at, index) = (format!("{name}_at"), e.index_type());
                let from = format!("{index} {at} = {begin} + threadIdx.x");
                e.open(&format!("for ({from}; {at} < {end}; {at} += {threads})"));
                coordinates(e, &at, &r.over);
                add(e);
                e.close();
            }
        }
        if e.threads.as_ref().is_some_and(|t| t.by_warp) {
            e.line(format!("{name} = combine_warp({op}(), {name});"));
            return name;
        }
        let parts = kind.name();
        e.parts.insert(parts);
        let array = parts_name(parts);
        e.line(format!(
            "{name} = combine_block({op}(), {name}, ({}){first}, {array});",
            kind.name()
        ));
        name
    }

    /// Computes before a loop what it reads that takes loops itself and is the same for all of its turns.
    fn hoist(self, e: &mut Emitter<'_>, slots: &[Slot], body: &dyn Fn(&mut Emitter<'_>)) {
        let slots: BTreeSet<Slot> = slots.iter().copied().collect();
        let outer = e.extents.len();
        for (v, index) in e.analyse_with(|e| body(e)).reductions {
            let own = |i: &Int| {
                let mut new = false;
                i.affines(&mut |a| new |= a.terms.iter().any(|t| t.0 >= outer));
                new || reads_slots(i, &slots)
            };
            if !index.iter().any(own) {
                e.element(v, &index);
            }
        }
    }
}
