//! Statements of C++ that compute an element of a value, whatever operators stand between it and memory.
//!
//! An element is computed once for each index that a scope reads it at. Loops over elements are sequential, or shared by the
//! threads of a block where all of them stand at the same index ([`Emitter::cooperate`]).

use super::kernel::KernelProgram;
use super::spelling::{self as spell, Kind};
use crate::reference::affine::placed;
use crate::reference::affine_visitor::AffineVisitor;
use crate::reference::code::{Affine, Int, Quantifier, Read, Real, Reduce, Slot, Truth};
use crate::reference::compile::Body;
use mlc_dsl::ir::{DType, Value};
use std::collections::{BTreeSet, HashMap};

/// An element that is known in a scope: a value at an index.
type Element = (Value, String);

/// What an emission found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Values that take loops, and the indices at which they are read.
    pub reductions: Vec<(Value, Vec<Int>)>,
    /// The index variables that decide what is read.
    pub touched: BTreeSet<Slot>,
}

/// Writes the statements of one function.
pub struct Emitter<'k> {
    kernel: &'k KernelProgram,
    /// The names of values that are read from memory.
    pub stored: HashMap<Value, String>,
    /// Those that were read.
    pub read: BTreeSet<Value>,
    /// True once an index may leave its axis.
    pub faults: bool,
    /// The number of the kernel's first node in a fault's record.
    pub first_node: usize,
    /// The extents of the index variables.
    pub extents: Vec<i64>,
    lines: Vec<String>,
    depth: usize,
    scopes: Vec<HashMap<Element, String>>,
    variables: usize,
    /// The threads that share loops, and the variables that differ between them.
    threads: Option<u32>,
    varying: BTreeSet<Slot>,
    /// Widths of the arrays that loops combine their parts in.
    pub parts: BTreeSet<&'static str>,
    /// Records what takes loops instead of following it.
    found: Option<Found>,
    touched: BTreeSet<Slot>,
}

/// Notes the variables of an affine form.
fn touch(touched: &mut BTreeSet<Slot>, a: &Affine) {
    touched.extend(a.terms.iter().map(|t| t.0));
}

/// True for a name or a number: it needs no variable of its own.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "_.+-".contains(c))
}

fn reads_slots(i: &Int, slots: &BTreeSet<Slot>) -> bool {
    slots.iter().any(|s| i.reads(*s))
}

impl<'k> Emitter<'k> {
    /// Nothing is written yet.
    pub fn new(kernel: &'k KernelProgram) -> Emitter<'k> {
        Emitter {
            kernel,
            stored: HashMap::new(),
            read: BTreeSet::new(),
            faults: false,
            first_node: 0,
            extents: vec![],
            lines: vec![],
            depth: 1,
            scopes: vec![HashMap::new()],
            variables: 0,
            threads: None,
            varying: BTreeSet::new(),
            parts: BTreeSet::new(),
            found: None,
            touched: BTreeSet::new(),
        }
    }

    /// A new index variable.
    pub fn variable(&mut self, extent: i64) -> Slot {
        self.extents.push(extent);
        self.extents.len() - 1
    }

    /// The name of an index variable.
    pub fn name(slot: Slot) -> String {
        format!("i{slot}")
    }

    /// A variable as an index.
    pub fn index(slot: Slot) -> Int {
        Int::Affine(Affine { constant: 0, terms: vec![(slot, 1)] })
    }

    /// Adds a line.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.lines.push(format!("{}{}", "  ".repeat(self.depth), text.as_ref()));
    }

    /// Opens a block: what is computed in it is not known after it.
    pub fn open(&mut self, head: &str) {
        self.line(format!("{head} {{"));
        self.depth += 1;
        self.scopes.push(HashMap::new());
    }

    /// Closes the last block.
    pub fn close(&mut self) {
        self.depth -= 1;
        self.scopes.pop();
        self.line("}");
    }

    /// The statements so far.
    pub fn text(&self) -> String {
        self.lines.iter().map(|l| format!("{l}\n")).collect()
    }

    /// From here on all threads of a block stand at the same index: they share loops.
    pub fn cooperate(&mut self, threads: u32) {
        self.threads = Some(threads);
    }

    /// From here on the threads differ in these variables.
    pub fn diverge(&mut self, slots: &[Slot]) {
        self.varying.extend(slots);
    }

    /// From here on they all stand at the same index again.
    pub fn converge(&mut self) {
        self.varying.clear();
    }

    /// A place between lines.
    pub fn mark(&self) -> usize {
        self.lines.len()
    }

