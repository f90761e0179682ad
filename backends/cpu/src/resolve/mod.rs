//! Lowers a plan's kernels to passes for one binding of the symbols, in the plan's order and memory.
//!
//! A kernel that its implementation does not cover at once becomes several passes. Constant subgraphs are folded here. Given the inputs,
//! everything is: so programs run whose shapes depend on data.

use super::graph::{Group, KernelGraph, broken};
use super::half_precision;
use super::pointwise::fused::Copy;
use super::registry::{Implementation, Native};
use super::runtime::buffer::aligned;
use super::runtime::kernel::{Epilogue, Kernel, KernelFactory, KernelSpec, OperandSpec};
use super::runtime::threads::Threads;
use super::runtime::weight_cache::WeightCache;
use mlc_backends::BackendError;
use mlc_backends::symbols::{BoundExtents, SymbolBindings};
use mlc_dsl::ir::{Attr, DType, Extent, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::layout::strided_views::{self, Viewed};
use mlc_dsl::layout::{Layout, PerAxis};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Memory, PlannedBuffer};
use mlc_dsl::typing::infer::{TypeError, infer};
use mlc_dsl::typing::open_conditions::Comparison;
use rustc_hash::FxHashMap;
use std::sync::Arc;

mod fuse_pointwise;
mod fuse_reduction;
mod incremental;
mod kernel_cache;
mod link;
mod passes;
mod renamed;
mod rooms;

use kernel_cache::KernelKeyRef;
pub use kernel_cache::{BufferId, KernelCache, Location, Pass, PreparedKernel, Storage};
pub use link::{PlacedBuffer, ResolvedPlan};
use renamed::Prepared;

/// What resolving needs besides extents.
#[derive(Clone, Copy)]
pub struct ResolveContext<'a> {
    pub graph: &'a KernelGraph,
    /// Locations of its constants.
    pub constants: &'a FxHashMap<Value, Location>,
    pub library: &'a Arc<Library>,
    pub threads: &'a Threads,
    pub weights: &'a WeightCache,
    /// Kernels prepared before.
    pub cache: &'a KernelCache,
    /// Limit in bytes of what constant folding allocates; `None` for the machine's free memory.
    pub memory: Option<u64>,
}

/// The locations of a program's constants.
pub fn constants(program: &Program) -> FxHashMap<Value, Location> {
    let nodes = program.nodes.iter().zip(0..);
    let constants = nodes.filter_map(|(node, i)| match node.kind {
        NodeKind::Const(c) => {
            let tensor = program.consts.get(c).clone();
            let layout = Layout::dense(tensor.shape());
            let place = Location { dtype: tensor.dtype(), layout, storage: Storage::Const(tensor) };
            Some((Value { node: NodeId(i), output: 0 }, place))
        }
        NodeKind::Input(_) | NodeKind::Apply(..) => None,
    });
    constants.collect()
}

/// The locations of values other than constants, and the bound symbols.
pub struct ValueLocations {
    pub symbols: SymbolBindings,
    of: FxHashMap<Value, Location>,
}

/// Resolves kernels one by one.
pub struct Resolver<'a> {
    cx: ResolveContext<'a>,
    plan: &'a Memory,
    symbols: BoundExtents,
    places: FxHashMap<Value, Location>,
    /// Locations that are the same as for other extents.
    others: Option<&'a FxHashMap<Value, Location>>,
    /// The kernel being prepared.
    draft: Draft<'a>,
    /// Bytes allocated by constant folding.
    taken: u64,
    /// How many kernels were prepared.
    fresh: usize,
    /// Those that others of their class are.
    repeats: FxHashMap<usize, Prepared>,
}

/// A kernel being prepared.
#[derive(Default)]
struct Draft<'a> {
    kernel: usize,
    /// The buffers that the plan gives it.
    planned: &'a [PlannedBuffer],
    passes: Vec<Pass>,
    workspace: Vec<usize>,
    learned: Vec<(Extent, i64)>,
    constants: u64,
    /// What is no operand decided what it is.
    is_unique: bool,
}

