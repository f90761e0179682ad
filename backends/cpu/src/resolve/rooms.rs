//! Outputs appended to an input's memory (its spare room): their kernel writes only what is new.

use super::Resolver;
use super::kernel_cache::{BufferId, Location, Pass, Storage};
use crate::data_movement::Append;
use crate::graph::{Group, broken};
use crate::registry::is_layout_invariant;
use mlc_backends::BackendError;
use mlc_dsl::ir::{NodeId, Value};
use mlc_dsl::layout::strided_views::{self, Viewed};
use mlc_dsl::layout::{Layout, PerAxis};
use mlc_dsl::plan::Room;
use std::sync::Arc;

impl Resolver<'_> {
    /// The number of the room that an input has.
    pub(super) fn room(&self, input: usize) -> Option<usize> {
        self.plan.rooms.iter().position(|r| r.input == input)
    }

    /// Bytes of the memory of an input with room.
    pub(super) fn bytes_of(&self, room: &Room) -> usize {
        let (_, ty) = &self.cx.graph.program.inputs[room.input];
        let shape = self.symbols.shape(ty).map(|(_, shape)| room.whole(&shape));
        let elements = shape.and_then(|s| s.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
        elements.map_or(usize::MAX, |n| n.saturating_mul(ty.dtype.size()))
    }

    /// Appends the parts of a concatenation but the first, which is there.
    pub(super) fn append(&mut self, room: usize, group: &Group) -> Result<(), BackendError> {
        let unlike = || broken("an output is not its input and more");
        let anchor = group.anchor.ok_or_else(unlike)?;
        let axis = self.attrs(anchor).first().and_then(|a| a.as_i64()).ok_or_else(unlike)? as usize;
        let value = Value { node: anchor, output: 0 };
        let mut parts = Vec::with_capacity(group.arguments.len());
        for a in &group.arguments {
            parts.push(self.place(*a)?.clone());
        }
        let first = parts.remove(0);
        // What is empty may be a view of the same memory.
        parts.retain(|part| !part.layout.is_empty());
        let at = BufferId::of_room(room);
        let mut shape = first.layout.shape.clone();
        let mut to = Vec::with_capacity(parts.len());
        for part in &parts {
            let mut start = vec![0; shape.len()];
            start[axis] = shape[axis] as i64;
            shape[axis] += part.layout.shape[axis];
            to.push((start, part.layout.shape.clone()));
        }
        let grown = Layout { shape, ..first.layout };
        let place = |(start, size): (Vec<i64>, PerAxis<usize>)| {
            let size: Vec<i64> = size.into_iter().map(|n| n as i64).collect();
            grown.slice(&start, &size, &vec![1; start.len()])
        };
        let to: Option<Vec<Layout>> = to.into_iter().map(place).collect();
        let dtype = first.dtype;
        let kernel = Arc::new(Append { dtype, to: to.ok_or_else(unlike)? });
        self.push_append(kernel, parts, at, anchor);
        let storage = Storage::Buffer(at);
        self.places.insert(value, Location { dtype, layout: grown, storage });
        Ok(())
    }

    /// Shows what has gaps for the sake of room as it lies in a run whose inputs are dense, where results may depend on that.
    pub(super) fn drop_room_gaps(
        &mut self,
        op: &str,
        args: &[Value],
        places: &mut [Location],
    ) -> Result<(), BackendError> {
        if is_layout_invariant(op) {
            return Ok(());
        }
        for (v, p) in args.iter().zip(places) {
            let in_room = matches!(p.storage, Storage::Buffer(t) if t.room().is_some());
            if in_room {
                *p = self.without_gaps(*v, p)?;
            }
        }
        Ok(())
    }

    /// A value in the memory of an input: the same views of a dense copy of what they are views of.
    fn without_gaps(&mut self, mut v: Value, seen: &Location) -> Result<Location, BackendError> {
        let mut views = vec![];
        let program = &self.cx.graph.program;
        while let Some(own) = strided_views::of(program, self.cx.library, v.node) {
            views.push((own, v.node));
            v = program.node(v.node).args[0];
        }
        let root = self.place(v)?.clone();
        if root.storage != seen.storage || root.layout.is_dense() {
            return Ok(seen.clone());
        }
        self.draft.is_unique = true;
        let dense = self.copied(&root, None, v.node)?;
        let mut layout = dense.layout.clone();
        for (view, node) in views.into_iter().rev() {
            let shape = self.symbols.shape(&program.node(node).types[0]).map(|(_, shape)| shape);
            let shape = shape.ok_or_else(|| broken("a view without a shape"))?;
            layout = match strided_views::apply(view, &layout, &self.attrs(node), &shape) {
                Viewed::Layout(layout) => layout,
                Viewed::NeedsCopy | Viewed::Declined => return self.copied(seen, None, node),
            };
        }
        Ok(Location { layout, ..dense })
    }

    fn push_append(
        &mut self,
        kernel: Arc<Append>,
        parts: Vec<Location>,
        at: BufferId,
        anchor: NodeId,
    ) {
        let own = parts.len();
        let inputs = parts.into_iter().map(|p| self.aligned(p)).collect();
        let (node, outputs) = (anchor, vec![at]);
        self.draft.passes.push(Pass { kernel, inputs, own, outputs, epilogue: None, node });
    }
}