    /// Adds a line at a place.
    pub fn insert(&mut self, at: usize, text: &str) {
        self.lines.insert(at, format!("  {text}"));
    }

    /// Elements of the longest loop behind an element.
    pub fn longest_loop(&mut self, v: Value, index: &[Int]) -> i64 {
        let found = self.look(&[(v, index.to_vec())]).reductions;
        let mut longest = 1;
        for (h, at) in found {
            longest = longest.max(self.kernel.loops(h));
            for (inner, _) in self.look_inside(h, &at).reductions {
                longest = longest.max(self.kernel.loops(inner));
            }
        }
        longest
    }

    /// Makes the element known in this scope.
    pub fn know(&mut self, v: Value, index: &[Int], name: &str) {
        let last = self.scopes.last_mut().expect("a scope is open");
        last.insert((v, format!("{index:?}")), name.to_string());
    }

    /// What computing these elements would read that takes loops, without writing anything.
    pub fn look(&mut self, elements: &[(Value, Vec<Int>)]) -> Found {
        self.look_by(|e| elements.iter().for_each(|(v, index)| drop(e.element(*v, index))))
    }

    /// What a float of the code of a value reads.
    pub fn look_at(&mut self, v: Value, r: &Real) -> Found {
        self.look_by(|e| drop(e.real_of(v, false, r)))
    }

    /// What the code of a value reads that takes loops, at an index of the value.
    pub fn look_inside(&mut self, v: Value, index: &[Int]) -> Found {
        self.look_by(|e| {
            let Some(code) = e.kernel.code(v) else { return };
            let body = placed(code, index, &mut e.extents);
            let scope = Scope { node: v, double: false };
            match &body {
                Body::Real(r) => drop(scope.real(e, r)),
                Body::Int(_, i) => drop(scope.int(e, i)),
            }
        })
    }

