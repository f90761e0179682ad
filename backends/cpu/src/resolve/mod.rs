//! Lowers the plan's kernels to launches, for one assignment of the symbols.
//!
//! Each kernel becomes one step, in the plan's order and memory. If its implementation does not do all of it at once, a
//! step has several passes. What reads only constants is computed here, once. If the inputs are given as well, everything is: this is
//! how programs run whose shapes depend on data.

use super::graph::{Group, KernelGraph, broken};
use super::half_precision;
use super::layout::{Layout, PerAxis};
use super::pointwise::fused::Copy;
use super::registry::{Implementation, Native};
use super::runtime::buffer::aligned;
use super::runtime::launch::{Epilogue, Launch, LaunchOperand, LaunchSite, Maker};
use super::runtime::threads::Threads;
use super::runtime::weight_cache::PackedConstants;
use mlc_backends::BackendError;
use mlc_backends::symbols::SymbolBindings;
use mlc_dsl::ir::{Attr, DType, Extent, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::layout::strided_views::{self, Viewed};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Memory, PlannedBuffer};
use mlc_dsl::typing::infer::{TypeError, infer};
use rustc_hash::FxHashMap;
use std::sync::Arc;

mod fuse;
mod linked;
mod mapped;
mod other_extents;
mod passes;
mod prepared;
mod rooms;

pub use linked::{Resolved, Temp};
use prepared::Occasion;
pub use prepared::{KnownKernels, Location, Pass, PreparedKernel, Storage, TempId};

/// What a program is resolved with, whatever its extents.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    pub graph: &'a KernelGraph,
    /// Where its constants lie.
    pub constants: &'a FxHashMap<Value, Location>,
    pub library: &'a Arc<Library>,
    pub threads: &'a Threads,
    pub packs: &'a PackedConstants,
    /// What was prepared before.
    pub known: &'a KnownKernels,
    /// Bytes that may be taken for what is computed before a run; `None` for what the machine has free.
    pub memory: Option<u64>,
}

/// Where the constants of a program lie.
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

/// Where the values that are no constants lie, and the symbols that are known.
pub struct Places {
    pub symbols: SymbolBindings,
    of: FxHashMap<Value, Location>,
}

/// Resolves kernels one by one.
pub struct Resolver<'a> {
    cx: Surroundings<'a>,
    plan: &'a Memory,
    symbols: SymbolBindings,
    places: FxHashMap<Value, Location>,
    /// Where the values lie that lie as they did for other extents.
    others: Option<&'a FxHashMap<Value, Location>>,
    /// What is prepared for the kernel that is resolved.
    own: Draft<'a>,
    /// Bytes taken for what is computed here.
    taken: u64,
    /// Kernels that were not prepared before.
    fresh: usize,
}

/// A kernel that is being prepared.
#[derive(Default)]
struct Draft<'a> {
    kernel: usize,
    /// The buffers that the plan gives it.
    planned: &'a [PlannedBuffer],
    passes: Vec<Pass>,
    workspace: Vec<usize>,
    learned: Vec<(Extent, i64)>,
    constants: u64,
}

/// A result of a pass: the value, if it has a name, its type and shape.
type Output = (Option<Value>, DType, PerAxis<usize>);

