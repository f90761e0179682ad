//! From groups to launches, for one assignment of the symbols.
//!
//! Views become layouts. What reads only constants is computed here, once. Given the inputs as well, everything is: this is
//! how programs run whose shapes depend on their data.

use super::fused::Copy;
use super::graph::{Graph, Group};
use super::launch::{Array, Context, Launch, Operand, Packs, Site, Tail};
use super::layout::Layout;
use super::symbols::Symbols;
use super::threads::Threads;
use super::{buffer::Buffer, halves, judge, registry, view};
use crate::BackendError;
use bytes::Bytes;
use mlc_dsl::ir::{Attr, DType, NodeId, NodeKind, Tensor, Value};
use mlc_dsl::library::{Library, OpClass};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

mod concat;
mod fuse;
mod mapped;

/// What holds the elements of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A constant.
    Const(usize),
    /// An input of the program.
    Input(usize),
    /// An intermediate.
    Temp(usize),
}

/// A value: where its elements are.
#[derive(Clone, Debug)]
pub struct Place {
    /// Element type.
    pub dtype: DType,
    /// Where in the storage.
    pub layout: Layout,
    /// Whose memory.
    pub storage: Storage,
}

/// One launch and what it reads and writes.
pub struct Step {
    /// The kernel.
    pub launch: Box<dyn Launch>,
    /// Its inputs, those of the tail after its own.
    pub inputs: Vec<Place>,
    /// How many of them are the kernel's own.
    pub own: usize,
    /// The intermediates it writes.
    pub outputs: Vec<usize>,
    /// The pointwise program applied to the result.
    pub tail: Option<Tail>,
    /// The operator and the imported node, for messages.
    pub name: String,
    /// The kernel of the plan that it belongs to; `None` for copies of results.
    pub kernel: Option<usize>,
}

/// A program with known shapes.
pub struct Resolved {
    /// In execution order.
    pub steps: Vec<Step>,
    /// Constants, evaluated ones after those of the program.
    pub consts: Vec<Tensor>,
    /// Bytes of each intermediate.
    pub temps: Vec<usize>,
    /// One per output of the program; dense.
    pub outputs: Vec<Place>,
}

/// Resolves groups one by one.
pub struct Resolver<'a> {
    graph: &'a Graph,
    library: &'a Arc<Library>,
    threads: &'a Threads,
    packs: &'a Packs,
    symbols: Symbols,
    places: HashMap<Value, Place>,
    /// Concatenations that the next one takes apart again.
    parts: HashMap<Value, Vec<Place>>,
    /// The kernel of the plan that is resolved.
    kernel: Option<usize>,
    /// Bytes that it may take, and has taken, for what is computed here.
    memory: Option<u64>,
    taken: u64,
    out: Resolved,
}

/// Pointwise nodes not launched yet, after the operator whose result they refine, if any.
#[derive(Default)]
struct Pending {
    anchor: Option<NodeId>,
    nodes: Vec<NodeId>,
    shape: Vec<usize>,
}

/// A kernel that is not launched yet.
struct Anchor {
    launch: Box<dyn Launch>,
    args: Vec<Place>,
    outputs: Vec<(DType, Vec<usize>)>,
    /// What it computes.
    result: Value,
}

impl<'a> Resolver<'a> {
    /// Resolves the whole program. With `inputs` everything is computed at once.
    #[allow(clippy::too_many_arguments, reason = "all that a compiled plan holds")]
    pub fn resolve(
        graph: &'a Graph,
        library: &'a Arc<Library>,
        threads: &'a Threads,
        packs: &'a Packs,
        symbols: Symbols,
        inputs: Option<&[Tensor]>,
        memory: Option<u64>,
    ) -> Result<Resolved, BackendError> {
        let out = Resolved { steps: vec![], consts: vec![], temps: vec![], outputs: vec![] };
        let mut r = Resolver {
            graph,
            library,
            threads,
            packs,
            symbols,
            places: HashMap::new(),
            parts: HashMap::new(),
            kernel: None,
            memory,
            taken: 0,
            out,
        };
        r.leaves(inputs)?;
        for (i, group) in graph.groups.iter().enumerate() {
            r.kernel = Some(i);
            r.group(group)?;
        }
        r.kernel = None;
        for (_, v) in &graph.program.outputs {
            let place = r.place(*v)?.clone();
            let whole = place.layout.is_dense() && place.layout.offset == 0;
            let place = if whole { place } else { r.copied(&place, "output")? };
            r.out.outputs.push(place);
        }
        Ok(r.out)
    }