    /// An emitter at the same place that writes nothing.
    pub fn probe(&self) -> Emitter<'k> {
        Emitter {
            stored: self.stored.clone(),
            extents: self.extents.clone(),
            scopes: self.scopes.clone(),
            varying: self.varying.clone(),
            found: Some(Found::default()),
            ..Emitter::new(self.kernel)
        }
    }

    fn look_by(&mut self, compute: impl FnOnce(&mut Self)) -> Found {
        let mut other = self.probe();
        compute(&mut other);
        let mut found = other.found.unwrap_or_default();
        found.touched = other.touched;
        for (_, index) in &found.reductions {
            index.iter().for_each(|i| i.affines(&mut |a| touch(&mut found.touched, a)));
        }
        found
    }

    /// The code of a value at an index.
    pub fn placed(&mut self, v: Value, index: &[Int]) -> Option<Body> {
        Some(placed(self.kernel.code(v)?, index, &mut self.extents))
    }

    /// A float that the code of a value computes.
    pub fn real_of(&mut self, v: Value, double: bool, r: &Real) -> String {
        Scope { node: v, double }.real(self, r)
    }

    /// A new local variable.
    fn local(&mut self) -> String {
        self.variables += 1;
        format!("v{}", self.variables)
    }

    /// True where floats are computed in 64 bits: of `f64`, and where integers become floats and those integers again.
    fn double(&self, v: Value) -> bool {
        let node = self.kernel.program.node(v.node);
        let narrow = |d: DType| matches!(d, DType::F16 | DType::BF16 | DType::F32);
        let floats =
            node.args.iter().map(|a| self.kernel.program.ty(*a).dtype).filter(|d| d.is_float());
        let floats: Vec<DType> = floats.collect();
        let own = self.kernel.program.ty(v).dtype;
        match own.is_float() {
            true => !narrow(own) || floats.contains(&DType::F64),
            false => floats.is_empty() || floats.contains(&DType::F64),
        }
    }

    /// The kind of a value's elements.
    fn kind(&self, v: Value) -> Kind {
        let dtype = self.kernel.program.ty(v).dtype;
        if dtype.is_float() { Kind::Real(dtype == DType::F64) } else { Kind::Int(Some(dtype)) }
    }

    /// The name of an element: a number or a variable.
    pub fn element(&mut self, v: Value, index: &[Int]) -> String {
        let dtype = self.kernel.program.ty(v).dtype;
        if let Some(t) = self.kernel.constant(v) {
            return match dtype.is_float() {
                true => spell::float(t.get_f64(0), dtype == DType::F64),
                false => spell::int(t.get_i64(0)),
            };
        }
        let key = (v, format!("{index:?}"));
        if let Some(known) = self.scopes.iter().rev().find_map(|s| s.get(&key)) {
            return known.clone();
        }
        if self.stored.contains_key(&v) {
            return self.load(v, index);
        }
        if self.found.is_some() && self.kernel.reduces(v) {
            let found = self.found.as_mut().expect("just seen");
            found.reductions.push((v, index.to_vec()));
            return "0".into();
        }
        let Some(code) = self.kernel.code(v) else { return "0".into() };
        let body = placed(code, index, &mut self.extents);
        let kind = self.kind(v);
        let double = self.double(v);
        let text = match &body {
            Body::Real(r) => {
                let r = Scope { node: v, double }.real(self, r);
                // What is stored in fewer bits is computed in more, but not rounded in between.
                if double && kind == Kind::Real(false) { format!("(float)({r})") } else { r }
            }
            Body::Int(dtype, i) => {
                let i = Scope { node: v, double }.int(self, i);
                spell::wrapped(*dtype, &i)
            }
        };
        let name = match is_plain(&text) {
            true => text,
            false => {
                let name = self.local();
                self.line(format!("{} {name} = {text};", kind.name()));
                name
            }
        };
        let last = self.scopes.last_mut().expect("a scope is open");
        last.insert(key, name.clone());
        name
    }

    /// Reads an element from memory.
    fn load(&mut self, v: Value, index: &[Int]) -> String {
        self.read.insert(v);
        let ty = self.kernel.program.ty(v);
        let shape = ty.known_shape().unwrap_or_default();
        let mut offset: Vec<String> = vec![];
        let mut stride = 1i64;
        for (i, &n) in index.iter().zip(&shape).rev() {
            if n != 1 {
                let i = Scope { node: v, double: false }.int(self, i);
                offset.insert(
                    0,
                    if stride == 1 { i } else { format!("{i} * {}", spell::int(stride)) },
                );
            }
            stride *= n as i64;
        }
        let offset = if offset.is_empty() { "0".into() } else { offset.join(" + ") };
        self.loaded(v, &offset)
    }

    fn loaded(&mut self, v: Value, offset: &str) -> String {
        self.read.insert(v);
        let (kind, dtype) = (self.kind(v), self.kernel.program.ty(v).dtype);
        let bare = offset.strip_prefix('(').and_then(|o| o.strip_suffix(')'));
        let bare = bare.filter(|o| !o.contains(['(', ')'])).unwrap_or(offset);
        let element = format!("{}[{bare}]", self.stored[&v]);
        let text = spell::loaded(dtype, &element, kind == Kind::Real(true));
        // One load for equal elements of a scope.
        let key = (v, format!("[{offset}]"));
        if let Some(known) = self.scopes.iter().rev().find_map(|s| s.get(&key)) {
            return known.clone();
        }
        let name = self.local();
        self.line(format!("{} {name} = {text};", kind.name()));
        let last = self.scopes.last_mut().expect("a scope is open");
        last.insert(key, name.clone());
        name
    }

    /// Computes what `what` writes into a variable of its own, in a block of its own.
    fn branch(&mut self, name: &str, what: impl FnOnce(&mut Self) -> String) {
        let value = what(self);
        self.line(format!("{name} = {value};"));
    }

    /// `cond ? then : otherwise`, where either may take statements.
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

/// The node whose code is written.
#[derive(Clone, Copy)]
struct Scope {
    node: Value,
    double: bool,
}

