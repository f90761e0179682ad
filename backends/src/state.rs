//! The states that one run passes to the next: tensors, or the valid part of growable memory.

use crate::BackendError;
use bytes::Bytes;
use mlc_dsl::ir::{DType, Tensor};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Memory with room, as an [`Executable`](crate::Executable) has it.
pub trait StateMemory: Any + Send + Sync {
    /// All of it.
    fn bytes(&self) -> &[u8];
}

/// A value between runs. A clone shares the elements until one of them is written.
#[derive(Clone)]
pub struct State {
    dtype: DType,
    shape: Vec<usize>,
    held: Held,
}

#[derive(Clone)]
enum Held {
    Tensor(Tensor),
    Roomy(Roomy),
}

/// Memory whose extent along one axis is larger than what is valid.
#[derive(Clone)]
pub struct Roomy {
    /// The elements, in row-major order.
    pub memory: Arc<dyn StateMemory>,
    /// The axis.
    pub axis: usize,
    /// The extent that the memory has there.
    pub extent: usize,
}

impl From<Tensor> for State {
    fn from(t: Tensor) -> State {
        State { dtype: t.dtype(), shape: t.shape().to_vec(), held: Held::Tensor(t) }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let room = self.room().map(|r| (r.axis, r.extent));
        f.debug_struct("State")
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .field("room", &room)
            .finish()
    }
}

impl State {
    /// What is valid of memory with room: an extent of `shape` for each axis.
    pub fn in_room(dtype: DType, shape: Vec<usize>, memory: Roomy) -> State {
        State { dtype, shape, held: Held::Roomy(memory) }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents of what is valid.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its memory, if that has room.
    pub fn room(&self) -> Option<&Roomy> {
        match &self.held {
            Held::Roomy(r) => Some(r),
            Held::Tensor(_) => None,
        }
    }

    /// The same, to be written.
    pub fn room_mut(&mut self) -> Option<&mut Roomy> {
        match &mut self.held {
            Held::Roomy(r) => Some(r),
            Held::Tensor(_) => None,
        }
    }

    /// Elements between the first ones of two lines, and of the valid part of a line; one line where nothing is between them.
    fn lines(&self) -> (usize, usize) {
        let len: usize = self.shape.iter().product();
        let Some(room) = self.room() else { return (len, len) };
        let inner: usize = self.shape[room.axis + 1..].iter().product();
        match self.shape[..room.axis].iter().product() {
            1 => (len, len),
            _ => (room.extent * inner, self.shape[room.axis] * inner),
        }
    }

    /// What is valid, line by line.
    fn valid(&self) -> impl Iterator<Item = &[u8]> {
        let size = self.dtype.size();
        let (pitch, run) = self.lines();
        let all = match &self.held {
            Held::Tensor(t) => &t.bytes()[..],
            Held::Roomy(r) => r.memory.bytes(),
        };
        let count = self.shape.iter().product::<usize>().checked_div(run).unwrap_or(0);
        (0..count).map(move |i| &all[i * pitch * size..][..run * size])
    }

    /// Writes what is valid to memory that has other room along `axis`.
    ///
    /// # Panics
    /// If the memory is too small.
    pub fn copy_to(&self, axis: usize, extent: usize, to: &mut [u8]) {
        let dense = self.tensor();
        let run = self.shape[axis..].iter().product::<usize>() * self.dtype.size();
        let pitch = extent * self.shape[axis + 1..].iter().product::<usize>() * self.dtype.size();
        if run > 0 {
            let lines = dense.bytes().chunks_exact(run).zip(to.chunks_mut(pitch));
            lines.for_each(|(from, to)| to[..run].copy_from_slice(from));
        }
    }

    /// The elements in row-major order: where they lie if nothing is between them, else a copy.
    pub fn tensor(&self) -> Tensor {
        let room = match &self.held {
            Held::Tensor(t) => return t.clone(),
            Held::Roomy(r) => r,
        };
        let (pitch, run) = self.lines();
        let bytes = match pitch == run {
            true => Bytes::from_owner(Shared(room.memory.clone())).slice(..run * self.dtype.size()),
            false => {
                let mut dense =
                    Vec::with_capacity(self.shape.iter().product::<usize>() * self.dtype.size());
                self.valid().for_each(|line| dense.extend_from_slice(line));
                dense.into()
            }
        };
        let made = Tensor::new(self.dtype, self.shape.clone(), bytes);
        made.expect("as many bytes as the shape says")
    }
}

/// Memory that tensors share.
struct Shared(Arc<dyn StateMemory>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// An output that is an input of the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Feed {
    /// The number of the output.
    pub output: usize,
    /// The number of the input.
    pub input: usize,
    /// The axis in which it grows from run to run, if it does.
    pub axis: Option<usize>,
    /// What it may have along that axis.
    pub limit: Option<usize>,
}

/// What a run reads, and where its outputs go.
pub struct Step<'a, 'm> {
    /// The inputs in the program's order. Of those that are fed back the memory may become another one; what is valid stays so.
    pub inputs: &'a mut [State],
    /// What of the outputs is an input of the next run.
    pub feeds: &'a [Feed],
    /// Memory for outputs, in the program's order: as many bytes as the output has.
    pub memory: Vec<Option<&'m mut [u8]>>,
}

/// Puts outputs where a caller has memory for them.
///
/// # Errors
/// An output has another number of bytes.
pub fn put(outputs: &[State], memory: Vec<Option<&mut [u8]>>) -> Result<(), BackendError> {
    for (i, (output, to)) in outputs.iter().zip(memory).enumerate() {
        let Some(to) = to else { continue };
        let from = output.tensor();
        if from.bytes().len() != to.len() {
            let reason = format!("it has {} bytes, {} given", from.bytes().len(), to.len());
            return Err(BackendError::Operator { op: format!("output {i}"), reason });
        }
        to.copy_from_slice(from.bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain(Vec<u8>);

    impl StateMemory for Plain {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }

    #[test]
    fn what_is_valid_is_copied_from_room_to_room() {
        let t = Tensor::new(DType::U8, vec![2, 2, 3], (0..12).collect::<Vec<u8>>().into());
        let state = State::from(t.expect("twelve"));
        for axis in 0..3 {
            let extent = state.shape()[axis] + 2;
            let mut whole = state.shape().to_vec();
            whole[axis] = extent;
            let mut memory = vec![99; whole.iter().product()];
            state.copy_to(axis, extent, &mut memory);
            let memory: Arc<dyn StateMemory> = Arc::new(Plain(memory));
            let roomy = Roomy { memory: memory.clone(), axis, extent };
            let roomy = State::in_room(DType::U8, state.shape().to_vec(), roomy);
            assert_eq!(roomy.tensor(), state.tensor(), "{axis}");
            let shared = roomy.tensor().bytes().as_ptr() == memory.bytes().as_ptr();
            assert_eq!(shared, axis == 0, "a copy only where something lies between the lines");
        }
    }
}