    fn leaves(&mut self, inputs: Option<&[Tensor]>) -> Result<(), BackendError> {
        for (i, node) in self.graph.program.nodes.iter().enumerate() {
            let storage = match (&node.kind, inputs) {
                (NodeKind::Const(c), _) => self.constant(self.graph.program.consts.get(*c).clone()),
                (NodeKind::Input(k), Some(given)) => self.constant(given[*k as usize].clone()),
                (NodeKind::Input(k), None) => Storage::Input(*k as usize),
                (NodeKind::Apply(..), _) => continue,
            };
            let (dtype, shape) = match (storage, self.symbols.shape(&node.types[0])) {
                (_, Some(known)) => known,
                (Storage::Const(c), None) => {
                    (node.types[0].dtype, self.out.consts[c].shape().to_vec())
                }
                (_, None) => return Err(self.fail(NodeId(i as u32), "unknown input shape")),
            };
            let value = Value { node: NodeId(i as u32), output: 0 };
            self.places.insert(value, Place { dtype, layout: Layout::dense(&shape), storage });
        }
        Ok(())
    }

    /// Keeps a tensor, aligned for its elements.
    fn constant(&mut self, t: Tensor) -> Storage {
        self.out.consts.push(aligned(t));
        Storage::Const(self.out.consts.len() - 1)
    }

    fn place(&self, v: Value) -> Result<&Place, BackendError> {
        self.places.get(&v).ok_or_else(|| self.fail(v.node, "is read before it is computed"))
    }

    fn name(&self, node: NodeId) -> String {
        let op = self.library.node_name(&self.graph.program, node);
        match self.graph.program.node(node).origin.as_str() {
            "" => op,
            origin => format!("{op} ({origin})"),
        }
    }

    fn fail(&self, node: NodeId, reason: impl Into<String>) -> BackendError {
        BackendError::Operator { op: self.name(node), reason: reason.into() }
    }

    fn group(&mut self, group: &Group) -> Result<(), BackendError> {
        if !group.reference && self.mapped(group)? {
            return Ok(());
        }
        let mut pending = Pending::default();
        for &id in &group.nodes {
            let node = self.graph.program.node(id);
            let NodeKind::Apply(call, attrs) = &node.kind else { continue };
            let attrs: Vec<Attr> = attrs.iter().map(|a| self.symbols.attr(a)).collect();
            let class = self.library.call(*call).class;
            let native = registry::find(&self.library.call(*call).name);
            let shapes: Option<Vec<_>> = node.types.iter().map(|t| self.symbols.shape(t)).collect();
            let Some(shapes) = shapes else {
                self.flush(&mut pending)?;
                self.judged(id, None)?;
                continue;
            };
            if group.reference {
                self.judged(id, Some(&shapes))?;
                continue;
            }
            if registry::is_concat(&self.library.call(*call).name) {
                self.flush(&mut pending)?;
                self.concat(id, &attrs, &shapes)?;
                continue;
            }
            let waiting = |a: &Value| !self.places.contains_key(a);
            if class == OpClass::View {
                if self.places.contains_key(&Value { node: id, output: 0 }) {
                    continue;
                }
                if node.args.iter().any(waiting) {
                    self.flush(&mut pending)?;
                }
                if self.view(id, &attrs, &shapes[0].1)? {
                    continue;
                }
                self.judged(id, Some(&shapes))?;
            } else if class == OpClass::Pointwise {
                let fits = match (pending.anchor, pending.nodes.is_empty()) {
                    (None, true) => true,
                    _ => pending.shape == shapes[0].1,
                };
                if !fits {
                    self.flush(&mut pending)?;
                }
                pending.shape = shapes[0].1.clone();
                pending.nodes.push(id);
            } else {
                self.flush(&mut pending)?;
                if native.is_some() && shapes.len() == 1 {
                    pending =
                        Pending { anchor: Some(id), nodes: vec![], shape: shapes[0].1.clone() };
                } else {
                    self.single(id, &attrs, &shapes)?;
                }
            }
        }
        self.flush(&mut pending)
    }

