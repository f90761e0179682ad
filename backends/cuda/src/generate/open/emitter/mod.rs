//! Emits the C++ statements that compute an element of a value where extents are arguments of the function.
//!
//! As [`Emitter`](crate::generate::emit::Emitter) does for known extents, an element is computed once per index and scope, and a dry run
//! tells which reductions code would read. Nothing that is emitted depends on the extents of a run.

mod memory;

use super::form::{Form, Variable};
use super::program::{OpenProgram, product};
use crate::generate::emit::{ElementWriter, NodeScope, StatementWriter, parts_name};
use crate::generate::kernel::computes_in_double;
use crate::generate::scopes::Scopes;
use crate::generate::spelling::{self as spell, ScalarKind};
use mlc_backends::reference::code::compile::{Body, OpenVariable};
use mlc_backends::reference::code::{Affine, Int, Read, Real, Reduce, Slot};
use mlc_backends::reference::scalar::IntOp;
use mlc_dsl::ir::{DType, Extent, Value};
use std::collections::{BTreeSet, HashMap};

/// An element of a value: its index.
pub type ElementAt = (Value, Vec<Form>);

/// What a scope knows under a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Known {
    /// An element of a value at an index.
    Element(Value, Vec<Form>),
    /// A load of a value at an offset.
    Load(Value, Form),
}

/// The threads that share the loops of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowThreads {
    /// How many.
    pub threads: u32,
    /// Whether they are one warp of a block with a row per warp.
    pub by_warp: bool,
}

impl RowThreads {
    /// The thread's index among those that share a row.
    pub fn thread(self) -> &'static str {
        if self.by_warp { "threadIdx.x % 32" } else { "threadIdx.x" }
    }
}

/// A number that a function takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenNumber {
    /// An open extent, which is evaluated at a launch.
    Extent(Extent),
    /// One that is chosen for a run: what it is, and the number.
    Chosen(&'static str, i64),
}

/// Writes the statements of one function.
#[derive(Clone)]
pub struct OpenEmitter<'k> {
    pub kernel: &'k OpenProgram,
    /// The type of index variables.
    pub index: &'static str,
    /// The names of values that are read from memory.
    pub stored: HashMap<Value, String>,
    /// Those that were loaded.
    pub read: BTreeSet<Value>,
    /// Those that are not aligned to 16 bytes.
    pub unaligned: BTreeSet<Value>,
    /// True once an index may leave its axis.
    pub faults: bool,
    /// The number of the kernel's first node in fault records.
    pub first_node: usize,
    /// Registers of a thread, if not the default.
    pub registers: Option<u32>,
    /// What the function takes as numbers.
    pub numbers: Vec<TakenNumber>,
    /// The index variables: how many values each takes.
    counts: Vec<Extent>,
    lines: Vec<String>,
    depth: usize,
    scopes: Scopes<Known>,
    locals: usize,
    /// The values whose codes are being written, the innermost one last, and what the variables of each stand for.
    bound: Vec<(Value, HashMap<Slot, Form>)>,
    /// The elements in memory that variables were loaded from, and their types.
    raw: HashMap<String, (DType, String)>,
    /// Positions that are within their extents where the present statements run.
    within: Vec<(String, String)>,
    /// The threads that share loops, unless they stand at different indices.
    pub row: Option<RowThreads>,
    /// Types of the shared arrays that combine partial results of warps.
    parts: BTreeSet<&'static str>,
    /// In a dry run: the reductions that are read, which are not followed.
    found: Option<Vec<ElementAt>>,
}

/// True for a name or a number: it needs no variable of its own.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "_.+-".contains(c))
}

