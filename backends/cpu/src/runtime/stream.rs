//! Steps of stateful streams: an output that extends an input is appended in the input's memory, any other state is moved.

use super::buffer::{Buffer, Lease, aligned};
use super::results::RunIo;
use super::{CompiledPlan, Extents, all_aligned, needs_data};
use crate::resolve::check_memory;
use bytes::Bytes;
use itertools::Itertools;
use mlc_backends::BackendError;
use mlc_backends::state::{Feed, Roomy, State, StateMemory, Step, put};
use mlc_backends::symbols::SymbolBindings;
use mlc_dsl::ir::{DType, Extent, NodeKind, Tensor, Value};
use mlc_dsl::layout::strided_views::{self, View, is_concatenation};
use mlc_dsl::plan::{Room, growing_axis};
use std::any::Any;
use std::sync::Arc;

/// Minimum extent of growable memory.
const LEAST: usize = 16;

/// An extent that leaves nothing empty and says how elements lie.
const SMALL: i64 = 3;

impl StateMemory for Buffer {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }
}

impl CompiledPlan {
    /// One run of a stream.
    pub(crate) fn run_step(&self, step: Step<'_, '_>) -> Result<Vec<State>, BackendError> {
        let Step { inputs, feeds, memory } = step;
        let found = inputs.iter().map(|s| (s.dtype(), s.shape()));
        let symbols = SymbolBindings::of_shapes(&self.graph.program.inputs, found)?;
        let rooms = self.rooms(&symbols, inputs, feeds);
        let extents = Extents { symbols, rooms };
        let ready = match self.ready(&extents) {
            Err(e) if needs_data(&e) => {
                let inputs: Vec<Tensor> = inputs.iter().map(|s| aligned(s.tensor())).collect();
                let outputs = self.run_on_data(&extents.symbols, &inputs)?;
                let outputs: Vec<State> = outputs.into_iter().map(State::from).collect();
                put(&outputs, memory)?;
                return Ok(outputs);
            }
            other => other?,
        };
        let rooms = &ready.resolved.rooms;
        self.note_apart(&extents.rooms, rooms);
        let roomy = |i: usize| rooms.iter().any(|r| r.input == i);
        let tensor = |(i, s): (usize, &State)| match roomy(i) {
            true => nothing(s.dtype()),
            false => s.tensor(),
        };
        let tensors: Vec<Tensor> = inputs.iter().enumerate().map(tensor).collect();
        let tensors = all_aligned(&tensors);
        self.check_room_memory(rooms, inputs)?;
        let taken = rooms.iter().map(|r| taken(&mut inputs[r.input], r)).collect();
        let mut io = RunIo { rooms: taken, outputs: memory, ..RunIo::of(&tensors) };
        let done = self.run_ready(&ready, &mut io);
        for (r, lease) in rooms.iter().zip(io.rooms) {
            give_back(&mut inputs[r.input], lease.into_buffer());
        }
        let mut outputs: Vec<State> = done?.into_iter().map(State::from).collect();
        for r in rooms {
            let shape = ready.resolved.outputs[r.output].layout.shape.to_vec();
            if let Some(memory) = inputs[r.input].room() {
                outputs[r.output] =
                    State::in_room(outputs[r.output].dtype(), shape, memory.clone());
            }
        }
        put(&outputs, io.outputs)?;
        Ok(outputs)
    }

    /// Checks that memory for new states is available.
    fn check_room_memory(&self, rooms: &[Room], inputs: &[State]) -> Result<(), BackendError> {
        let new = rooms.iter().filter(|r| !has_room(&inputs[r.input], r));
        let bytes = new.map(|r| bytes_of(&inputs[r.input], r)).fold(0, u64::saturating_add);
        check_memory(bytes, self.memory).map_err(|limit| BackendError::Memory {
            op: "states".into(),
            what: "inputs that are fed back, with room for more,".into(),
            bytes,
            limit,
        })
    }

    /// The room that each input has, or is to have, that an output may lie behind.
    fn rooms(&self, symbols: &SymbolBindings, inputs: &[State], feeds: &[Feed]) -> Vec<Room> {
        let apart = self.apart.lock().unwrap_or_else(|e| e.into_inner());
        let room = |f: &Feed| {
            let (input, output) = (f.input, f.output);
            let axis = f.axis?;
            let state = inputs.get(input).filter(|_| !apart.contains(&(output, input)))?;
            let ty = self.plan.program.ty(self.plan.program.outputs[output].1);
            let next = usize::try_from(symbols.eval(&ty.shape[axis])?).ok()?;
            let now = state.shape()[axis];
            // Of one element along an axis views do not say how the next ones lie.
            if state.shape().contains(&0) || now < 2 || next <= now {
                return None;
            }
            let known = state.room().filter(|r| r.axis == axis && r.extent > next);
            let extent = match known {
                Some(room) => room.extent,
                None => grown(next, f.limit)?,
            };
            Some(Room { input, output, axis, extent })
        };
        feeds.iter().filter_map(room).collect()
    }

    /// A room for other extents.
    pub(crate) fn room_above(&self, room: &Room, symbols: &SymbolBindings) -> Room {
        let ty = self.plan.program.ty(self.plan.program.outputs[room.output].1);
        let next = symbols.eval(&ty.shape[room.axis]).and_then(|n| usize::try_from(n).ok());
        let extent = next.map_or(room.extent, |n| room.extent.max(n.saturating_add(1)));
        Room { extent, ..*room }
    }