    /// True if the node is a new layout (or a copy) of its argument.
    fn view(&mut self, id: NodeId, attrs: &[Attr], shape: &[usize]) -> Result<bool, BackendError> {
        let node = self.graph.program.node(id);
        let NodeKind::Apply(call, _) = node.kind else { return Ok(false) };
        let [arg] = node.args.as_slice() else { return Ok(false) };
        let from = self.place(*arg)?.clone();
        let Some(view) = registry::view(&self.library.call(call).name) else { return Ok(false) };
        let place = match view::apply(view, &from.layout, attrs, shape) {
            view::Viewed::Layout(layout) => Place { layout, ..from },
            view::Viewed::NeedsCopy => {
                let dense = self.copied(&from, &self.name(id))?;
                Place { layout: Layout::dense(shape), ..dense }
            }
            view::Viewed::Declined => return Ok(false),
        };
        self.places.insert(Value { node: id, output: 0 }, place);
        Ok(true)
    }

    /// A dense copy of a value.
    fn copied(&mut self, from: &Place, name: &str) -> Result<Place, BackendError> {
        let shape = from.layout.shape.clone();
        let launch =
            Copy::new(from.dtype, &from.layout).ok_or_else(|| BackendError::Unsupported {
                backend: "cpu",
                what: format!("a view of {} axes", from.layout.rank()),
            })?;
        let outputs = [(from.dtype, shape)];
        let places = self.step(Box::new(launch), vec![from.clone()], &outputs, None, name)?;
        places.into_iter().next().ok_or_else(|| BackendError::Unsupported {
            backend: "cpu",
            what: "a copy without a result".into(),
        })
    }

    /// Launches what is pending.
    fn flush(&mut self, pending: &mut Pending) -> Result<(), BackendError> {
        let Pending { anchor, nodes, shape } = std::mem::take(pending);
        let Some(anchor) = anchor else {
            return self.pointwise(&nodes, &shape);
        };
        let node = self.graph.program.node(anchor);
        let NodeKind::Apply(_, attrs) = &node.kind else { return Ok(()) };
        let attrs: Vec<Attr> = attrs.iter().map(|a| self.symbols.attr(a)).collect();
        let outputs = vec![(node.types[0].dtype, shape.clone())];
        let result = Value { node: anchor, output: 0 };
        let made = self.make(anchor, &attrs, &outputs);
        let Some((launch, args)) = made? else {
            self.judged(anchor, Some(&outputs))?;
            return self.pointwise(&nodes, &shape);
        };
        self.launch_before(Anchor { launch, args, outputs, result }, &nodes, &shape)
    }

    /// Launches a kernel and the pointwise operators that follow it: as its tail where it takes one.
    fn launch_before(
        &mut self,
        anchor: Anchor,
        nodes: &[NodeId],
        shape: &[usize],
    ) -> Result<(), BackendError> {
        let Anchor { launch, args, outputs, result } = anchor;
        let name = self.name(result.node);
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let own_only = !self.graph.shared.contains(&result) && !self.read_outside(&result, &inside);
        let constant = args.iter().all(|a| matches!(a.storage, Storage::Const(_)));
        if own_only
            && launch.takes_tail()
            && !nodes.is_empty()
            && !constant
            && let Some((fused, extra, outs)) = self.fuse(nodes, shape, Some(result))?
            && let [(last, DType::F32)] = outs.as_slice()
        {
            let inputs = args.into_iter().chain(extra).collect();
            let places = self.step(launch, inputs, &outputs, Some(Tail { fused }), &name)?;
            self.places.extend(places.into_iter().map(|p| (*last, p)));
            return Ok(());
        }
        let places = self.step(launch, args, &outputs, None, &name)?;
        self.places.extend(places.into_iter().map(|p| (result, p)));
        self.pointwise(nodes, shape)
    }

