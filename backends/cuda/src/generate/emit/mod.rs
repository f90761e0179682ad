//! Emits the C++ statements that compute an element of a value from what is in memory.
//!
//! An element is computed once per index and scope. Loops over elements are sequential, or shared by the threads of a block where all
//! of them stand at the same index ([`Emitter::cooperate`]). A dry run ([`Emitter::analyse`]) tells what code would read.

mod expressions;
mod lanes;
mod memory;
mod selection;
mod shared;

use super::kernel::{KernelProgram, computes_in_double};
use super::product::Term;
use super::product::tile_config::Tiling;
use super::scopes::Scopes;
use super::spelling::{self as spell, ScalarKind};
pub use expressions::{BoundsCheck, ElementWriter, NodeScope, StatementWriter, checked};
use lanes::VectorLoop;
pub use lanes::{Accesses, VectorSource, vector_width, widest};
pub use memory::SharedWindow;
use mlc_backends::reference::accelerated::affine::visitor::AffineVisitor;
use mlc_backends::reference::accelerated::affine::{combine, placed_apart};
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Affine, Int, Read, Real, Slot, Truth};
use mlc_dsl::ir::{DType, Value};
use shared::RowCache;
pub use shared::Sharing;
use std::collections::{BTreeSet, HashMap};

/// Margin for positions that threads past the last element compute before their bounds check.
const MARGIN: i64 = 1 << 20;

/// An element of a value: its index.
type ElementAt = (Value, Vec<Int>);

/// What a scope knows under a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Known {
    /// An element of a value at an index.
    Element(Value, Vec<Int>),
    /// A load of a value at an offset as C++ spells it.
    Load(Value, String),
    /// A load with bounds checks: its offset, the positions and their extents, and the bits of the number out of bounds.
    Guarded(Value, Affine, Vec<(Affine, i64)>, u64),
}

/// What a dry run found.
#[derive(Clone, Debug, Default)]
pub struct Analysis {
    /// Values that need loops (reductions), and the indices at which they are read.
    pub reductions: Vec<(Value, Vec<Int>)>,
    /// The index variables that the reads depend on.
    pub touched: BTreeSet<Slot>,
    /// What a node reads of its own results.
    pub own: Vec<ElementAt>,
    /// Loads from memory, by their offsets.
    pub offsets: Vec<(Value, Affine)>,
    /// Those of them that are unconditional.
    pub always: Vec<(Value, Affine)>,
    /// Loads from memory, by their indices.
    pub reads: Vec<ElementAt>,
    /// Index variables that are divided by a number.
    pub divided: Vec<(Slot, i64)>,
}

/// Writes the statements of one function.
#[derive(Clone)]
pub struct Emitter<'k> {
    kernel: &'k KernelProgram,
    /// The names of values that are read from memory.
    pub stored: HashMap<Value, String>,
    /// Those that were loaded.
    pub read: BTreeSet<Value>,
    /// True once an index may leave its axis.
    pub faults: bool,
    /// Positions that are within their extents where the present statements run.
    within: Vec<(String, String)>,
    /// The number of the kernel's first node in fault records.
    pub first_node: usize,
    /// The extents of the index variables.
    pub extents: Vec<i64>,
    lines: Vec<String>,
    depth: usize,
    scopes: Scopes<Known>,
    /// How many scopes were open when the dry run began.
    outer_scopes: usize,
    /// The elements in memory that variables were loaded from, and their types.
    raw: HashMap<String, (DType, String)>,
    variables: usize,
    /// The threads that share loops, and the variables that differ between them.
    threads: Option<Sharing>,
    keeping: RowCache,
    varying: BTreeSet<Slot>,
    /// Types of the shared arrays that combine partial results of warps.
    pub parts: BTreeSet<&'static str>,
    /// In a dry run: what it found. Reductions are recorded, not followed.
    found: Option<Analysis>,
    touched: BTreeSet<Slot>,
    /// The open vectorised loop.
    lanes: Option<VectorLoop>,
    /// An expression that replaces loads of a value at an offset.
    pub substitute: Option<((Value, Affine), String)>,
    /// A window in shared memory that replaces loads of a value.
    pub window: Option<SharedWindow>,
    pub accesses: Accesses,
    /// Values that are not aligned to 16 bytes, and whether the result is one.
    pub unaligned: BTreeSet<Value>,
    pub out_is_unaligned: bool,
    /// The tiling of products, if not the one that is estimated to be fastest.
    pub tiling: Option<Tiling>,
    /// Registers of a thread, if not the default.
    pub registers: Option<u32>,
    /// Statements before the function waits for the launches ahead of it (prefetches).
    pub ahead: String,
}

