//! A program in the shape in which ONNX writes it: operands that NumPy's rule broadcasts stand as they
//! are, aligned to the right, and nothing else is broadcast without need.

use super::kernels::PlannedProgram;
use crate::import::broadcast::trailing_axes;
use mlc_dsl::eval::functions::{common_shape, moved_extents};
use mlc_dsl::ir::canon::Structural;
use mlc_dsl::ir::{Attr, Consts, Extent, Node, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{CallId, Library, OpClass};
use std::collections::HashMap;

/// Constants that repeat one element are written out up to this many elements.
const MAX_FILLED: usize = 1 << 16;

/// The graph of an export.
pub(crate) struct Graph<'a> {
    /// The declarations.
    pub library: &'a Library,
    /// The operators of the notation.
    pub structural: Structural,
    /// Names and types of the inputs.
    pub inputs: &'a [(String, Type)],
    /// Names and values of the outputs.
    pub outputs: Vec<(String, Value)>,
    nodes: Vec<Node>,
    /// The program's node that each node was made from.
    source: Vec<Option<NodeId>>,
    /// The nodes that read each node, as far as an output needs them.
    consumers: Vec<Vec<NodeId>>,
    /// The kernels that compute each node of the program.
    kernels: &'a [Vec<u32>],
    /// What each kernel computes, as far as an output needs it.
    computed: HashMap<u32, Vec<NodeId>>,
    consts: Consts,
    index: HashMap<(NodeKind, Vec<Value>), NodeId>,
}