    /// Asks the registry for the kernel of a node.
    #[allow(clippy::type_complexity, reason = "a kernel and its arguments")]
    fn make(
        &mut self,
        id: NodeId,
        attrs: &[Attr],
        outputs: &[(DType, Vec<usize>)],
    ) -> Result<Option<(Box<dyn Launch>, Vec<Place>)>, BackendError> {
        let node = self.graph.program.node(id);
        let NodeKind::Apply(call, _) = node.kind else { return Ok(None) };
        let Some(maker) = registry::find(&self.library.call(call).name) else { return Ok(None) };
        let mut places: Vec<Place> =
            node.args.iter().map(|a| self.place(*a).cloned()).collect::<Result<_, _>>()?;
        if let Some(launch) = maker(&self.site(attrs, &self.operands(&places), outputs)) {
            return Ok(Some((launch, places)));
        }
        if let Some(launch) =
            halves::make(maker, &self.site(attrs, &self.operands(&places), outputs))
        {
            return Ok(Some((launch, places)));
        }
        // A kernel that reads only dense operands may still take copies.
        if places.iter().all(|p| p.layout.is_dense()) {
            return Ok(None);
        }
        let dense: Vec<Operand> = self
            .operands(&places)
            .into_iter()
            .map(|o| Operand { layout: Layout::dense(&o.layout.shape), constant: None, ..o })
            .collect();
        let site = self.site(attrs, &dense, outputs);
        if maker(&site).is_none() && halves::make(maker, &site).is_none() {
            return Ok(None);
        }
        for p in places.iter_mut().filter(|p| !p.layout.is_dense()) {
            *p = self.copied(p, "copy")?;
        }
        let operands = self.operands(&places);
        let site = self.site(attrs, &operands, outputs);
        let launch = maker(&site).or_else(|| halves::make(maker, &site));
        Ok(launch.map(|launch| (launch, places)))
    }