impl<'k> OpenEmitter<'k> {
    /// An emitter of an empty function.
    pub fn new(kernel: &'k OpenProgram, index: &'static str) -> OpenEmitter<'k> {
        OpenEmitter {
            kernel,
            index,
            stored: HashMap::new(),
            read: BTreeSet::new(),
            unaligned: BTreeSet::new(),
            faults: false,
            first_node: 0,
            registers: None,
            numbers: vec![],
            counts: vec![],
            lines: vec![],
            depth: 1,
            scopes: Scopes::new(),
            locals: 0,
            bound: vec![],
            raw: HashMap::new(),
            within: vec![],
            row: None,
            parts: BTreeSet::new(),
            found: None,
        }
    }

    /// The statements of the function.
    pub fn text(&self) -> String {
        let numbers = self.numbers.iter().enumerate();
        let numbers = numbers.filter(|_| self.index == "int");
        let heads = numbers.map(|(i, _)| format!("  const int n{i} = (int)m{i};\n"));
        let shared = self.parts.iter().map(|k| format!("  SHARED({k}, {}, 32);\n", parts_name(k)));
        heads.chain(shared).chain(self.lines.iter().map(|l| format!("{l}\n"))).collect()
    }

    /// A new index variable, and its name.
    pub fn variable(&mut self, count: &Extent) -> (Variable, String) {
        self.counts.push(count.clone());
        let v = self.counts.len() - 1;
        (v, format!("i{v}"))
    }

    /// The number of an extent, in the type of index variables: as the function takes it if it is open.
    pub fn number(&mut self, n: &Extent) -> String {
        match n.as_const() {
            Some(n) => spell::int(n),
            None => self.name_of(TakenNumber::Extent(n.clone())),
        }
    }

    /// A number that is chosen for a run, by what it is.
    pub fn chosen(&mut self, what: &'static str, n: i64) -> String {
        self.name_of(TakenNumber::Chosen(what, n))
    }

    /// The name of a number that the function takes, in the type of index variables.
    fn name_of(&mut self, n: TakenNumber) -> String {
        format!("{}{}", if self.index == "int" { "n" } else { "m" }, self.taken(n))
    }

    /// The place of a number among those of the function.
    fn taken(&mut self, n: TakenNumber) -> usize {
        self.numbers.iter().position(|known| *known == n).unwrap_or_else(|| {
            self.numbers.push(n);
            self.numbers.len() - 1
        })
    }

    /// A form as C++ spells it, in the type of index variables.
    pub fn form(&mut self, form: &Form) -> String {
        let mut parts: Vec<String> = vec![];
        for (v, factor) in &form.terms {
            parts.push(match factor.is(1) {
                true => format!("i{v}"),
                false => format!("i{v} * {}", self.number(factor)),
            });
        }
        if !form.constant.is(0) || parts.is_empty() {
            parts.push(self.number(&form.constant));
        }
        match parts.as_slice() {
            [one] if is_plain(one) => one.clone(),
            all => format!("({})", all.join(" + ")),
        }
    }

    /// Declares variables from a linear position, the last one fastest.
    pub fn coordinates(&mut self, at: &str, axes: &[(Variable, Extent)]) {
        let kind = self.index;
        for (k, (v, n)) in axes.iter().enumerate() {
            let rest: Vec<Extent> = axes[k + 1..].iter().map(|a| a.1.clone()).collect();
            let stride = product(&rest);
            let mut text = at.to_string();
            if !stride.is(1) {
                text = format!("{text} / {}", self.number(&stride));
            }
            if k > 0 {
                text = format!("{text} % {}", self.number(n));
            }
            if n.is(1) {
                text = "0".into();
            }
            self.line(format!("{kind} i{v} = {text};"));
        }
    }

    /// Opens a loop over all values of variables that the threads of a row share; `name` begins the names of its own.
    pub fn open_shared(&mut self, name: &str, axes: &[(Variable, Extent)], row: RowThreads) {
        let all: Vec<Extent> = axes.iter().map(|a| a.1.clone()).collect();
        let (kind, length) = (self.index, self.number(&product(&all)));
        let (thread, threads) = (row.thread(), row.threads);
        let at = format!("{name}at");
        self.open(&format!("for ({kind} {at} = {thread}; {at} < {length}; {at} += {threads})"));
        self.coordinates(&at, axes);
    }

    /// Binds an element to a name in this scope.
    pub fn bind(&mut self, v: Value, index: &[Form], name: &str) {
        self.scopes.remember(Known::Element(v, index.to_vec()), name);
    }

    /// Whether a form is seen to be within an axis.
    pub fn is_within(&self, form: &Form, n: &Extent) -> bool {
        form.is_within(n, &|v| self.counts[v].clone())
    }

    /// Dry run: the reductions that what `compute` emits would read.
    pub fn analyse(&self, compute: impl FnOnce(&mut OpenEmitter<'k>)) -> Vec<ElementAt> {
        let mut other = OpenEmitter { found: Some(vec![]), ..self.clone() };
        compute(&mut other);
        other.found.unwrap_or_default()
    }

    /// Dry run of the code of a value at an index, even if the value is in memory or is a reduction.
    pub fn analyse_body(&self, v: Value, index: &[Form]) -> Vec<ElementAt> {
        self.analyse(|e| drop(e.computed(v, index)))
    }

    /// Emits an element; its name, a literal or a variable.
    pub fn element(&mut self, v: Value, index: &[Form]) -> String {
        let dtype = self.kernel.dtype(v);
        if let Some(t) = self.kernel.constant(v) {
            return match dtype.is_float() {
                true => spell::float(t.get_f64(0), dtype == DType::F64),
                false => spell::int(t.get_i64(0)),
            };
        }
        let key = Known::Element(v, index.to_vec());
        if let Some(name) = self.scopes.name_of(&key) {
            return name;
        }
        if self.stored.contains_key(&v) {
            let offset = self.offset(v, index);
            return self.load(v, &offset);
        }
        if let Some(found) = self.found.as_mut().filter(|_| self.kernel.reduces(v)) {
            found.push((v, index.to_vec()));
            return "0".into();
        }
        let name = self.computed(v, index);
        self.scopes.remember(key, &name);
        name
    }

    /// Emits a part of the code of a value at an index, where these variables of its reductions stand for something.
    pub fn part_of_code<T>(
        &mut self,
        v: Value,
        index: &[Form],
        reduced: &[(Slot, Form)],
        part: impl FnOnce(&mut Self, NodeScope) -> T,
    ) -> T {
        let mut own = self.variables_at(v, index);
        own.extend(reduced.iter().cloned());
        self.bound.push((v, own));
        let double = computes_in_double(&self.kernel.program, v);
        let out = part(self, NodeScope { node: v, double });
        self.bound.pop();
        out
    }

    /// What the axes and the numbers of the code of a value stand for at an index.
    fn variables_at(&self, v: Value, index: &[Form]) -> HashMap<Slot, Form> {
        let Some(code) = self.kernel.code(v) else { return HashMap::new() };
        let mut own: HashMap<Slot, Form> =
            code.axes.iter().copied().zip(index.iter().cloned()).collect();
        for (slot, variable) in code.variables.iter().enumerate() {
            if let OpenVariable::Number(n) = variable {
                own.insert(slot, Form::number(n.clone()));
            }
        }
        own
    }

    /// Emits an element from the code of its value, even if it is in memory.
    pub fn computed(&mut self, v: Value, index: &[Form]) -> String {
        let kernel = self.kernel;
        let Some(code) = kernel.code(v) else { return "0".into() };
        let kind = ScalarKind::of(kernel.dtype(v));
        let text = self.part_of_code(v, index, &[], |e, scope| match &code.body {
            Body::Real(r) => {
                let r = scope.real(e, r);
                // What is stored in fewer bits is computed in more, but not rounded in between.
                let is_rounded = scope.double && kind == ScalarKind::Real(false);
                if is_rounded { format!("(float)({r})") } else { r }
            }
            Body::Int(dtype, i) => {
                let i = scope.int(e, i);
                spell::wrapped(*dtype, &i)
            }
        });
        if is_plain(&text) {
            return text;
        }
        let name = self.local();
        self.line(format!("{} {name} = {text};", kind.name()));
        name
    }

    /// A variable of the code that is being written.
    fn of_slot(&self, slot: Slot) -> Option<&Form> {
        self.bound.last()?.1.get(&slot)
    }

    /// An index as a linear form, if it is one.
    pub fn linear(&self, i: &Int) -> Option<Form> {
        match i {
            Int::Const(c) => Some(Form::number(Extent::from(*c))),
            Int::Slot(s) => self.of_slot(*s).cloned(),
            Int::Neg(a) => self.linear(a)?.times(&Extent::from(-1)),
            Int::Binary(op, a, b) => {
                let (a, b) = (self.linear(a)?, self.linear(b)?);
                match op {
                    IntOp::Add => a.plus(&b, &Extent::from(1)),
                    IntOp::Sub => a.plus(&b, &Extent::from(-1)),
                    IntOp::Mul => match (a.as_number(), b.as_number()) {
                        (_, Some(n)) => a.times(n),
                        (Some(n), _) => b.times(n),
                        (None, None) => None,
                    },
                    IntOp::FloorDiv | IntOp::FloorMod => {
                        let by = b.as_number()?;
                        let (quotient, rest) = a.divided(by, &|v| self.counts[v].clone())?;
                        Some(if *op == IntOp::FloorDiv { quotient } else { rest })
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The variables of a reduction of the code that is being written.
    fn reduced(&mut self, over: &[(Slot, i64)]) -> Vec<(Variable, Extent)> {
        over.iter().map(|&(slot, _)| self.reduced_variable(slot)).collect()
    }

    fn reduced_variable(&mut self, slot: Slot) -> (Variable, Extent) {
        let n = self.extent_of(slot);
        let (v, _) = self.variable(&n);
        let own = self.bound.last_mut().expect("a code is being written");
        own.1.insert(slot, Form::variable(v));
        (v, n)
    }

    /// How many values an index variable of the code that is being written takes.
    fn extent_of(&self, slot: Slot) -> Extent {
        let code = self.bound.last().and_then(|(v, _)| self.kernel.code(*v));
        match code.map(|c| &c.variables[slot]) {
            Some(OpenVariable::Index(n)) => n.clone(),
            _ => unreachable!("a loop is over an index variable"),
        }
    }

    /// A loop over elements, shared by the threads of a row where they all stand at one index.
    fn reduce<E>(
        &mut self,
        r: &Reduce<E>,
        kind: ScalarKind,
        body: &dyn Fn(&mut Self, &E) -> String,
    ) -> String {
        let (op, first) = spell::monoid(r.monoid, kind);
        let outer = self.counts.len();
        let axes = self.reduced(&r.over);
        let shared = self.row.filter(|_| self.found.is_none());
        if shared.is_some() {
            // Computed before the loop: what takes loops itself and is the same for all of its turns.
            let is_outer = |f: &Form| f.terms.iter().all(|t| t.0 < outer);
            for (v, index) in self.analyse(|e| drop(body(e, &r.body))) {
                if index.iter().all(is_outer) {
                    self.element(v, &index);
                }
            }
        }
        let name = self.local();
        self.line(format!("{} {name} = {first};", kind.name()));
        match shared {
            Some(row) => self.open_shared(&format!("{name}_"), &axes, row),
            None => axes.iter().for_each(|(v, n)| self.open_variable(*v, n)),
        }
        let row = self.row.take();
        let v = body(self, &r.body);
        self.line(format!("{name} = {op}()({name}, ({}){v});", kind.name()));
        self.row = row;
        match shared {
            Some(_) => self.close(),
            None => axes.iter().for_each(|_| self.close()),
        }
        if let Some(row) = shared {
            self.combine(row, kind, &name, (&op, &first));
        }
        name
    }

    fn combine(
        &mut self,
        row: RowThreads,
        kind: ScalarKind,
        name: &str,
        (op, first): (&str, &str),
    ) {
        if row.by_warp {
            return self.line(format!("{name} = combine_warp({op}(), {name});"));
        }
        let parts = kind.name();
        self.parts.insert(parts);
        let array = parts_name(parts);
        self.line(format!("{name} = combine_block({op}(), {name}, ({parts}){first}, {array});"));
    }

    fn open_variable(&mut self, v: Variable, n: &Extent) {
        let (kind, n) = (self.index, self.number(n));
        self.open(&format!("for ({kind} i{v} = 0; i{v} < {n}; ++i{v})"));
    }
}

impl StatementWriter for OpenEmitter<'_> {
    fn line(&mut self, text: impl AsRef<str>) {
        self.lines.push(format!("{}{}", "  ".repeat(self.depth), text.as_ref()));
    }

    fn open(&mut self, head: &str) {
        self.line(format!("{head} {{"));
        self.depth += 1;
        self.scopes.open();
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.scopes.close();
        self.line("}");
    }
}

impl ElementWriter for OpenEmitter<'_> {
    fn local(&mut self) -> String {
        self.locals += 1;
        format!("v{}", self.locals)
    }

    fn open_loop(&mut self, slot: Slot, _: i64) {
        let (v, n) = self.reduced_variable(slot);
        self.open_variable(v, &n);
    }

    fn variable_text(&mut self, slot: Slot) -> String {
        let form = self.of_slot(slot).cloned().expect("a variable of the code is bound");
        match form.as_number() {
            // A number may be more than an index is.
            Some(n) if n.as_const().is_none() => {
                format!("m{}", self.taken(TakenNumber::Extent(n.clone())))
            }
            _ => self.form(&form),
        }
    }

    fn affine_text(&mut self, _: &Affine) -> String {
        unreachable!("open code is not accelerated")
    }

    fn read_real(&mut self, scope: NodeScope, _: &Real, read: &Read<Real>) -> String {
        let of = self.source(scope, read.input);
        let wide = ScalarKind::of(self.kernel.dtype(of)) == ScalarKind::Real(true);
        let (otherwise, kind) = (read.otherwise.as_ref(), spell::real(scope.double));
        let v = self.read_element(scope, read, kind, &|e| otherwise.map(|o| scope.real(e, o)));
        if wide == scope.double { v } else { format!("({kind}){v}") }
    }

    fn read_int(&mut self, scope: NodeScope, read: &Read<Int>) -> String {
        let otherwise = read.otherwise.as_ref();
        self.read_element(scope, read, "long long", &|e| otherwise.map(|o| scope.int(e, o)))
    }

    fn selected_real(&mut self, _: NodeScope, _: &Real) -> Option<String> {
        None
    }

    fn reduce_real(&mut self, scope: NodeScope, r: &Reduce<Real>) -> String {
        self.reduce(r, ScalarKind::Real(scope.double), &|e, body| scope.real(e, body))
    }

    fn reduce_int(&mut self, scope: NodeScope, r: &Reduce<Int>) -> String {
        self.reduce(r, ScalarKind::Int(r.dtype), &|e, body| scope.int(e, body))
    }
}