impl<'a> Graph<'a> {
    /// The graph of a program.
    pub fn of(planned: &'a PlannedProgram, library: &'a Library) -> Graph<'a> {
        let program = &planned.program;
        let mut g = Graph {
            library,
            structural: Structural::of(library),
            inputs: &program.inputs,
            outputs: Vec::new(),
            nodes: Vec::new(),
            source: Vec::new(),
            consumers: Vec::new(),
            kernels: &planned.kernels,
            computed: HashMap::new(),
            consts: program.consts.clone(),
            index: HashMap::new(),
        };
        let mut new: Vec<Value> = Vec::with_capacity(program.nodes.len());
        for (i, node) in program.nodes.iter().enumerate() {
            let id = NodeId(i as u32);
            let moved = |v: &Value| moved(&new, *v);
            let mut args: Vec<Value> = node.args.iter().map(moved).collect();
            let v = match &node.kind {
                NodeKind::Apply(call, attrs) => {
                    if trailing_axes(library.call(*call)).is_some() {
                        args = g.relax(program, *call, node, &new, args);
                    }
                    g.place(*call, attrs, args, node, id)
                }
                kind => g.push(kind.clone(), args, node.types.clone(), &node.origin, Some(id)),
            };
            new.push(v);
        }
        g.outputs = program.outputs.iter().map(|(n, v)| (n.clone(), moved(&new, *v))).collect();
        g.count();
        g.sink_unit_axes();
        g
    }

    /// The node of an id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The type of a value.
    pub fn ty(&self, v: Value) -> &Type {
        &self.node(v.node).types[v.output as usize]
    }

    /// The program's node behind a node.
    pub fn source(&self, id: NodeId) -> Option<NodeId> {
        self.source[id.0 as usize]
    }

    /// The readers of a node.
    pub fn consumers(&self, id: NodeId) -> &[NodeId] {
        &self.consumers[id.0 as usize]
    }

    /// The kernels that compute a node; none of a view, and of what the export added.
    fn kernels(&self, id: NodeId) -> &'a [u32] {
        let NodeKind::Apply(call, _) = &self.node(id).kind else { return &[] };
        match self.source(id) {
            Some(source) if self.library.call(*call).class != OpClass::View => {
                &self.kernels[source.0 as usize]
            }
            _ => &[],
        }
    }

    /// True if an ONNX node may compute these nodes: those of one kernel, or several kernels that have no other nodes.
    pub fn keeps_kernels(&self, nodes: &[NodeId]) -> bool {
        let mut of = nodes.iter().map(|n| self.kernels(*n)).filter(|k| !k.is_empty());
        let Some(first) = of.next() else { return true };
        let is_one = first.iter().any(|k| of.clone().all(|other| other.contains(k)));
        let whole = |k: &u32| {
            let all = self.computed.get(k).map_or(&[][..], Vec::as_slice);
            all.iter().all(|n| nodes.contains(n))
        };
        is_one || first.iter().chain(of.flatten()).all(whole)
    }

    /// True if an output of the program is a value of this node.
    pub fn is_output(&self, id: NodeId) -> bool {
        self.outputs.iter().any(|(_, v)| v.node == id)
    }

    /// The constant that a value is, if it costs no node: a reshape of a constant is one.
    pub fn constant(&self, v: Value) -> Option<Tensor> {
        let node = self.node(v.node);
        match &node.kind {
            NodeKind::Const(c) => Some(self.consts.get(*c).clone()),
            NodeKind::Apply(call, _) if Some(*call) == self.structural.reshape => {
                let t = self.constant(node.args[0])?;
                let shape = node.types[0].known_shape()?;
                (shape.iter().product::<usize>() == t.len()).then(|| t.reshaped(shape))
            }
            NodeKind::Apply(..) | NodeKind::Input(_) => None,
        }
    }

    /// The single number that a value is.
    pub fn number(&self, v: Value) -> Option<f64> {
        let NodeKind::Const(c) = self.node(v.node).kind else { return None };
        let t = self.consts.get(c);
        // An integer that no float equals is no number that patterns compute with.
        (t.len() == 1).then(|| t.get_f64(0)).filter(|&v| t.dtype().is_exact(v))
    }

    /// The number that all elements of a value are, if views of a constant show it.
    pub fn everywhere(&self, v: Value) -> Option<f64> {
        let node = self.node(v.node);
        match &node.kind {
            NodeKind::Const(c) => {
                let t = self.consts.get(*c);
                t.splat()?;
                Some(t.get_f64(0)).filter(|&v| t.dtype().is_exact(v))
            }
            NodeKind::Apply(call, _) if self.library.call(*call).class == OpClass::View => {
                self.everywhere(*node.args.first()?)
            }
            NodeKind::Apply(..) | NodeKind::Input(_) => None,
        }
    }

    /// Adds a constant.
    pub fn add_const(&mut self, t: Tensor) -> Value {
        let ty = Type::known(t.dtype(), t.shape());
        let id = self.consts.intern(t);
        self.push(NodeKind::Const(id), vec![], vec![ty], "", None)
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a node that is never taken for an equal one: it has one reader.
    pub fn add_own(
        &mut self,
        kind: NodeKind,
        args: Vec<Value>,
        types: Vec<Type>,
        origin: &str,
    ) -> Value {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node { kind, args, types, origin: origin.to_string() });
        self.source.push(None);
        self.consumers.push(Vec::new());
        Value { node: id, output: 0 }
    }

    /// A node and the program's node behind it.
    pub fn take(&self, id: NodeId) -> (Node, Option<NodeId>) {
        (self.node(id).clone(), self.source(id))
    }

    /// Puts a node in the place of another; [`Graph::recount`] must follow.
    pub fn put(&mut self, id: NodeId, (node, source): (Node, Option<NodeId>)) {
        self.nodes[id.0 as usize] = node;
        self.source[id.0 as usize] = source;
    }

    /// Finds readers anew after nodes were replaced.
    pub fn recount(&mut self) {
        self.index.clear();
        self.consumers.iter_mut().for_each(Vec::clear);
        self.computed.clear();
        self.count();
    }

    fn push(
        &mut self,
        kind: NodeKind,
        args: Vec<Value>,
        types: Vec<Type>,
        origin: &str,
        source: Option<NodeId>,
    ) -> Value {
        let key = (kind.clone(), args.clone());
        if let Some(&id) = self.index.get(&key) {
            return Value { node: id, output: 0 };
        }
        let v = self.add_own(kind, args, types, origin);
        self.source[v.node.0 as usize] = source;
        self.index.insert(key, v.node);
        v
    }

    fn place(
        &mut self,
        call: CallId,
        attrs: &[Attr],
        args: Vec<Value>,
        node: &Node,
        id: NodeId,
    ) -> Value {
        let call_is = |c: Option<CallId>| Some(call) == c;
        match (args.as_slice(), attrs) {
            ([x], [Attr::Ints(shape)]) if call_is(self.structural.reshape) => {
                self.reshape(*x, shape, &node.origin, Some(id))
            }
            ([x], [map, Attr::Ints(shape)]) if call_is(self.structural.broadcast) => {
                if let (Some(t), Some(filled)) =
                    (self.constant(*x), Type::new(self.ty(*x).dtype, shape.clone()).known_shape())
                    && t.len() == 1
                    && filled
                        .iter()
                        .try_fold(1usize, |n, &d| n.checked_mul(d))
                        .is_some_and(|n| n <= MAX_FILLED)
                {
                    let bytes = t.bytes().repeat(filled.iter().product());
                    if let Ok(wide) = Tensor::new(t.dtype(), filled, bytes.into()) {
                        return self.add_const(wide);
                    }
                }
                let at = map.as_i64s().unwrap_or_default();
                let x = self.align(*x, &at, shape.len(), &node.origin);
                let kind = NodeKind::Apply(call, attrs.to_vec());
                self.push(kind, vec![x], node.types.clone(), &node.origin, Some(id))
            }
            _ => {
                let kind = NodeKind::Apply(call, attrs.to_vec());
                self.push(kind, args, node.types.clone(), &node.origin, Some(id))
            }
        }
    }

    fn reshape(
        &mut self,
        x: Value,
        shape: &[Extent],
        origin: &str,
        source: Option<NodeId>,
    ) -> Value {
        let mut x = x;
        if let NodeKind::Apply(call, _) = &self.node(x.node).kind
            && Some(*call) == self.structural.reshape
        {
            let whole = self.node(x.node).args[0];
            // Two that only move axes of one element say what one would have to compute.
            if is_plain(&self.ty(whole).shape, shape) || !is_plain(&self.ty(x).shape, shape) {
                x = whole;
            }
        }
        let (Some(call), false) = (self.structural.reshape, self.ty(x).shape == shape) else {
            return x;
        };
        let ty = Type::new(self.ty(x).dtype, shape.to_vec());
        let kind = NodeKind::Apply(call, vec![Attr::Ints(shape.to_vec())]);
        self.push(kind, vec![x], vec![ty], origin, source)
    }

    /// The operands of an operator that broadcasts, without the broadcasts that it does itself.
    fn relax(
        &mut self,
        program: &Program,
        call: CallId,
        node: &Node,
        new: &[Value],
        args: Vec<Value>,
    ) -> Vec<Value> {
        let Some(trailing) = trailing_axes(self.library.call(call)) else { return args };
        let whole = self.lead(&args, &trailing);
        let mut out = args.clone();
        // Of each operand the axes that were stretched, counted from the end.
        let mut free: Vec<Vec<usize>> = vec![vec![]; args.len()];
        for (i, &v) in node.args.iter().enumerate() {
            // With what it stretches the operator does more by itself, if the shapes tell the result.
            for stretched in [true, false] {
                let Some((x, map)) = self.spread(program, v, trailing[i], stretched) else {
                    continue;
                };
                let (own, shape) = (&program.ty(x).shape, &program.ty(v).shape);
                let differs = |(i, &m): (usize, &i64)| own[i] != shape[m as usize];
                let open = map.iter().enumerate().filter(|p| differs(*p));
                free[i] = open.map(|(_, &m)| shape.len() - m as usize).collect();
                let rank = shape.len();
                out[i] = self.align_for(moved(new, x), &map, rank, trailing[i], &node.origin);
                if self.yields(&out, &trailing, &free, &whole) {
                    break;
                }
            }
        }
        // Together the operands must still have every axis of the result.
        for i in 0..out.len() {
            if self.yields(&out, &trailing, &free, &whole) {
                break;
            }
            out[i] = args[i];
            free[i].clear();
        }
        for i in 0..out.len() {
            let Some(trimmed) = self.trimmed(out[i], trailing[i], &node.origin) else { continue };
            let long = out.clone();
            out[i] = trimmed;
            if self.yields(&out, &trailing, &free, &whole) {
                continue;
            }
            // A weight leaves the axes that are only its own to the operand that is computed.
            for j in (0..out.len()).filter(|&j| j != i && trailing[j] > 0) {
                let full = program.ty(node.args[j]).shape.clone();
                let same = full.len() >= self.ty(out[j]).rank() && self.is_padded(out[j], &full);
                if same && self.constant(out[j]).is_none() {
                    out[j] = self.reshape(out[j], &full, &node.origin, None);
                }
            }
            if !self.yields(&out, &trailing, &free, &whole) {
                out = long;
            }
        }
        out
    }

    /// True if operands have the leading axes of a result together. Those that are `free` have one element or as many as the result.
    fn yields(
        &self,
        args: &[Value],
        trailing: &[usize],
        free: &[Vec<usize>],
        whole: &Option<Vec<Extent>>,
    ) -> bool {
        let Some(whole) = whole else { return self.lead(args, trailing).is_none() };
        let own = |i: usize| {
            let shape = &self.ty(args[i]).shape;
            Some(shape[..shape.len().checked_sub(trailing[i])?].to_vec())
        };
        let Some(shapes) = (0..args.len()).map(own).collect::<Option<Vec<_>>>() else {
            return false;
        };
        let others = shapes.iter().zip(trailing.iter().zip(free)).map(|(shape, (t, free))| {
            let bare = |(i, e): (usize, &Extent)| match free.contains(&(shape.len() + t - i)) {
                true => Extent::from(1),
                false => e.clone(),
            };
            shape.iter().enumerate().map(bare).collect::<Vec<_>>()
        });
        let found = [joined(shapes.iter().cloned()), joined(others)];
        let has = |found: &Option<Vec<Extent>>, i: usize| {
            let same = |f: &Vec<Extent>| f.len() == whole.len() && f[i] == whole[i];
            found.as_ref().is_some_and(same)
        };
        let long =
            |found: &Option<Vec<Extent>>| found.as_ref().is_some_and(|f| f.len() == whole.len());
        found.iter().any(long) && (0..whole.len()).all(|i| found.iter().any(|f| has(f, i)))
    }

    /// What a value is broadcast from (and perhaps stretched from before), with the axes of the value that its axes are; `None` of one
    /// that is not broadcast, or along its last `trailing` axes.
    fn spread(
        &self,
        program: &Program,
        v: Value,
        trailing: usize,
        stretched: bool,
    ) -> Option<(Value, Vec<i64>)> {
        let of = |v: Value, op: Option<CallId>| match &program.node(v.node).kind {
            NodeKind::Apply(c, attrs) if Some(*c) == op => {
                Some((program.node(v.node).args[0], attrs))
            }
            _ => None,
        };
        let shape = &program.ty(v).shape;
        let mut found = of(v, self.structural.broadcast)
            .and_then(|(x, attrs)| Some((x, attrs.first().and_then(Attr::as_i64s)?)));
        if stretched {
            let (from, map) = found.unwrap_or((v, (0..shape.len() as i64).collect()));
            let (x, _) = of(from, self.structural.stretch)?;
            found = Some((x, map));
        }
        let (x, map) = found?;
        // The trailing axes do not broadcast: all of them must be the operand's own.
        let lies = |axis: usize| map.iter().position(|&m| m == axis as i64);
        let own = |axis: usize| {
            shape[axis].is(1) || lies(axis).is_some_and(|i| program.ty(x).shape[i] == shape[axis])
        };
        (shape.len() - trailing.min(shape.len())..shape.len()).all(own).then_some((x, map))
    }

    /// True if a shape is the value's own with unit axes in front.
    fn is_padded(&self, v: Value, shape: &[Extent]) -> bool {
        let own = &self.ty(v).shape;
        let (units, rest) = shape.split_at(shape.len() - own.len());
        rest == own && units.iter().all(|e| e.is(1))
    }

    /// A constant or a reshaped value without the unit axes in front that NumPy's rule adds by itself: runtimes pack
    /// the matrix, and know the bias, that has no more axes than it needs. A channel's unit axes stay on both sides.
    fn trimmed(&mut self, v: Value, trailing: usize, origin: &str) -> Option<Value> {
        let shape = &self.ty(v).shape;
        let spare = shape.len().checked_sub(trailing)?;
        let units = shape[..spare].iter().take_while(|e| e.is(1)).count();
        let short = shape[units..].to_vec();
        let is_constant = self.constant(v).is_some();
        let is_reshape = matches!(&self.node(v.node).kind,
            NodeKind::Apply(call, _) if Some(*call) == self.structural.reshape);
        let is_channel = trailing == 0 && short.iter().any(|e| e.is(1));
        let may = units > 0 && !is_channel && (is_constant || is_reshape);
        may.then(|| self.reshape(v, &short, origin, None))
    }

    /// NumPy's common shape of the leading axes; `None` where there is none.
    pub fn lead(&self, args: &[Value], trailing: &[usize]) -> Option<Vec<Extent>> {
        let own = |(v, t): (&Value, &usize)| {
            let shape = &self.ty(*v).shape;
            Some(shape[..shape.len().checked_sub(*t)?].to_vec())
        };
        let shapes: Option<Vec<_>> = args.iter().zip(trailing).map(own).collect();
        joined(shapes?.into_iter())
    }

    /// `x`, whose axis `i` belongs at `map[i]` of `rank`, in a shape that NumPy aligns so.
    fn align(&mut self, x: Value, map: &[i64], rank: usize, origin: &str) -> Value {
        self.align_for(x, map, rank, 0, origin)
    }

    fn align_for(
        &mut self,
        x: Value,
        map: &[i64],
        rank: usize,
        trailing: usize,
        origin: &str,
    ) -> Value {
        let fits = |shape: &[Extent]| {
            let Some(missing) = rank.checked_sub(shape.len()) else { return false };
            let axes = shape.iter().enumerate().filter(|(_, d)| !d.is(1));
            shape.len() >= trailing
                && axes.map(|(i, _)| (i + missing) as i64).eq(map.iter().copied())
        };
        if let NodeKind::Apply(call, _) = &self.node(x.node).kind
            && Some(*call) == self.structural.reshape
        {
            let inner = self.node(x.node).args[0];
            if fits(&self.ty(inner).shape) {
                return inner;
            }
        }
        let own = self.ty(x).shape.clone();
        if fits(&own) {
            return x;
        }
        let mut shape = vec![Extent::from(1); rank];
        for (d, &m) in own.iter().zip(map) {
            if let Some(slot) = usize::try_from(m).ok().and_then(|m| shape.get_mut(m)) {
                *slot = d.clone();
            }
        }
        self.reshape(x, &shape, origin, None)
    }

    /// Counts the readers of what an output needs.
    fn count(&mut self) {
        let mut live = vec![false; self.nodes.len()];
        for (_, v) in &self.outputs {
            live[v.node.0 as usize] = true;
        }
        for i in (0..self.nodes.len()).rev() {
            if !live[i] {
                continue;
            }
            for k in self.kernels(NodeId(i as u32)) {
                self.computed.entry(*k).or_default().push(NodeId(i as u32));
            }
            for a in &self.nodes[i].args {
                live[a.node.0 as usize] = true;
                let readers = &mut self.consumers[a.node.0 as usize];
                if readers.last() != Some(&NodeId(i as u32)) {
                    readers.push(NodeId(i as u32));
                }
            }
        }
    }
}

fn moved(new: &[Value], v: Value) -> Value {
    let to = new[v.node.0 as usize];
    Value { node: to.node, output: to.output + v.output }
}

/// NumPy's common shape of several.
fn joined(mut shapes: impl Iterator<Item = Vec<Extent>>) -> Option<Vec<Extent>> {
    shapes.try_fold(vec![], |all, own| common_shape(&all, &own).ok())
}

/// True if no open extent of a new shape has to be computed: none moved, or what is left of the elements is the only one.
fn is_plain(from: &[Extent], to: &[Extent]) -> bool {
    match moved_extents(from, to).as_slice() {
        [] => true,
        [_] => to.iter().filter(|e| e.as_const().is_none()).count() == 1,
        _ => false,
    }
}