    fn site<'s>(
        &'s self,
        attrs: &'s [Attr],
        args: &'s [Operand],
        outputs: &'s [(DType, Vec<usize>)],
    ) -> Site<'s> {
        Site { attrs, args, outputs, packs: self.packs }
    }

    fn operands(&self, places: &[Place]) -> Vec<Operand> {
        let constant = |p: &Place| match p.storage {
            Storage::Const(c) => Some(self.out.consts[c].clone()),
            Storage::Input(_) | Storage::Temp(_) => None,
        };
        places
            .iter()
            .map(|p| Operand { dtype: p.dtype, layout: p.layout.clone(), constant: constant(p) })
            .collect()
    }

    /// A node by itself.
    fn single(
        &mut self,
        id: NodeId,
        attrs: &[Attr],
        outputs: &[(DType, Vec<usize>)],
    ) -> Result<(), BackendError> {
        match self.make(id, attrs, outputs)? {
            Some((launch, args)) => {
                let name = self.name(id);
                let places = self.step(launch, args, outputs, None, &name)?;
                for (output, p) in places.into_iter().enumerate() {
                    self.places.insert(Value { node: id, output: output as u32 }, p);
                }
                Ok(())
            }
            None => self.judged(id, Some(outputs)),
        }
    }

    /// A node by the judge. Without shapes its results must be known already: the judge finds the shapes.
    fn judged(
        &mut self,
        id: NodeId,
        outputs: Option<&[(DType, Vec<usize>)]>,
    ) -> Result<(), BackendError> {
        let node = self.graph.program.node(id);
        let args: Vec<Place> =
            node.args.iter().map(|a| self.place(*a).cloned()).collect::<Result<_, _>>()?;
        let count = |shape: &[usize]| shape.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64));
        let own = args.iter().map(|p| count(&p.layout.shape));
        let made = outputs.iter().flat_map(|o| o.iter()).map(|o| count(&o.1));
        let elements = own.chain(made).fold(0, u64::saturating_add);
        let program = &self.graph.program;
        let launch = judge::Judged::new(elements, program, id, &self.symbols, self.library)?;
        let name = self.name(id);
        if let Some(outputs) = outputs {
            let places = self.step(Box::new(launch), args, outputs, None, &name)?;
            for (output, p) in places.into_iter().enumerate() {
                self.places.insert(Value { node: id, output: output as u32 }, p);
            }
            return Ok(());
        }
        let arrays = self
            .constants(&args)
            .ok_or(BackendError::Unsupported { backend: "cpu", what: NEEDS_DATA.into() })?;
        let results = launch.tensors(&arrays).map_err(|reason| self.fail(id, reason))?;
        for (output, t) in results.into_iter().enumerate() {
            for (e, &d) in node.types[output].shape.iter().zip(t.shape()) {
                self.symbols.learn(e, d as i64);
            }
            let (dtype, layout) = (t.dtype(), Layout::dense(t.shape()));
            let storage = self.constant(t);
            self.places.insert(
                Value { node: id, output: output as u32 },
                Place { dtype, layout, storage },
            );
        }
        Ok(())
    }

    /// The arguments as arrays, if all are constant.
    fn constants<'s>(&'s self, args: &'s [Place]) -> Option<Vec<Array<'s>>> {
        args.iter()
            .map(|p| match p.storage {
                Storage::Const(c) => Some(Array {
                    dtype: p.dtype,
                    layout: &p.layout,
                    bytes: self.out.consts[c].bytes(),
                }),
                Storage::Input(_) | Storage::Temp(_) => None,
            })
            .collect()
    }

    /// Counts bytes that are allocated now.
    fn take(&mut self, bytes: u64, name: &str) -> Result<(), BackendError> {
        self.taken = self.taken.saturating_add(bytes);
        // What is taken is missing from what the machine has free.
        let needed = if self.memory.is_some() { self.taken } else { bytes };
        room(needed, self.memory).map_err(|limit| BackendError::Memory {
            op: name.into(),
            what: "its results, computed before the run,".into(),
            bytes: needed,
            limit,
        })
    }

    /// Adds a step, or runs it now if it reads only constants.
    fn step(
        &mut self,
        launch: Box<dyn Launch>,
        inputs: Vec<Place>,
        outputs: &[(DType, Vec<usize>)],
        tail: Option<Tail>,
        name: &str,
    ) -> Result<Vec<Place>, BackendError> {
        let place = |storage, (dtype, shape): &(DType, Vec<usize>)| Place {
            dtype: *dtype,
            layout: Layout::dense(shape),
            storage,
        };
        let own = inputs.len() - tail.as_ref().map_or(0, |t| t.fused.input_count() - 1);
        let mut sizes = Vec::with_capacity(outputs.len());
        for (dtype, shape) in outputs {
            let bytes = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
            let bytes = if shape.contains(&0) { Some(0) } else { bytes };
            sizes.push(bytes.filter(|&b| b <= isize::MAX as usize).ok_or_else(|| {
                BackendError::Operator {
                    op: name.into(),
                    reason: format!("a result of shape {shape:?} is too large"),
                }
            })?);
        }
        if tail.is_none() && self.constants(&inputs).is_some() {
            self.take(
                sizes.iter().fold(launch.scratch(), |n, &b| n.saturating_add(b as u64)),
                name,
            )?;
        }
        let constant = tail.is_none().then(|| self.constants(&inputs)).flatten();
        if let Some(arrays) = constant {
            let mut buffers: Vec<Buffer> = sizes.iter().map(|&n| Buffer::new(n)).collect();
            let mut outs: Vec<&mut [u8]> = buffers.iter_mut().map(Buffer::bytes_mut).collect();
            let cx = Context { threads: self.threads, tail: None };
            launch
                .run(&cx, &arrays, &mut outs)
                .map_err(|reason| BackendError::Operator { op: name.into(), reason })?;
            return buffers
                .into_iter()
                .zip(outputs)
                .map(|(b, o)| {
                    let t = Tensor::new(o.0, o.1.clone(), Bytes::from_owner(b)).map_err(|e| {
                        BackendError::Operator { op: name.into(), reason: e.to_string() }
                    })?;
                    Ok(place(self.constant(t), o))
                })
                .collect();
        }
        let mut places = Vec::new();
        let mut temps = Vec::new();
        for (o, bytes) in outputs.iter().zip(sizes) {
            self.out.temps.push(bytes);
            temps.push(self.out.temps.len() - 1);
            places.push(place(Storage::Temp(self.out.temps.len() - 1), o));
        }
        let (name, kernel) = (name.to_string(), self.kernel);
        self.out.steps.push(Step { launch, inputs, own, outputs: temps, tail, name, kernel });
        Ok(places)
    }
}

/// Fewer bytes are not worth asking the system for.
const SMALL: u64 = 64 << 20;

/// Whether there is room for so many bytes: within `memory`, or what the machine has free. If not, that limit.
pub fn room(bytes: u64, memory: Option<u64>) -> Result<(), u64> {
    let limit = match memory {
        Some(limit) => limit,
        None if bytes < SMALL => return Ok(()),
        None => crate::memory::available(),
    };
    if bytes <= limit { Ok(()) } else { Err(limit) }
}

/// What the error of [`Resolver::judged`] says when shapes depend on data.
pub const NEEDS_DATA: &str = "shapes that depend on data before the data is there";

/// The tensor, copied if its elements are not aligned.
pub fn aligned(t: Tensor) -> Tensor {
    if (t.bytes().as_ptr() as usize).is_multiple_of(t.dtype().size()) {
        return t;
    }
    let bytes = Bytes::from_owner(Buffer::copy_of(t.bytes()));
    Tensor::new(t.dtype(), t.shape().to_vec(), bytes).unwrap_or(t)
}
