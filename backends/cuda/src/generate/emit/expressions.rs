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
pub(super) struct NodeScope {
    pub(super) node: Value,
    pub(super) double: bool,
}

impl NodeScope {
    pub(super) fn real(self, e: &mut Emitter<'_>, r: &Real) -> String {
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
            Real::Read(read) => {
                let of = self.source(e, read.input);
                let wide = e.kind(of) == ScalarKind::Real(true);
                let otherwise = read.otherwise.as_ref();
                let kind = spell::real(self.double);
                let guarded = otherwise.and_then(|_| self.guarded(e, r));
                let v = guarded.unwrap_or_else(|| {
                    self.read(e, read, kind, &|e| otherwise.map(|o| self.real(e, o)))
                });
                if wide == self.double { v } else { format!("({kind}){v}") }
            }
            Real::If(c, a, b) => {
                if let Some(selected) = e.selected(self.node, r) {
                    return selected;
                }
                let c = self.truth(e, c);
                let kind = spell::real(self.double);
                e.choose(kind, &c, |e| self.real(e, a), |e| self.real(e, b))
            }
            Real::Reduce(r) => {
                self.reduce(e, r, ScalarKind::Real(self.double), &|e, body| self.real(e, body))
            }
            Real::FromInt(sign, a) => {
                let a = self.int(e, a);
                format!("({}){}", spell::real(self.double), spell::signed(*sign, &format!("({a})")))
            }
            Real::Round(dtype, a) => spell::rounded(*dtype, &self.real(e, a), self.double),
        }
    }

    pub(super) fn int(self, e: &mut Emitter<'_>, i: &Int) -> String {
        match i {
            Int::Const(v) => spell::int(*v),
            Int::Slot(s) => {
                e.touched.insert(*s);
                Emitter::name(*s)
            }
            Int::Affine(a) => {
                touch(&mut e.touched, a);
                spell::affine(a, &|s| Emitter::name(s))
            }
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
            Int::Read(read) => {
                let otherwise = read.otherwise.as_ref();
                self.read(e, read, "long long", &|e| otherwise.map(|o| self.int(e, o)))
            }
            Int::If(c, a, b) => {
                let c = self.truth(e, c);
                e.choose("long long", &c, |e| self.int(e, a), |e| self.int(e, b))
            }
            Int::Reduce(r) => {
                let v = self.reduce(e, r, ScalarKind::Int(r.dtype), &|e, body| self.int(e, body));
                r.dtype.map_or(v.clone(), |d| spell::wrapped(d, &v))
            }
            Int::FromReal(dtype, a) => spell::truncated(*dtype, &self.real(e, a)),
            Int::FromTruth(a) => format!("(long long){}", self.truth(e, a)),
        }
    }

    pub(super) fn truth(self, e: &mut Emitter<'_>, t: &Truth) -> String {
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
                for &(slot, n) in over {
                    let i = Emitter::name(slot);
                    let kind = e.index_type();
                    e.open(&format!("for ({kind} {i} = 0; {i} < {n}; ++{i})"));
                }
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
        found.inside.retain(|(i, n)| !e.within.contains(&(text(i), *n)));
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
        let mut checks: Vec<(String, usize, i64)> = vec![];
        let mut whole: Vec<String> = vec![];
        match &read.fast {
            Some(fast) => {
                fast.checked.iter().for_each(|(i, ..)| touch(&mut e.touched, i));
                for (i, axis, n) in &fast.checked {
                    checks.push((spell::affine(i, &|s| Emitter::name(s)), *axis, *n));
                }
            }
            None => {
                for (axis, (i, &n)) in read.index.iter().zip(&read.shape).enumerate() {
                    self.remainders(e, i, &mut whole);
                    let i = self.int(e, i);
                    checks.push((i, axis, n));
                }
            }
        }
        // What is read only where this lies inside is not checked again.
        checks.retain(|(i, _, n)| !e.within.contains(&(i.clone(), *n)));
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
        let tests = checks.iter().map(|(i, _, n)| format!("0 <= {i} && {i} < {}", spell::int(*n)));
        let inside: Vec<String> = whole.iter().cloned().chain(tests).collect();
        let inside = inside.join(" && ");
        if e.found.is_none() && read.otherwise.is_none() {
            e.faults = true;
        }
        let node = e.first_node + self.node.node.0 as usize;
        let known = e.within.len();
        let inner = |e: &mut Emitter<'_>| {
            e.within.extend(checks.iter().map(|(i, _, n)| (i.clone(), *n)));
            let name = element(e);
            e.within.truncate(known);
            name
        };
        e.choose(kind, &inside, inner, |e| match otherwise(e) {
            Some(v) => v,
            None => {
                if !whole.is_empty() {
                    let whole = whole.join(" && ");
                    e.line(format!("if (!({whole})) out_of_range(fault, {node}, -1, 0, 0);"));
                }
                for (i, axis, n) in &checks {
                    let n = spell::int(*n);
                    e.line(format!(
                        "if (!(0 <= {i} && {i} < {n})) out_of_range(fault, {node}, {axis}, {i}, {n});"
                    ));
                }
                "0".into()
            }
        })
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
    fn remainders(self, e: &mut Emitter<'_>, i: &Int, out: &mut Vec<String>) {
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
        for &(slot, n) in &r.over {
            let i = Emitter::name(slot);
            let kind = e.index_type();
            e.open(&format!("for ({kind} {i} = 0; {i} < {n}; ++{i})"));
        }
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