impl<'a> Resolver<'a> {
    fn new(cx: Surroundings<'a>, symbols: SymbolBindings, plan: &'a Memory) -> Resolver<'a> {
        let (places, own) = (FxHashMap::default(), Draft::default());
        Resolver { cx, plan, symbols, places, others: None, own, taken: 0, fresh: 0 }
    }

    /// Resolves the whole program in the plan's memory, with the symbols that are known then. With `inputs` everything is
    /// computed at once.
    pub fn resolve(
        cx: Surroundings<'a>,
        symbols: SymbolBindings,
        plan: &'a Memory,
        inputs: Option<&[Tensor]>,
    ) -> Result<(Resolved, Places), BackendError> {
        let mut r = Resolver::new(cx, symbols, plan);
        r.inputs(inputs)?;
        let mut kernels = Vec::with_capacity(cx.graph.groups.len());
        for (kernel, group) in cx.graph.groups.iter().enumerate() {
            kernels.push(r.prepared(kernel, group, inputs.is_some())?);
        }
        let outputs = cx.graph.program.outputs.iter().map(|(_, v)| r.output(*v));
        let outputs = outputs.collect::<Result<_, _>>()?;
        let resolved = r.linked(kernels, outputs);
        Ok((resolved, Places { symbols: r.symbols, of: r.places }))
    }

    /// Where an output lies.
    fn output(&mut self, v: Value) -> Result<Location, BackendError> {
        let place = self.aligned(self.place(v)?.clone());
        match place.layout.is_whole() || place.constant().is_none() {
            true => Ok(place),
            false => self.copied(&place, None, "output"),
        }
    }

    /// A kernel, prepared now or for an earlier run that was alike to it. Where the inputs are `given`, it is computed, and not noted.
    fn prepared(
        &mut self,
        kernel: usize,
        group: &Group,
        given: bool,
    ) -> Result<Arc<PreparedKernel>, BackendError> {
        let symbols: Vec<_> = group.symbols.iter().map(|s| self.symbols.get(s)).collect();
        let planned = self.plan.written(kernel);
        let reads = group.reads.iter().map(|v| self.place(*v)).collect::<Result<Vec<_>, _>>()?;
        let occasion = Occasion { symbols: &symbols, reads: &reads, planned };
        if let Some(known) = self.cx.known.find(kernel, &occasion) {
            self.places.extend(known.places.iter().cloned());
            known.learned.iter().for_each(|(e, n)| self.symbols.learn(e, *n));
            return Ok(known);
        }
        let key = occasion.key();
        self.own = Draft { kernel, planned, ..Draft::default() };
        self.group(group)?;
        self.fresh += 1;
        let Draft { passes, workspace, learned, constants, .. } = std::mem::take(&mut self.own);
        let mut places = Vec::with_capacity(group.outputs.len());
        for &v in &group.outputs {
            places.push((v, self.place(v)?.clone()));
        }
        if group.lasts {
            places.iter().filter_map(|(_, l)| l.constant()).for_each(|t| self.cx.packs.keep(t));
        }
        let prepared = PreparedKernel { kernel, passes, workspace, places, learned, constants };
        let prepared = Arc::new(prepared);
        if !given || group.lasts {
            self.cx.known.add(&prepared, key, group.lasts);
        }
        Ok(prepared)
    }

    /// A value, aligned for its elements where it is a constant.
    fn aligned(&self, place: Location) -> Location {
        let storage = match &place.storage {
            Storage::Const(t) => Storage::Const(self.cx.packs.aligned(t)),
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
            Some(room) => Storage::Temp(TempId::of_room(room)),
            None => Storage::Input(input),
        }
    }

    fn layout_of_input(&self, storage: &Storage, shape: &[usize]) -> Layout {
        match storage {
            Storage::Temp(t) => self.plan.rooms[t.slot].layout(shape),
            _ => Layout::dense(shape),
        }
    }

    /// Keeps a tensor that was computed, aligned for its elements.
    fn constant(&mut self, t: Tensor) -> Storage {
        self.own.constants = self.own.constants.saturating_add(t.bytes().len() as u64);
        Storage::Const(aligned(t))
    }

    fn place(&self, v: Value) -> Result<&Location, BackendError> {
        let other = || self.others?.get(&v);
        let place = self.places.get(&v).or_else(other).or_else(|| self.cx.constants.get(&v));
        place.ok_or_else(|| self.fail(v.node, "is read before it is computed"))
    }

    fn name(&self, node: NodeId) -> String {
        let op = self.cx.library.node_name(&self.cx.graph.program, node);
        match self.cx.graph.program.node(node).origin.as_str() {
            "" => op,
            origin => format!("{op} ({origin})"),
        }
    }

    fn fail(&self, node: NodeId, reason: impl Into<String>) -> BackendError {
        BackendError::Operator { op: self.name(node), reason: reason.into() }
    }

    fn group(&mut self, group: &Group) -> Result<(), BackendError> {
        let unknown = |n: &NodeId| {
            let types = &self.cx.graph.program.node(*n).types;
            !types.iter().all(|t| self.symbols.knows(t))
        };
        if group.nodes.iter().any(unknown) {
            // The reference interpreter finds shapes that depend on data.
            return group.nodes.iter().try_for_each(|n| self.fall_back(*n));
        }
        for &view in &group.views {
            if !self.view(view, group)? {
                self.fall_back(view)?;
            }
        }
        if let Some(room) = self.plan.appended(self.own.kernel) {
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

    /// True if something reads a value of a kernel: another one, or what follows in it.
    fn is_read(&self, v: Value, group: &Group) -> bool {
        let program = &self.cx.graph.program;
        let follows = |n: &NodeId| program.node(*n).args.contains(&v);
        group.outputs.contains(&v) || group.epilogue.iter().any(follows)
    }

    /// True if the node is a new layout (or a copy) of its argument.
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
                match named.is_some_and(|v| self.own.planned.iter().any(|p| p.value == *v)) {
                    true => self.copied(&seen, Some(value), &self.name(id))?,
                    false => seen,
                }
            }
            Viewed::NeedsCopy => {
                let dense = self.copied(&from, Some(value), &self.name(id))?;
                Location { layout: Layout::dense(&shape), ..dense }
            }
            Viewed::Declined => return Ok(false),
        };
        self.places.insert(value, place);
        Ok(true)
    }

    /// A dense copy of what is seen so, as the value.
    fn copied(
        &mut self,
        from: &Location,
        value: Option<Value>,
        name: &str,
    ) -> Result<Location, BackendError> {
        let shape = from.layout.shape.clone();
        let launch =
            Copy::new(from.dtype, &from.layout).ok_or_else(|| BackendError::Unsupported {
                backend: "cpu",
                what: format!("a view of {} axes", from.layout.rank()),
            })?;
        let outputs = [(value, from.dtype, shape)];
        let places = self.pass(Box::new(launch), vec![from.clone()], &outputs, None, name)?;
        places.into_iter().next().ok_or_else(|| broken("a copy without a result"))
    }

    /// Code for an operator, with what goes before and after it.
    fn native(
        &mut self,
        native: &Native,
        anchor: NodeId,
        group: &Group,
    ) -> Result<(), BackendError> {
        if self.mapped(anchor, group)? {
            return Ok(());
        }
        let inside = |v: &Value| group.prologue.contains(&v.node);
        let wanted: Vec<Value> = group.arguments.iter().copied().filter(inside).collect();
        self.pointwise(&group.prologue, &wanted)?;
        let Some(outputs) = self.results(anchor) else { return self.fall_back(anchor) };
        if group.conditional {
            self.admitted(anchor)?;
        }
        let op = self.cx.library.node_name(&self.cx.graph.program, anchor);
        let made = match native.maker(&op) {
            Some(maker) => {
                let read: Vec<bool> =
                    outputs.iter().map(|o| o.0.is_some_and(|v| self.is_read(v, group))).collect();
                let attrs = self.attrs(anchor);
                self.make(maker, (&op, &group.arguments), &attrs, &outputs, &read)?
            }
            None => None,
        };
        match made {
            // No code writes a state that nothing reads.
            Some((launch, args)) => self.launch(launch, args, &self.held(outputs), anchor, group),
            // A rank or an attribute that the code does not know, never an element type, which would be a fault of the plan: the
            // reference interpreter computes what a kernel covers otherwise.
            None => {
                self.fall_back(anchor)?;
                self.pointwise(&group.epilogue, &group.outputs)
            }
        }
    }

    /// An error if an operator does not admit the extents that symbols stand for: its code relies on what the declaration demands.
    fn admitted(&self, id: NodeId) -> Result<(), BackendError> {
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

    /// Launches an anchor and the pointwise operators that follow it: as its epilogue where it takes one.
    fn launch(
        &mut self,
        launch: Box<dyn Launch>,
        args: Vec<Location>,
        outputs: &[Output],
        anchor: NodeId,
        group: &Group,
    ) -> Result<(), BackendError> {
        let name = self.name(anchor);
        let result = Value { node: anchor, output: 0 };
        let shape = &outputs[0].2;
        let constant = args.iter().all(|a| a.constant().is_some());
        if launch.takes_epilogue()
            && !group.epilogue.is_empty()
            && !constant
            && let [last] = group.outputs.as_slice()
            && *last != result
            && let Some((fused, extra, dtypes)) =
                self.fuse(&group.epilogue, shape, Some(result), &[*last])?
            && (launch.epilogue_converts() || outputs[0].1 == DType::F32 && dtypes == [DType::F32])
        {
            let inputs = args.into_iter().chain(extra).collect();
            let outputs = [(Some(*last), dtypes[0], shape.clone())];
            self.named(launch, inputs, &outputs, Some(Epilogue { fused }), &name)?;
            return Ok(());
        }
        self.named(launch, args, outputs, None, &name)?;
        self.pointwise(&group.epilogue, &group.outputs)
    }

    /// A pass whose results have names from now on.
    fn named(
        &mut self,
        launch: Box<dyn Launch>,
        inputs: Vec<Location>,
        outputs: &[Output],
        epilogue: Option<Epilogue>,
        name: &str,
    ) -> Result<(), BackendError> {
        let places = self.pass(launch, inputs, outputs, epilogue, name)?;
        let names = outputs.iter().map(|o| o.0).zip(places);
        self.places.extend(names.filter_map(|(v, p)| Some((v?, p))));
        Ok(())
    }

    /// Prepares an operator on arguments; dense copies of them where it takes nothing else.
    #[allow(clippy::type_complexity, reason = "a kernel and its arguments")]
    fn make(
        &mut self,
        maker: Maker,
        (op, args): (&str, &[Value]),
        attrs: &[Attr],
        outputs: &[Output],
        read: &[bool],
    ) -> Result<Option<(Box<dyn Launch>, Vec<Location>)>, BackendError> {
        let outputs: Vec<(DType, PerAxis<usize>)> =
            outputs.iter().map(|(_, d, s)| (*d, s.clone())).collect();
        let outputs = outputs.as_slice();
        let mut places: Vec<Location> =
            args.iter().map(|a| self.place(*a).cloned()).collect::<Result<_, _>>()?;
        self.as_if_alone(op, args, &mut places)?;
        if let Some(launch) = maker(&self.site(attrs, &self.operands(&places), outputs, read)) {
            return Ok(Some((launch, places)));
        }
        if let Some(launch) =
            half_precision::make(maker, &self.site(attrs, &self.operands(&places), outputs, read))
        {
            return Ok(Some((launch, places)));
        }
        // A kernel that reads only dense operands may still take copies.
        if places.iter().all(|p| p.layout.is_dense()) {
            return Ok(None);
        }
        let dense: Vec<LaunchOperand> = self
            .operands(&places)
            .into_iter()
            .map(|o| LaunchOperand { layout: Layout::dense(&o.layout.shape), constant: None, ..o })
            .collect();
        let site = self.site(attrs, &dense, outputs, read);
        if maker(&site).is_none() && half_precision::make(maker, &site).is_none() {
            return Ok(None);
        }
        for p in places.iter_mut().filter(|p| !p.layout.is_dense()) {
            *p = self.copied(p, None, "copy")?;
        }
        let operands = self.operands(&places);
        let site = self.site(attrs, &operands, outputs, read);
        let launch = maker(&site).or_else(|| half_precision::make(maker, &site));
        Ok(launch.map(|launch| (launch, places)))
    }

    fn site<'s>(
        &'s self,
        attrs: &'s [Attr],
        args: &'s [LaunchOperand],
        outputs: &'s [(DType, PerAxis<usize>)],
        read: &'s [bool],
    ) -> LaunchSite<'s> {
        LaunchSite { attrs, args, outputs, read, packs: self.cx.packs }
    }

    fn operands(&self, places: &[Location]) -> Vec<LaunchOperand> {
        let operand = |p: &Location| LaunchOperand {
            dtype: p.dtype,
            layout: p.layout.clone(),
            constant: p.constant().cloned(),
        };
        places.iter().map(operand).collect()
    }
}

/// Fewer bytes are not worth asking the system for.
const SMALL: u64 = 64 << 20;

/// Whether there is room for so many bytes: within `memory`, or what the machine has free. If not, that limit.
pub fn room(bytes: u64, memory: Option<u64>) -> Result<(), u64> {
    let limit = match memory {
        Some(limit) => limit,
        None if bytes < SMALL => return Ok(()),
        None => mlc_backends::memory::available(),
    };
    if bytes <= limit { Ok(()) } else { Err(limit) }
}

/// What the error of [`Resolver::fall_back`] says when shapes depend on data.
pub const NEEDS_DATA: &str = "shapes that depend on data before the data is there";