/// Notes the variables of an affine form.
fn touch(touched: &mut BTreeSet<Slot>, a: &Affine) {
    touched.extend(a.terms.iter().map(|t| t.0));
}

/// True for a name or a number: it needs no variable of its own.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "_.+-".contains(c))
}

/// An index as a linear form, if it is one.
pub fn linear(i: &Int) -> Option<Affine> {
    match i {
        Int::Affine(a) => Some(a.clone()),
        Int::Const(c) => Some(Affine { constant: *c, terms: vec![] }),
        Int::Slot(s) => Some(Affine { constant: 0, terms: vec![(*s, 1)] }),
        _ => None,
    }
}

/// The offset of an element of a value of this shape, if it is a linear form.
pub fn offset_of(shape: &[usize], index: &[Int]) -> Option<Affine> {
    let mut stride = 1i64;
    let mut offset = Affine::default();
    for (i, &n) in index.iter().zip(shape).rev() {
        if n != 1 {
            offset = combine(&offset, &linear(i)?, stride)?;
        }
        stride = stride.checked_mul(n as i64)?;
    }
    Some(offset)
}

/// The offset of what is read, if its index is a linear form.
pub fn offset_read<E>(read: &Read<E>) -> Option<Affine> {
    let shape: Vec<usize> = read.shape.iter().map(|&n| n as usize).collect();
    offset_of(&shape, &read.index)
}

fn reads_slots(i: &Int, slots: &BTreeSet<Slot>) -> bool {
    slots.iter().any(|s| i.reads(*s))
}