impl Scope {
    fn real(self, e: &mut Emitter<'_>, r: &Real) -> String {
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
                let wide = e.kind(of) == Kind::Real(true);
                let otherwise = read.otherwise.as_ref();
                let kind = spell::real(self.double);
                let v = self.read(e, read, kind, &|e| otherwise.map(|o| self.real(e, o)));
                if wide == self.double { v } else { format!("({kind}){v}") }
            }
            Real::If(c, a, b) => {
                let c = self.truth(e, c);
                let kind = spell::real(self.double);
                e.choose(kind, &c, |e| self.real(e, a), |e| self.real(e, b))
            }
            Real::Reduce(r) => {
                self.reduce(e, r, Kind::Real(self.double), &|e, body| self.real(e, body))
            }
            Real::FromInt(sign, a) => {
                let a = self.int(e, a);
                format!("({}){}", spell::real(self.double), spell::signed(*sign, &format!("({a})")))
            }
            Real::Round(dtype, a) => spell::rounded(*dtype, &self.real(e, a), self.double),
        }
    }

    fn int(self, e: &mut Emitter<'_>, i: &Int) -> String {
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
                    crate::reference::code::Sign::Signed => format!("sign_int({a})"),
                    crate::reference::code::Sign::Unsigned => format!("(long long)(({a}) != 0)"),
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
                let v = self.reduce(e, r, Kind::Int(r.dtype), &|e, body| self.int(e, body));
                r.dtype.map_or(v.clone(), |d| spell::wrapped(d, &v))
            }
            Int::FromReal(dtype, a) => spell::truncated(*dtype, &self.real(e, a)),
            Int::FromTruth(a) => format!("(long long){}", self.truth(e, a)),
        }
    }

    fn truth(self, e: &mut Emitter<'_>, t: &Truth) -> String {
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
                    e.open(&format!("for (int {i} = 0; {i} < {n}; ++{i})"));
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
        e.kernel.program.node(self.node.node).args[input]
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
        let index = read.index.clone();
        let offset = read.fast.as_ref().map(|f| spell::affine(&f.offset, &|s| Emitter::name(s)));
        let element = |e: &mut Emitter<'_>| match &offset {
            Some(offset) if e.stored.contains_key(&of) && e.kernel.constant(of).is_none() => {
                if let Some(fast) = &read.fast {
                    touch(&mut e.touched, &fast.offset);
                }
                e.loaded(of, offset)
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
        e.choose(kind, &inside, element, |e| match otherwise(e) {
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
        e.line(format!("int {} = (int){text};", Emitter::name(slot)));
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
        kind: Kind,
        body: &dyn Fn(&mut Emitter<'_>, &E) -> String,
    ) -> String {
        let (op, first) = spell::monoid(r.monoid, kind);
        let shared = e.threads.filter(|_| e.varying.is_empty() && e.found.is_none());
        let slots: Vec<Slot> = r.over.iter().map(|o| o.0).collect();
        if let Some(threads) = shared {
            self.hoist(e, &slots, &|e| drop(body(e, &r.body)));
            let total: i64 = r.over.iter().map(|o| o.1).product();
            let name = e.local();
            e.line(format!("{} {name} = {first};", kind.name()));
            let at = format!("{name}_at");
            e.open(&format!("for (int {at} = threadIdx.x; {at} < {total}; {at} += {threads})"));
            coordinates(e, &at, &r.over);
            e.varying.extend(&slots);
            let v = body(e, &r.body);
            e.varying.retain(|s| !slots.contains(s));
            e.line(format!("{name} = {op}()({name}, ({}){v});", kind.name()));
            e.close();
            let parts = kind.name();
            e.parts.insert(parts);
            let array = parts_name(parts);
            e.line(format!(
                "{name} = combine_block({op}(), {name}, ({}){first}, {array});",
                kind.name()
            ));
            return name;
        }
        let name = e.local();
        e.line(format!("{} {name} = {first};", kind.name()));
        for &(slot, n) in &r.over {
            let i = Emitter::name(slot);
            e.open(&format!("for (int {i} = 0; {i} < {n}; ++{i})"));
        }
        let v = body(e, &r.body);
        e.line(format!("{name} = {op}()({name}, ({}){v});", kind.name()));
        r.over.iter().for_each(|_| e.close());
        name
    }

    /// Computes before a loop what it reads that takes loops itself and is the same for all of its turns.
    fn hoist(self, e: &mut Emitter<'_>, slots: &[Slot], body: &dyn Fn(&mut Emitter<'_>)) {
        let slots: BTreeSet<Slot> = slots.iter().copied().collect();
        let outer = e.extents.len();
        for (v, index) in e.look_by(|e| body(e)).reductions {
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

/// The array in which the warps of a block put their parts of a combination.
pub fn parts_name(kind: &str) -> &'static str {
    match kind {
        "float" => "float_parts",
        "double" => "double_parts",
        _ => "int_parts",
    }
}

/// Index variables from the position of an element, the last axis fastest.
pub fn coordinates(e: &mut Emitter<'_>, at: &str, axes: &[(Slot, i64)]) {
    let long = axes.iter().map(|a| a.1 as i128).product::<i128>() > i32::MAX as i128;
    let mut stride: i128 = axes.iter().map(|a| a.1 as i128).product();
    for (k, &(slot, n)) in axes.iter().enumerate() {
        stride /= n.max(1) as i128;
        let mut text = at.to_string();
        if stride > 1 {
            text = format!("{text} / {stride}");
        }
        if k > 0 {
            text = format!("{text} % {n}");
        }
        if n == 1 {
            text = "0".into();
        }
        let name = Emitter::name(slot);
        e.line(format!("{} {name} = {text};", if long { "long long" } else { "int" }));
    }
}