    /// Remembers outputs that do not lie in the memory of their input.
    fn note_apart(&self, tried: &[Room], rooms: &[Room]) {
        if tried.len() > rooms.len() {
            let mut apart = self.apart.lock().unwrap_or_else(|e| e.into_inner());
            let failed = tried.iter().filter(|r| !rooms.contains(r));
            apart.extend(failed.map(|r| (r.output, r.input)));
        }
    }

    /// The outputs that are an input and more after it: those that lie in its memory where symbols are small numbers.
    pub(crate) fn appended_outputs(&self) -> Vec<(usize, usize)> {
        let program = &self.plan.program;
        let extents = self.small_extents();
        let small = |s: &str| extents.get(s);
        let room = |output: usize| {
            let input = self.begins_with(program.outputs[output].1).0?;
            let axis = growing_axis(program, output, input)?;
            let next = program.ty(program.outputs[output].1).shape[axis].eval(&small)?;
            let extent = usize::try_from(next).ok()?.checked_add(1)?;
            Some(Room { input, output, axis, extent })
        };
        let mut left: Vec<Room> = (0..program.outputs.len()).filter_map(room).collect();
        let mut out = vec![];
        while !left.is_empty() {
            // An input has one room at a time.
            let is_first = |(i, r): &(usize, &Room)| left[..*i].iter().all(|o| o.input != r.input);
            let tried: Vec<Room> =
                left.iter().enumerate().filter(is_first).map(|(_, r)| *r).collect();
            let lies = self.plan.buffers_in(&self.library, &small, &tried);
            out.extend(lies.rooms.iter().map(|r| (r.output, r.input)));
            left.retain(|r| !tried.contains(r));
        }
        out.sort_unstable();
        out
    }

    /// A small extent for every symbol, such that what is cut from an input before more is put behind it is all of it, where that can be.
    fn small_extents(&self) -> SymbolBindings {
        let program = &self.plan.program;
        let all = program.outputs.iter().flat_map(|(_, v)| self.begins_with(*v).1);
        let missing: Vec<Extent> = all.collect();
        let mut out = SymbolBindings::default();
        let declared = program.inputs.iter().flat_map(|(_, ty)| &ty.shape);
        for symbol in declared.flat_map(Extent::symbols).sorted().dedup() {
            missing.iter().for_each(|e| out.learn(e, 0));
            if out.get(&symbol).is_none() {
                out.learn(&Extent::sym(&symbol), SMALL);
            }
        }
        out
    }

    /// The input whose elements a value begins with, the first part of concatenations, through views; and how many elements slices of it leave
    /// out along each axis.
    fn begins_with(&self, mut v: Value) -> (Option<usize>, Vec<Extent>) {
        let program = &self.plan.program;
        let mut left_out = vec![];
        loop {
            let node = program.node(v.node);
            let NodeKind::Apply(call, _) = node.kind else { break };
            let is_passed = self.library.is_view(program, v.node)
                || is_concatenation(&self.library.call(call).name);
            let Some(&first) = node.args.first().filter(|_| is_passed) else { break };
            let (from, to) = (&program.ty(first).shape, &program.ty(v).shape);
            if strided_views::of(program, &self.library, v.node) == Some(View::Slice) {
                left_out.extend(from.iter().zip(to).filter(|(a, b)| a != b).map(|(a, b)| a - b));
            }
            v = first;
        }
        match program.node(v.node).kind {
            NodeKind::Input(k) => (Some(k as usize), left_out),
            NodeKind::Const(_) | NodeKind::Apply(..) => (None, vec![]),
        }
    }
}

/// Room for so many elements along an axis: a power of two that is larger, or as much as the limit asks for.
fn grown(next: usize, limit: Option<usize>) -> Option<usize> {
    let power = next.checked_add(1)?.checked_next_power_of_two()?.max(LEAST);
    let most = limit.map_or(usize::MAX, |n| n.saturating_add(1));
    Some(power.min(most).max(next + 1))
}

/// Stands for an input that lies in memory with room.
fn nothing(dtype: DType) -> Tensor {
    Tensor::new(dtype, vec![0], Bytes::new()).expect("no elements")
}

/// True of memory with just this room.
fn has_room(state: &State, room: &Room) -> bool {
    state.room().is_some_and(|r| (r.axis, r.extent) == (room.axis, room.extent))
}

/// Bytes of a state with this room.
fn bytes_of(state: &State, room: &Room) -> u64 {
    let whole = room.whole(state.shape());
    let size = state.dtype().size() as u64;
    whole.iter().fold(size, |n, &d| n.saturating_mul(d as u64))
}

/// The memory of an input with this room, which no one else reads: its own, or a copy in new memory.
fn taken(state: &mut State, room: &Room) -> Lease {
    if has_room(state, room)
        && let Some(buffer) = state.room_mut().and_then(own_buffer)
    {
        return Lease::of(std::mem::take(buffer));
    }
    let mut buffer = Buffer::new(bytes_of(state, room) as usize);
    state.copy_to(room.axis, room.extent, buffer.bytes_mut());
    let memory =
        Roomy { memory: Arc::new(Buffer::default()), axis: room.axis, extent: room.extent };
    *state = State::in_room(state.dtype(), state.shape().to_vec(), memory);
    Lease::of(buffer)
}

/// The buffer that no one else has.
fn own_buffer(room: &mut Roomy) -> Option<&mut Buffer> {
    let memory: &mut dyn Any = Arc::get_mut(&mut room.memory)?;
    memory.downcast_mut::<Buffer>()
}

/// Gives a state the memory that was taken of it.
fn give_back(state: &mut State, buffer: Buffer) {
    if let Some(own) = state.room_mut().and_then(own_buffer) {
        *own = buffer;
    }
}