impl<'k> Emitter<'k> {
    /// An emitter of an empty function.
    pub fn new(kernel: &'k KernelProgram) -> Emitter<'k> {
        Emitter {
            kernel,
            stored: HashMap::new(),
            read: BTreeSet::new(),
            faults: false,
            within: vec![],
            first_node: 0,
            extents: vec![],
            lines: vec![],
            depth: 1,
            scopes: Scopes::new(),
            outer_scopes: 1,
            raw: HashMap::new(),
            variables: 0,
            threads: None,
            keeping: RowCache::default(),
            varying: BTreeSet::new(),
            parts: BTreeSet::new(),
            found: None,
            touched: BTreeSet::new(),
            lanes: None,
            substitute: None,
            window: None,
            accesses: Accesses::default(),
            unaligned: BTreeSet::new(),
            out_is_unaligned: false,
            tiling: None,
            registers: None,
            ahead: String::new(),
        }
    }

    /// The same with these values in memory, under no name.
    pub fn with_stored<'v>(
        kernel: &'k KernelProgram,
        stored: impl Iterator<Item = &'v Value>,
    ) -> Emitter<'k> {
        let stored = stored.map(|v| (*v, String::new())).collect();
        Emitter { stored, ..Emitter::new(kernel) }
    }

    /// The kernel that it is written for.
    pub fn kernel(&self) -> &'k KernelProgram {
        self.kernel
    }

    /// The type of index variables: of 64 bits where a value has, or a loop runs over, more elements than 32 bits count.
    pub fn index_type(&self) -> &'static str {
        let fits = self.kernel.most_elements() <= i64::from(i32::MAX) - MARGIN;
        if fits { "int" } else { "long long" }
    }

    /// The block index, in the type of index variables, so that what is computed from it does not overflow.
    pub fn block(&self) -> &'static str {
        if self.index_type() == "int" { "blockIdx.x" } else { "(long long)blockIdx.x" }
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

    /// Opens a block: elements computed in it are not known after it.
    pub fn open(&mut self, head: &str) {
        self.line(format!("{head} {{"));
        self.depth += 1;
        self.scopes.open();
    }

    /// Closes the last block.
    pub fn close(&mut self) {
        self.depth -= 1;
        self.scopes.close();
        self.line("}");
    }

    /// The statements so far.
    pub fn text(&self) -> String {
        self.lines.iter().map(|l| format!("{l}\n")).collect()
    }

    /// Begins cooperative loops: all threads of a row stand at the same index.
    pub fn cooperate(&mut self, sharing: Sharing) {
        self.threads = Some(sharing);
    }

    /// Ends cooperative loops.
    pub fn alone(&mut self) {
        self.threads = None;
    }

    /// Notes that threads differ in these variables from here on.
    pub fn diverge(&mut self, slots: &[Slot]) {
        self.varying.extend(slots);
    }

    /// Notes that all threads stand at the same index again.
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

    /// The extents of the longest loop behind an element, and the element that it yields.
    pub fn longest_loop(&mut self, v: Value, index: &[Int]) -> Option<(Vec<i64>, ElementAt)> {
        let found = self.analyse(&[(v, index.to_vec())]).reductions;
        let mut all: Vec<ElementAt> = vec![];
        for (h, at) in found {
            let inner = self.analyse_body(h, &at).reductions;
            all.push((h, at));
            all.extend(inner);
        }
        let with = |at: ElementAt| (self.kernel.extents_of_loops(at.0), at);
        let length = |(extents, _): &(Vec<i64>, ElementAt)| {
            extents.iter().copied().fold(1, i64::saturating_mul)
        };
        all.into_iter().map(with).rev().max_by_key(length)
    }

    /// The vector width of a reduction's loop.
    pub fn width_of_loop(&mut self, v: Value, index: &[Int]) -> i64 {
        let double = self.double(v);
        let Some(Body::Real(Real::Reduce(r))) = self.body_at(v, index) else { return 1 };
        let width = vector_width(&r.over, 4);
        let body = |e: &mut Emitter<'k>| drop(e.real_of(v, double, &r.body));
        let accesses = self.count_accesses(|e| e.lanes("at", &r.over, width, body));
        if accesses.vectorized > accesses.scalar { width } else { 1 }
    }

    /// Binds an element to a name in this scope.
    pub fn bind(&mut self, v: Value, index: &[Int], name: &str) {
        self.scopes.remember(Known::Element(v, index.to_vec()), name);
    }

    /// Dry run of these elements: what their code would read.
    pub fn analyse(&mut self, elements: &[(Value, Vec<Int>)]) -> Analysis {
        self.analyse_with(|e| elements.iter().for_each(|(v, index)| drop(e.element(*v, index))))
    }

    /// Dry run of a float expression in the code of a value.
    pub fn analyse_real(&mut self, v: Value, r: &Real) -> Analysis {
        self.analyse_with(|e| drop(e.real_of(v, false, r)))
    }

    /// Dry run of the code of a value at an index, even if the value is in memory or needs loops.
    pub fn analyse_body(&mut self, v: Value, index: &[Int]) -> Analysis {
        self.analyse_with(|e| {
            let Some(body) = e.body_at(v, index) else { return };
            let scope = NodeScope { node: v, double: false };
            match &body {
                Body::Real(r) => drop(scope.real(e, r)),
                Body::Int(_, i) => drop(scope.int(e, i)),
            }
        })
    }

    /// An emitter in the same state that records what is read instead of emitting.
    pub fn dry_run(&self) -> Emitter<'k> {
        Emitter {
            stored: self.stored.clone(),
            unaligned: self.unaligned.clone(),
            extents: self.extents.clone(),
            scopes: self.scopes.clone(),
            outer_scopes: self.scopes.count(),
            varying: self.varying.clone(),
            found: Some(Analysis::default()),
            ..Emitter::new(self.kernel)
        }
    }

    fn analyse_with(&mut self, compute: impl FnOnce(&mut Self)) -> Analysis {
        let mut other = self.dry_run();
        compute(&mut other);
        let mut found = other.found.unwrap_or_default();
        found.touched = other.touched;
        for (_, index) in &found.reductions {
            index.iter().for_each(|i| i.affines(&mut |a| touch(&mut found.touched, a)));
        }
        found
    }

    /// The body of a value with its axes substituted by an index.
    pub fn body_at(&mut self, v: Value, index: &[Int]) -> Option<Body> {
        self.body_with_split_axes(v, index, &[])
    }

    /// The same with variables of its reductions, as the code names them, split in two.
    pub fn body_with_split_axes(
        &mut self,
        v: Value,
        index: &[Int],
        apart: &[(Slot, i64)],
    ) -> Option<Body> {
        let code = self.kernel.code(v)?;
        let (body, divided) = placed_apart(code, index, apart, &mut self.extents);
        if let Some(found) = &mut self.found {
            found.divided.extend(divided);
        }
        Some(body)
    }

    /// Emits a float expression in the code of a value.
    pub fn real_of(&mut self, v: Value, double: bool, r: &Real) -> String {
        NodeScope { node: v, double }.real(self, r)
    }

    /// Emits a factor of a product in the code of a value.
    pub fn term_of(&mut self, v: Value, double: bool, t: &Term) -> String {
        match t {
            Term::Real(r) => self.real_of(v, double, r),
            Term::Int(i) => self.int_of(v, i),
        }
    }

    /// Dry run of a factor of a product in the code of a value.
    pub fn analyse_term(&mut self, v: Value, t: &Term) -> Analysis {
        self.analyse_with(|e| drop(e.term_of(v, false, t)))
    }

    /// Emits a truth value in the code of a value.
    pub fn truth_of(&mut self, v: Value, t: &Truth) -> String {
        NodeScope { node: v, double: false }.truth(self, t)
    }

    /// Emits an integer in the code of a value.
    pub fn int_of(&mut self, v: Value, i: &Int) -> String {
        NodeScope { node: v, double: false }.int(self, i)
    }

    /// Emits the partial result of a reduction over a range of elements that the threads of a block share.
    pub fn part(&mut self, v: Value, index: &[Int], begin: &str, end: &str) -> String {
        let range = Some((begin, end));
        let double = self.double(v);
        let scope = NodeScope { node: v, double };
        match self.body_at(v, index) {
            Some(Body::Real(Real::Reduce(r))) => {
                scope.reduce_shared(self, &r, ScalarKind::Real(double), range, &|e, b| {
                    scope.real(e, b)
                })
            }
            Some(Body::Int(_, Int::Reduce(r))) => {
                scope.reduce_shared(self, &r, ScalarKind::Int(r.dtype), range, &|e, b| {
                    scope.int(e, b)
                })
            }
            _ => unreachable!("a part is one of a reduction"),
        }
    }

    /// A new local variable.
    fn local(&mut self) -> String {
        self.variables += 1;
        format!("v{}", self.variables)
    }

    /// Whether floats are computed in 64 bits, as [`computes_in_double`] says.
    pub fn double(&self, v: Value) -> bool {
        computes_in_double(&self.kernel.program, v)
    }

    /// The kind of a value's elements.
    fn kind(&self, v: Value) -> ScalarKind {
        ScalarKind::of(self.kernel.program.ty(v).dtype)
    }

    /// Emits an element; its name, a literal or a variable.
    pub fn element(&mut self, v: Value, index: &[Int]) -> String {
        let dtype = self.kernel.program.ty(v).dtype;
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
            return self.load(v, index);
        }
        if let Some(found) = self.found.as_mut().filter(|_| self.kernel.reduces(v)) {
            found.reductions.push((v, index.to_vec()));
            return "0".into();
        }
        let name = self.computed(v, index);
        self.scopes.remember(key, &name);
        name
    }

    /// The same, computed even if it is in memory.
    pub fn computed(&mut self, v: Value, index: &[Int]) -> String {
        let Some(body) = self.body_at(v, index) else { return "0".into() };
        let kind = self.kind(v);
        let double = self.double(v);
        let text = match &body {
            Body::Real(r) => {
                let r = NodeScope { node: v, double }.real(self, r);
                // What is stored in fewer bits is computed in more, but not rounded in between.
                if double && kind == ScalarKind::Real(false) { format!("(float)({r})") } else { r }
            }
            Body::Int(dtype, i) => {
                let i = NodeScope { node: v, double }.int(self, i);
                spell::wrapped(*dtype, &i)
            }
        };
        match is_plain(&text) {
            true => text,
            false => {
                let name = self.local();
                self.line(format!("{} {name} = {text};", kind.name()));
                name
            }
        }
    }
}

/// The shared array in which the warps of a block combine partial results.
pub fn parts_name(kind: &str) -> &'static str {
    match kind {
        "float" => "float_parts",
        "double" => "double_parts",
        _ => "int_parts",
    }
}

/// Declares index variables from a linear position, the last axis fastest.
pub fn coordinates(e: &mut Emitter<'_>, at: &str, axes: &[(Slot, i64)]) {
    let kind = e.index_type();
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
        e.line(format!("{kind} {name} = {text};"));
    }
}