/// An operator with its arguments and the attributes' values.
struct Application<'a> {
    op: &'a str,
    args: &'a [Value],
    attrs: &'a [Attr],
}

/// A result of a pass: the value, if it has a name, its type and shape.
type Output = (Option<Value>, DType, PerAxis<usize>);

impl<'a> Resolver<'a> {
    fn new(cx: ResolveContext<'a>, symbols: SymbolBindings, plan: &'a Memory) -> Resolver<'a> {
        let (places, draft) = (FxHashMap::default(), Draft::default());
        let (repeats, symbols) = (FxHashMap::default(), symbols.into());
        Resolver { cx, plan, symbols, places, others: None, draft, taken: 0, fresh: 0, repeats }
    }

    /// Resolves the whole program in the plan's memory; also returns the symbols bound meanwhile. With `inputs`, computes everything
    /// at once.
    pub fn resolve(
        cx: ResolveContext<'a>,
        symbols: SymbolBindings,
        plan: &'a Memory,
        inputs: Option<&[Tensor]>,
    ) -> Result<(ResolvedPlan, ValueLocations), BackendError> {
        let mut r = Resolver::new(cx, symbols, plan);
        r.places.reserve(cx.graph.program.nodes.len());
        r.inputs(inputs)?;
        let mut kernels = Vec::with_capacity(cx.graph.groups.len());
        for (kernel, group) in cx.graph.groups.iter().enumerate() {
            kernels.push(r.prepared(kernel, group, inputs.is_some())?);
        }
        let outputs = cx.graph.program.outputs.iter().map(|(_, v)| r.output(*v));
        let outputs = outputs.collect::<Result<_, _>>()?;
        let resolved = r.link(kernels, outputs);
        Ok((resolved, ValueLocations { symbols: r.symbols.into_symbols(), of: r.places }))
    }

    /// The location of a program output.
    fn output(&mut self, v: Value) -> Result<Location, BackendError> {
        let place = self.aligned(self.place(v)?.clone());
        match place.layout.is_whole() || place.constant().is_none() {
            true => Ok(place),
            false => self.copied(&place, None, v.node),
        }
    }

    /// A kernel, from the cache or prepared now. With the inputs `given`, it is computed at once and not cached.
    fn prepared(
        &mut self,
        kernel: usize,
        group: &Group,
        given: bool,
    ) -> Result<Arc<PreparedKernel>, BackendError> {
        let symbols: Vec<_> = group.symbols.iter().map(|s| self.symbols.symbols().get(s)).collect();
        let planned = self.plan.written(kernel);
        let reads = group.reads.iter().map(|v| self.place(*v)).collect::<Result<Vec<_>, _>>()?;
        let key_ref = KernelKeyRef { symbols: &symbols, reads: &reads, planned };
        if let Some(known) = self.cx.cache.find(kernel, &key_ref) {
            self.places.extend(known.places.iter().cloned());
            known.learned.iter().for_each(|(e, n)| self.symbols.learn(e, *n));
            return Ok(known);
        }
        let key = Arc::new(key_ref.key());
        let renamed = self.renamed(kernel, group, &key_ref).filter(|_| !given);
        let prepared = match renamed {
            Some(own) => {
                let is_like = |other: PreparedKernel| own.is_like(&other);
                debug_assert!(self.prepare(kernel, planned, group).is_ok_and(is_like));
                self.places.extend(own.places.iter().cloned());
                Arc::new(own)
            }
            None => {
                self.fresh += 1;
                let own = Arc::new(self.prepare(kernel, planned, group)?);
                if let Some(repeat) = group.repeat.as_ref().filter(|_| own.renames && !given) {
                    let known = Prepared { key: key.clone(), kernel: own.clone() };
                    self.repeats.insert(repeat.class, known);
                }
                own
            }
        };
        if group.lasts {
            let places = prepared.places.iter();
            places.filter_map(|(_, l)| l.constant()).for_each(|t| self.cx.weights.keep(t));
        }
        if !given || group.lasts {
            self.cx.cache.add(&prepared, key, group.lasts);
        }
        Ok(prepared)
    }

    /// Prepares a kernel, and notes where its results are.
    fn prepare(
        &mut self,
        kernel: usize,
        planned: &'a [PlannedBuffer],
        group: &Group,
    ) -> Result<PreparedKernel, BackendError> {
        self.draft = Draft { kernel, planned, ..Draft::default() };
        self.group(group)?;
        let Draft { passes, workspace, learned, constants, is_unique, .. } =
            std::mem::take(&mut self.draft);
        let mut places = Vec::with_capacity(group.outputs.len());
        for &v in &group.outputs {
            places.push((v, self.place(v)?.clone()));
        }
        let renames = !is_unique && learned.is_empty();
        Ok(PreparedKernel { kernel, passes, workspace, places, learned, constants, renames })
    }

    /// The same location; a constant is aligned for its elements.
    fn aligned(&self, place: Location) -> Location {
        let storage = match &place.storage {
            Storage::Const(t) => Storage::Const(self.cx.weights.aligned(t)),
            other => other.clone(),
        };
        Location { storage, ..place }
    }

    fn inputs(&mut self, given: Option<&[Tensor]>) -> Result<(), BackendError> {
        for (i, node) in self.cx.graph.program.nodes.iter().enumerate() {
            let NodeKind::Input(k) = node.kind else { continue };
            let storage = match given {
                Some(given) => Storage::Const(given[k as usize].clone()),
                None => self.memory_of_input(k as usize),
            };
            let (dtype, shape) = match (&storage, self.symbols.shape(&node.types[0])) {
                (_, Some(known)) => known,
                (Storage::Const(t), None) => (node.types[0].dtype, PerAxis::from_slice(t.shape())),
                (_, None) => return Err(self.fail(NodeId(i as u32), "unknown input shape")),
            };
            let value = Value { node: NodeId(i as u32), output: 0 };
            let layout = self.layout_of_input(&storage, &shape);
            self.places.insert(value, Location { dtype, layout, storage });
        }
        Ok(())
    }

    fn memory_of_input(&self, input: usize) -> Storage {
        match self.room(input) {
            Some(room) => Storage::Buffer(BufferId::of_room(room)),
            None => Storage::Input(input),
        }
    }

    fn layout_of_input(&self, storage: &Storage, shape: &[usize]) -> Layout {
        match storage {
            Storage::Buffer(t) => self.plan.rooms[t.slot].layout(shape),
            _ => Layout::dense(shape),
        }
    }

    /// A folded constant, aligned for its elements.
    fn constant(&mut self, t: Tensor) -> Storage {
        self.draft.constants = self.draft.constants.saturating_add(t.bytes().len() as u64);
        Storage::Const(aligned(t))
    }

    fn place(&self, v: Value) -> Result<&Location, BackendError> {
        let other = || self.others?.get(&v);
        let place = self.places.get(&v).or_else(other).or_else(|| self.cx.constants.get(&v));
        place.ok_or_else(|| self.fail(v.node, "is read before it is computed"))
    }

    fn name(&self, node: NodeId) -> String {
        self.cx.graph.name(self.cx.library, node)
    }

    fn fail(&self, node: NodeId, reason: impl Into<String>) -> BackendError {
        BackendError::Operator { op: self.name(node), reason: reason.into() }
    }

    fn group(&mut self, group: &Group) -> Result<(), BackendError> {
        if group.symbols.iter().any(|s| self.symbols.symbols().get(s).is_none()) {
            // The reference interpreter finds shapes that depend on data.
            return group.nodes.iter().try_for_each(|n| self.fall_back(*n));
        }
        for &view in &group.views {
            if !self.view(view, group)? {
                self.fall_back(view)?;
            }
        }
        if let Some(room) = self.plan.appended(self.draft.kernel) {
            return self.append(room, group);
        }
        match (&group.implementation, group.anchor) {
            (Implementation::Reference, Some(anchor)) => self.fall_back(anchor)?,
            (Implementation::Native(native), Some(anchor)) => self.native(native, anchor, group)?,
            _ => self.pointwise(&group.epilogue, &group.outputs)?,
        }
        for &copy in &group.copies {
            if !self.view(copy, group)? {
                self.fall_back(copy)?;
            }
        }
        Ok(())
    }

    fn attrs(&self, id: NodeId) -> Vec<Attr> {
        match &self.cx.graph.program.node(id).kind {
            NodeKind::Apply(_, attrs) => attrs.iter().map(|a| self.symbols.attr(a)).collect(),
            NodeKind::Input(_) | NodeKind::Const(_) => vec![],
        }
    }

    /// The results of a node, if their shapes are known.
    fn results(&self, id: NodeId) -> Option<Vec<Output>> {
        let types = self.cx.graph.program.node(id).types.iter().zip(0..);
        let result = |(ty, output)| {
            let (dtype, shape) = self.symbols.shape(ty)?;
            Some((Some(Value { node: id, output }), dtype, shape))
        };
        types.map(result).collect()
    }

    /// Whether another kernel or this one's epilogue reads a value.
    fn is_read(&self, v: Value, group: &Group) -> bool {
        let program = &self.cx.graph.program;
        let follows = |n: &NodeId| program.node(*n).args.contains(&v);
        group.outputs.contains(&v) || group.epilogue.iter().any(follows)
    }

    /// Resolves a view of its argument, or a copy; false if the node is neither.
    fn view(&mut self, id: NodeId, group: &Group) -> Result<bool, BackendError> {
        let node = self.cx.graph.program.node(id);
        let value = Value { node: id, output: 0 };
        let (NodeKind::Apply(call, _), [arg]) = (&node.kind, node.args.as_slice()) else {
            return Ok(false);
        };
        let Some(view) = strided_views::find(&self.cx.library.call(*call).name) else {
            return Ok(false);
        };
        let Some((_, shape)) = self.symbols.shape(&node.types[0]) else { return Ok(false) };
        let from = self.place(*arg)?.clone();
        let place = match strided_views::apply(view, &from.layout, &self.attrs(id), &shape) {
            Viewed::Layout(layout) => {
                let seen = Location { layout, ..from };
                let named = group.named.get(&value);
                match named.is_some_and(|v| self.draft.planned.iter().any(|p| p.value == *v)) {
                    true => self.copied(&seen, Some(value), id)?,
                    false => seen,
                }
            }
            Viewed::NeedsCopy => {
                let dense = self.copied(&from, Some(value), id)?;
                Location { layout: Layout::dense(&shape), ..dense }
            }
            Viewed::Declined => return Ok(false),
        };
        self.places.insert(value, place);
        Ok(true)
    }

    /// A dense copy of a view, as the value.
    fn copied(
        &mut self,
        from: &Location,
        value: Option<Value>,
        node: NodeId,
    ) -> Result<Location, BackendError> {
        let shape = from.layout.shape.clone();
        let kernel =
            Copy::new(from.dtype, &from.layout).ok_or_else(|| BackendError::Unsupported {
                backend: "cpu",
                what: format!("a view of {} axes", from.layout.rank()),
            })?;
        let outputs = [(value, from.dtype, shape)];
        let places = self.add_pass(Box::new(kernel), vec![from.clone()], &outputs, None, node)?;
        places.into_iter().next().ok_or_else(|| broken("a copy without a result"))
    }

    /// A hand-written kernel with its prologue and epilogue.
    fn native(
        &mut self,
        native: &Native,
        anchor: NodeId,
        group: &Group,
    ) -> Result<(), BackendError> {
        if self.fuse_map_reduce(anchor, group)? {
            return Ok(());
        }
        let inside = |v: &Value| group.prologue.contains(&v.node);
        let wanted: Vec<Value> = group.arguments.iter().copied().filter(inside).collect();
        self.pointwise(&group.prologue, &wanted)?;
        let Some(outputs) = self.results(anchor) else { return self.fall_back(anchor) };
        let holds = |c: &Comparison| c.holds(|e| self.symbols.eval(e)) == Some(true);
        if group.conditions.more || !group.conditions.comparisons.iter().all(holds) {
            self.check_constraints(anchor)?;
        }
        let op = self.cx.library.node_name(&self.cx.graph.program, anchor);
        let kernel = match native.factory(&op) {
            Some(factory) => {
                let read: Vec<bool> =
                    outputs.iter().map(|o| o.0.is_some_and(|v| self.is_read(v, group))).collect();
                let attrs = self.attrs(anchor);
                let call = Application { op: &op, args: &group.arguments, attrs: &attrs };
                self.specialise(factory, call, &outputs, &read)?
            }
            None => None,
        };
        match kernel {
            // Kernels do not write states that nothing reads.
            Some((kernel, args)) => {
                self.add_with_epilogue(kernel, args, &self.live_outputs(outputs), anchor, group)
            }
            // A rank or an attribute that the code does not know, never an element type, which would be a fault of the plan: the
            // reference interpreter computes what a kernel covers otherwise.
            None => {
                self.fall_back(anchor)?;
                self.pointwise(&group.epilogue, &group.outputs)
            }
        }
    }

    /// Checks the declaration's constraints at the bound extents: kernels rely on them.
    fn check_constraints(&self, id: NodeId) -> Result<(), BackendError> {
        let node = self.cx.graph.program.node(id);
        let NodeKind::Apply(call, _) = node.kind else { return Ok(()) };
        let types =
            node.args.iter().map(|a| self.place(*a).map(|p| Type::known(p.dtype, &p.layout.shape)));
        let types: Vec<Type> = types.collect::<Result<_, _>>()?;
        let attrs: Vec<Option<Attr>> = self.attrs(id).into_iter().map(Some).collect();
        let found = infer(self.cx.library.call(call), &types.iter().collect::<Vec<_>>(), &attrs);
        let reason =
            |e: TypeError| BackendError::Operator { op: self.name(id), reason: e.to_string() };
        found.map(drop).map_err(reason)
    }

    /// Adds an anchor's kernel and the pointwise operators after it, as its epilogue where it takes one.
    fn add_with_epilogue(
        &mut self,
        kernel: Box<dyn Kernel>,
        args: Vec<Location>,
        outputs: &[Output],
        anchor: NodeId,
        group: &Group,
    ) -> Result<(), BackendError> {
        let result = Value { node: anchor, output: 0 };
        let shape = &outputs[0].2;
        let constant = args.iter().all(|a| a.constant().is_some());
        if kernel.takes_epilogue()
            && !group.epilogue.is_empty()
            && !constant
            && let [last] = group.outputs.as_slice()
            && *last != result
            && let Some((fused, extra, dtypes)) =
                self.fuse(&group.epilogue, shape, Some(result), &[*last])?
            && (kernel.epilogue_converts() || outputs[0].1 == DType::F32 && dtypes == [DType::F32])
        {
            let inputs = args.into_iter().chain(extra).collect();
            let outputs = [(Some(*last), dtypes[0], shape.clone())];
            self.define_values(kernel, inputs, &outputs, Some(Epilogue { fused }), anchor)?;
            return Ok(());
        }
        self.define_values(kernel, args, outputs, None, anchor)?;
        self.pointwise(&group.epilogue, &group.outputs)
    }

    /// Adds a pass and records the locations of its results.
    fn define_values(
        &mut self,
        kernel: Box<dyn Kernel>,
        inputs: Vec<Location>,
        outputs: &[Output],
        epilogue: Option<Epilogue>,
        node: NodeId,
    ) -> Result<(), BackendError> {
        let places = self.add_pass(kernel, inputs, outputs, epilogue, node)?;
        let names = outputs.iter().map(|o| o.0).zip(places);
        self.places.extend(names.filter_map(|(v, p)| Some((v?, p))));
        Ok(())
    }

    /// Specialises a kernel to its operands, or to dense copies of them if it takes no strides.
    #[allow(clippy::type_complexity, reason = "a kernel and its arguments")]
    fn specialise(
        &mut self,
        factory: KernelFactory,
        Application { op, args, attrs }: Application<'_>,
        outputs: &[Output],
        read: &[bool],
    ) -> Result<Option<(Box<dyn Kernel>, Vec<Location>)>, BackendError> {
        let outputs: Vec<(DType, PerAxis<usize>)> =
            outputs.iter().map(|(_, d, s)| (*d, s.clone())).collect();
        let outputs = outputs.as_slice();
        let mut places: Vec<Location> =
            args.iter().map(|a| self.place(*a).cloned()).collect::<Result<_, _>>()?;
        self.drop_room_gaps(op, args, &mut places)?;
        if let Some(kernel) =
            factory(&self.kernel_spec(attrs, &self.operands(&places), outputs, read))
        {
            return Ok(Some((kernel, places)));
        }
        if let Some(kernel) = half_precision::make(
            factory,
            &self.kernel_spec(attrs, &self.operands(&places), outputs, read),
        ) {
            return Ok(Some((kernel, places)));
        }
        // A kernel that reads only dense operands may still take copies.
        if places.iter().all(|p| p.layout.is_dense()) {
            return Ok(None);
        }
        let dense: Vec<OperandSpec> = self
            .operands(&places)
            .into_iter()
            .map(|o| OperandSpec { layout: Layout::dense(&o.layout.shape), constant: None, ..o })
            .collect();
        let spec = self.kernel_spec(attrs, &dense, outputs, read);
        if factory(&spec).is_none() && half_precision::make(factory, &spec).is_none() {
            return Ok(None);
        }
        for (p, v) in places.iter_mut().zip(args).filter(|(p, _)| !p.layout.is_dense()) {
            *p = self.copied(p, None, v.node)?;
        }
        let operands = self.operands(&places);
        let spec = self.kernel_spec(attrs, &operands, outputs, read);
        let kernel = factory(&spec).or_else(|| half_precision::make(factory, &spec));
        Ok(kernel.map(|kernel| (kernel, places)))
    }

    fn kernel_spec<'s>(
        &'s self,
        attrs: &'s [Attr],
        args: &'s [OperandSpec],
        outputs: &'s [(DType, PerAxis<usize>)],
        read: &'s [bool],
    ) -> KernelSpec<'s> {
        KernelSpec { attrs, args, outputs, read, weights: self.cx.weights }
    }

    fn operands(&self, places: &[Location]) -> Vec<OperandSpec> {
        let operand = |p: &Location| OperandSpec {
            dtype: p.dtype,
            layout: p.layout.clone(),
            constant: p.constant().cloned(),
        };
        places.iter().map(operand).collect()
    }
}

/// Smaller allocations are not checked against free memory.
const SMALL: u64 = 64 << 20;

/// Checks an allocation against `memory` or the machine's free memory; the limit is the error.
pub fn check_memory(bytes: u64, memory: Option<u64>) -> Result<(), u64> {
    let limit = match memory {
        Some(limit) => limit,
        None if bytes < SMALL => return Ok(()),
        None => mlc_backends::memory::available(),
    };
    if bytes <= limit { Ok(()) } else { Err(limit) }
}

/// What the error of [`Resolver::fall_back`] says when shapes depend on data.
pub const NEEDS_DATA: &str = "shapes that depend on data before the data is there";
