//! In-place append (KV caches): an output that extends an input lies in that input's memory, and a run writes only what it appends.
//!
//! Such an input has spare capacity along one axis. Valid elements are never overwritten, so it does not matter when the input is
//! read. The planner alone decides whether an output lies there.

use super::Kernel;
use super::memory::MemoryPlanner;
use crate::ir::{Attr, NodeId, NodeKind, Program, Value};
use crate::layout::strided_views::is_concatenation;
use crate::layout::{Layout, PerAxis, dense_strides};
use crate::library::Library;
use rustc_hash::FxHashSet;

/// An input whose memory has room, and the output that is to lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Room {
    /// The number of the input.
    pub input: usize,
    /// The number of the output.
    pub output: usize,
    /// The axis that grows.
    pub axis: usize,
    /// What the memory has along this axis; more than is ever valid.
    pub extent: usize,
}

impl Room {
    /// How valid elements of this shape lie.
    pub fn layout(&self, shape: &[usize]) -> Layout {
        Layout {
            shape: PerAxis::from_slice(shape),
            strides: dense_strides(&self.whole(shape)),
            offset: 0,
        }
    }

    /// The extents of the memory.
    pub fn whole(&self, shape: &[usize]) -> Vec<usize> {
        let mut whole = shape.to_vec();
        whole[self.axis] = self.extent;
        whole
    }
}

/// In the memory of which input with room a value lies, and how.
type AppendLayout = (Option<usize>, Option<Layout>);

/// The axis along which an output may be an input with more after it: the only one whose extents differ.
pub fn growing_axis(program: &Program, output: usize, input: usize) -> Option<usize> {
    let from = &program.inputs.get(input)?.1;
    let to = program.ty(program.outputs.get(output)?.1);
    if from.dtype != to.dtype || from.rank() != to.rank() {
        return None;
    }
    let mut differ = (0..from.rank()).filter(|&i| from.shape[i] != to.shape[i]);
    differ.next().filter(|_| differ.next().is_none())
}

/// Whether two layouts name the same places in the same order.
fn agree(a: &Layout, b: &Layout) -> bool {
    let strides = || a.strides.iter().zip(&b.strides).zip(&a.shape);
    a.shape == b.shape && a.offset == b.offset && strides().all(|((x, y), &d)| d == 1 || x == y)
}

/// What leads from an input to an output: concatenations of which it is the first part, and views.
pub(super) fn spine(program: &Program, library: &Library, room: &Room) -> FxHashSet<NodeId> {
    let mut out = FxHashSet::default();
    let mut v = program.outputs[room.output].1;
    while let NodeKind::Apply(call, _) = &program.node(v.node).kind
        && (library.is_view(program, v.node) || is_concatenation(&library.call(*call).name))
    {
        out.insert(v.node);
        v = program.node(v.node).args[0];
    }
    match program.node(v.node).kind == NodeKind::Input(room.input as u32) {
        true => out,
        false => FxHashSet::default(),
    }
}

impl MemoryPlanner<'_> {
    /// Where the result of a concatenation lies whose first part is all of an input with room: behind that part.
    pub(super) fn appended(
        &mut self,
        k: usize,
        kernel: &Kernel,
        part: &dyn Fn(&MemoryPlanner<'_>, Value) -> Option<AppendLayout>,
    ) -> Option<(Value, usize, Layout)> {
        let bare = kernel.prologue.is_empty() && kernel.epilogue.is_empty();
        let &anchor = kernel.anchors.last().filter(|_| bare && !self.rooms.is_empty())?;
        let NodeKind::Apply(call, attrs) = &self.program.node(anchor).kind else { return None };
        let axis = attrs.first().and_then(Attr::as_i64).and_then(|a| usize::try_from(a).ok())?;
        if !is_concatenation(&self.library.call(*call).name) {
            return None;
        }
        let parts = kernel.arguments(self.program);
        let (&first, others) = parts.split_first()?;
        let (Some(state), Some(seen)) = part(self, first)? else { return None };
        let apart = |v: &Value| {
            let at = part(self, *v);
            at.is_some_and(|(s, lies)| s != Some(state) || lies.is_some_and(|l| l.is_empty()))
        };
        if !self.spines[state].contains(&anchor) || !others.iter().all(apart) {
            return None;
        }
        let room = self.rooms[state];
        let mut valid = self.dense(&self.program.inputs[room.input].1)?.shape;
        if let Some(end) = self.ends[state] {
            valid[room.axis] = end;
        }
        let whole = room.layout(&valid);
        let result = self.dense(self.program.ty(Value { node: anchor, output: 0 }))?.shape;
        // All of it, each element once.
        let all = seen.offset == 0
            && seen.len() == whole.len()
            && seen.strides.iter().zip(&seen.shape).all(|(&s, &d)| d == 1 || s > 0);
        let grows = seen.strides.get(axis) == Some(&whole.strides[room.axis])
            && seen.shape[axis] == valid[room.axis]
            && result[axis] < room.extent;
        if !all || !grows || seen.is_empty() {
            return None;
        }
        self.ends[state] = Some(result[axis]);
        self.out.appends.push((k, state));
        let layout = Layout { shape: result, ..seen };
        Some((Value { node: anchor, output: 0 }, state, layout))
    }

    /// True if a value is to lie in the room of an input, and does so with this layout.
    pub(super) fn is_in_room(&self, v: Value, state: Option<usize>, layout: &Layout) -> bool {
        let Some(room) = state.map(|s| self.rooms[s]) else { return false };
        let (_, output) = &self.program.outputs[room.output];
        let shape = self.dense(self.program.ty(v)).map(|l| l.shape);
        *output == v && shape.is_some_and(|shape| agree(layout, &room.layout(&shape)))
    }

    /// The rooms whose output does not lie there.
    pub(super) fn misfits(&self) -> Vec<usize> {
        let lies = |&s: &usize| {
            let v = self.program.outputs[self.rooms[s].output].1;
            let at = self.lies.get(&v);
            let known = at.and_then(|at| Some((at.room, at.layout.as_ref()?)));
            self.ends[s].is_some()
                && known.is_some_and(|(room, l)| self.is_in_room(v, room.filter(|r| *r == s), l))
        };
        (0..self.rooms.len()).filter(|s| !lies(s)).collect()
    }
}
