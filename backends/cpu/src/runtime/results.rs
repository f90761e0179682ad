//! The memory of results: buffers that leave the workspace, memory of the caller, or the spare room behind an input.

use super::RunnablePlan;
use super::buffer::Lease;
use super::kernel::{Context, Kernel, TensorView};
use super::threads::Threads;
use crate::graph::broken;
use crate::pointwise::fused::Copy;
use crate::resolve::{Location, Storage};
use bytes::Bytes;
use mlc_backends::BackendError;
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::layout::Layout;

/// The memory of a result.
pub enum ResultMemory<'m> {
    /// The plan's.
    Lease(Lease),
    /// The caller's.
    Lent(&'m mut [u8]),
}

impl ResultMemory<'_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            ResultMemory::Lease(lease) => lease.bytes(),
            ResultMemory::Lent(bytes) => bytes,
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            ResultMemory::Lease(lease) => lease.bytes_mut(),
            ResultMemory::Lent(bytes) => bytes,
        }
    }
}

/// What a run reads and writes besides its own memory.
pub struct RunIo<'a, 'm> {
    pub inputs: &'a [Tensor],
    /// The memory of inputs with room, in the plan's order.
    pub rooms: Vec<Lease>,
    /// Memory for outputs; none for those that have been written there.
    pub outputs: Vec<Option<&'m mut [u8]>>,
    /// What of the outputs lies in the memory of an input.
    pub watch: Option<&'a mut Vec<f64>>,
}

impl<'a> RunIo<'a, '_> {
    /// Inputs, and nothing else.
    pub fn of(inputs: &'a [Tensor]) -> Self {
        RunIo { inputs, rooms: vec![], outputs: vec![], watch: None }
    }
}

/// The tensor of a dense value that is a constant or an input.
pub fn leaf_tensor(place: &Location, inputs: &[Tensor]) -> Option<Tensor> {
    let t = match &place.storage {
        Storage::Input(i) => &inputs[*i],
        Storage::Const(t) => t,
        Storage::Buffer(_) | Storage::Unread => return None,
    };
    Some(shaped(t, &place.layout))
}

/// The part of `t` that a dense layout covers.
fn shaped(t: &Tensor, layout: &Layout) -> Tensor {
    match layout.len() == t.len() {
        true => t.reshaped(layout.shape.to_vec()),
        false => part(t.bytes(), t.dtype(), layout),
    }
}

/// The elements of `bytes` that a dense layout covers.
fn part(bytes: &Bytes, dtype: DType, layout: &Layout) -> Tensor {
    let (n, size) = (layout.len(), dtype.size());
    let from = if n == 0 { 0 } else { layout.offset * size };
    let bytes = bytes.slice(from..from + n * size);
    // The layout was checked against the storage when the program was resolved.
    Tensor::new(dtype, layout.shape.to_vec(), bytes).expect("as many bytes as the layout needs")
}

/// Stands for an output that lies elsewhere.
fn absent(dtype: DType) -> Tensor {
    part(&Bytes::new(), dtype, &Layout::dense(&[0]))
}

impl RunnablePlan {
    /// The memory of the caller becomes that of the results that can be written there.
    pub(crate) fn lend_outputs<'m>(
        &self,
        lent: &mut [Option<&'m mut [u8]>],
        results: &mut [Option<ResultMemory<'m>>],
    ) {
        let outputs = &self.resolved.outputs;
        for (place, lent) in outputs.iter().zip(lent) {
            let Storage::Buffer(id) = place.storage else { continue };
            let t = self.resolved.buffer(id);
            let alone = outputs.iter().filter(|o| o.storage == place.storage).count() == 1;
            let own = id.room().is_none() && self.parts[t].is_none() && alone;
            let fits = lent.as_ref().is_some_and(|m| {
                let at = m.as_ptr() as usize;
                m.len() == self.resolved.buffers[t].bytes && at.is_multiple_of(place.dtype.size())
            });
            if own && fits && place.layout.is_whole() {
                results[t] = lent.take().map(ResultMemory::Lent);
            }
        }
    }

    /// The outputs of the program, whose buffers leave the workspace. Those that the caller has memory for, or that lie in the memory of an
    /// input, are empty.
    pub(crate) fn outputs(
        &self,
        threads: &Threads,
        io: &mut RunIo<'_, '_>,
        results: &mut [Option<ResultMemory<'_>>],
    ) -> Result<Vec<Tensor>, BackendError> {
        let outputs = &self.resolved.outputs;
        // Buffers that hold several outputs.
        let mut shared: Vec<(usize, Bytes)> = Vec::new();
        let mut out = Vec::with_capacity(outputs.len());
        for (i, place) in outputs.iter().enumerate() {
            let Storage::Buffer(id) = place.storage else {
                out.extend(leaf_tensor(place, io.inputs));
                continue;
            };
            let t = self.resolved.buffer(id);
            if let Some(room) = id.room() {
                let own = self.resolved.rooms[room].output == i;
                let held = results[t].as_ref().map_or(&[][..], ResultMemory::bytes);
                out.push(if own { absent(place.dtype) } else { self.dense(threads, place, held)? });
                continue;
            }
            let bytes = match results[t].take() {
                Some(ResultMemory::Lent(_)) => {
                    out.push(absent(place.dtype));
                    continue;
                }
                Some(ResultMemory::Lease(buffer)) => Bytes::from_owner(buffer),
                None => {
                    let known = shared.iter().find(|(known, _)| *known == t);
                    known.map_or_else(Bytes::new, |(_, bytes)| bytes.clone())
                }
            };
            out.push(part(&bytes, place.dtype, &place.layout));
            if outputs[i + 1..].iter().any(|o| o.storage == place.storage) {
                shared.push((t, bytes));
            }
        }
        Ok(out)
    }

    /// A copy of an output that lies in the memory of an input which is another one's.
    fn dense(
        &self,
        threads: &Threads,
        place: &Location,
        bytes: &[u8],
    ) -> Result<Tensor, BackendError> {
        let kernel = Copy::new(place.dtype, &place.layout).ok_or_else(|| broken("many axes"))?;
        let mut copy = self.results.take(place.layout.len() * place.dtype.size());
        let array = TensorView { dtype: place.dtype, layout: &place.layout, bytes };
        let cx = Context { threads, epilogue: None };
        let done = kernel.run(&cx, &[array], &mut [copy.bytes_mut()]);
        done.map_err(|reason| BackendError::Operator { op: "output".into(), reason })?;
        let shape = &place.layout.shape;
        Ok(part(&Bytes::from_owner(copy), place.dtype, &Layout::dense(shape)))
    }
}
