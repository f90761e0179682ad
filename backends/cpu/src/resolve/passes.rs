//! Adds passes, a kernel with its inputs and outputs each; folds those that read only constants.

use super::kernel_cache::{BufferId, Location, Pass, Storage};
use super::{NEEDS_DATA, Output, Resolver, check_memory};
use crate::data_movement::row_copy::RowCopy;
use crate::graph::broken;
use crate::meaning::Meaning;
use crate::runtime::buffer::Buffer;
use crate::runtime::fallback;
use crate::runtime::kernel::{Context, Epilogue, Kernel, TensorView};
use bytes::Bytes;
use mlc_backends::BackendError;
use mlc_dsl::ir::{DType, NodeId, NodeKind, Tensor, Value};
use mlc_dsl::layout::Layout;
use mlc_dsl::plan::Alive;
use std::sync::Arc;

impl Resolver<'_> {
    /// Interprets a node, which also finds shapes that depend on data.
    pub(super) fn fall_back(&mut self, id: NodeId) -> Result<(), BackendError> {
        let node = self.cx.graph.program.node(id);
        let args = node.args.iter().map(|a| Ok(self.aligned(self.place(*a)?.clone())));
        let args: Vec<Location> = args.collect::<Result<_, BackendError>>()?;
        let outputs = self.results(id);
        let count = |shape: &[usize]| shape.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64));
        let own = args.iter().map(|p| count(&p.layout.shape));
        let produced = outputs.iter().flat_map(|o| o.iter()).map(|o| count(&o.2));
        let elements = own.chain(produced).fold(0, u64::saturating_add);
        let program = &self.cx.graph.program;
        let kernel = fallback::ReferenceFallback::new(
            elements,
            program,
            id,
            &self.symbols,
            self.cx.library,
        )?;
        if let Some(outputs) = outputs {
            let kernel: Box<dyn Kernel> = match as_row_copy(&kernel, &args, &outputs) {
                Some(lines) => Box::new(lines),
                // What is computed once is computed as exactly as can be.
                None if self.constants(&args).is_some() => Box::new(kernel),
                None => {
                    let alive: Vec<_> = outputs.iter().map(|o| self.live_steps(o)).collect();
                    let kernel = self.compile_meaning(id, kernel, &args, &outputs, &alive);
                    return self.define_values(kernel, args, &self.live_outputs(outputs), None, id);
                }
            };
            return self.define_values(kernel, args, &outputs, None, id);
        }
        let views = self
            .constants(&args)
            .ok_or(BackendError::Unsupported { backend: "cpu", what: NEEDS_DATA.into() })?;
        let results = kernel.tensors(&views).map_err(|reason| self.fail(id, reason))?;
        for (output, t) in results.into_iter().enumerate() {
            for (e, &d) in node.types[output].shape.iter().zip(t.shape()) {
                self.symbols.learn(e, d as i64);
                self.draft.learned.push((e.clone(), d as i64));
            }
            let (dtype, layout) = (t.dtype(), Layout::dense(t.shape()));
            let storage = self.constant(t);
            let value = Value { node: id, output: output as u32 };
            self.places.insert(value, Location { dtype, layout, storage });
        }
        Ok(())
    }

    /// The live steps of a state, if not all are.
    fn live_steps(&self, output: &Output) -> Option<Alive> {
        let v = output.0?;
        let alive = Alive::of_unread(&self.cx.graph.program, self.cx.library, v)?;
        let is_read = self.is_read(v, &self.cx.graph.groups[self.draft.kernel]);
        (!is_read).then_some(alive)
    }

    /// Results with the shapes of their live steps.
    pub(super) fn live_outputs(&self, mut outputs: Vec<Output>) -> Vec<Output> {
        for output in &mut outputs {
            if let Some(alive) = self.live_steps(output) {
                output.2 = alive.shape(std::mem::take(&mut output.2));
            }
        }
        outputs
    }

    /// Vector code compiled from an operator's meaning, or else the reference interpreter.
    fn compile_meaning(
        &self,
        id: NodeId,
        interpreter: fallback::ReferenceFallback,
        args: &[Location],
        outputs: &[Output],
        alive: &[Option<Alive>],
    ) -> Box<dyn Kernel> {
        let interpreter = interpreter.without(alive.iter().map(Option::is_some).collect());
        let NodeKind::Apply(call, _) = &self.cx.graph.program.node(id).kind else {
            return Box::new(interpreter);
        };
        let attrs: Vec<_> = self.attrs(id).into_iter().map(Some).collect();
        let args: Vec<_> = args.iter().map(|a| (a.dtype, a.layout.shape.to_vec())).collect();
        let outputs: Vec<_> = outputs.iter().map(|o| (o.1, o.2.to_vec())).collect();
        let callable = self.cx.library.call(*call);
        match Meaning::new(callable, &attrs, &args, &outputs, alive, interpreter) {
            Ok(meaning) => Box::new(meaning),
            Err(interpreter) => Box::new(interpreter),
        }
    }

    /// The arguments as tensor views, if all are constant.
    fn constants<'s>(&'s self, args: &'s [Location]) -> Option<Vec<TensorView<'s>>> {
        let array = |p: &'s Location| {
            let bytes = p.constant()?.bytes();
            Some(TensorView { dtype: p.dtype, layout: &p.layout, bytes })
        };
        args.iter().map(array).collect()
    }

    /// Accounts for bytes allocated by constant folding.
    fn account(&mut self, bytes: u64, node: NodeId) -> Result<(), BackendError> {
        self.taken = self.taken.saturating_add(bytes);
        // What is allocated is missing from what the machine has free.
        let needed = if self.cx.memory.is_some() { self.taken } else { bytes };
        check_memory(needed, self.cx.memory).map_err(|limit| BackendError::Memory {
            op: self.name(node),
            what: "its results, computed before the run,".into(),
            bytes: needed,
            limit,
        })
    }

    /// The buffer of a result: the plan's, or one of the kernel's workspace.
    fn buffer(&mut self, value: Option<Value>, bytes: usize) -> Result<BufferId, BackendError> {
        let kernel = self.draft.kernel;
        let named = &self.cx.graph.groups[kernel].named;
        let planned = value.and_then(|v| named.get(&v));
        let slot = planned.and_then(|v| self.draft.planned.iter().position(|p| p.value == *v));
        if let Some(slot) = slot {
            // With extents that only constants decide, this is not the last try.
            return match self.draft.planned[slot].bytes == bytes as u64 || self.plan.nominal {
                true => Ok(BufferId { kernel, slot }),
                false => Err(broken("a buffer has not the size of its value")),
            };
        }
        self.draft.workspace.push(bytes);
        Ok(BufferId { kernel, slot: self.draft.planned.len() + self.draft.workspace.len() - 1 })
    }

    /// Adds a pass to the kernel, or runs it now if it reads only constants.
    pub(super) fn add_pass(
        &mut self,
        kernel: Box<dyn Kernel>,
        inputs: Vec<Location>,
        outputs: &[Output],
        epilogue: Option<Epilogue>,
        node: NodeId,
    ) -> Result<Vec<Location>, BackendError> {
        let place = |storage, (_, dtype, shape): &Output| Location {
            dtype: *dtype,
            layout: Layout::dense(shape),
            storage,
        };
        let own = inputs.len() - epilogue.as_ref().map_or(0, |t| t.fused.input_count() - 1);
        let mut sizes = Vec::with_capacity(outputs.len());
        for (_, dtype, shape) in outputs {
            sizes.push(size(*dtype, shape).ok_or_else(|| {
                self.fail(node, format!("a result of shape {shape:?} is too large"))
            })?);
        }
        if epilogue.is_none() && inputs.iter().all(|p| p.constant().is_some()) {
            let inputs: Vec<Location> = inputs.into_iter().map(|p| self.aligned(p)).collect();
            let bytes = sizes.iter().fold(kernel.scratch(), |n, &b| n.saturating_add(b as u64));
            self.account(bytes, node)?;
            let tensors = self.run_on_constants(&*kernel, &inputs, outputs, &sizes, node)?;
            let kept = tensors.into_iter().map(|t| self.constant(t)).collect::<Vec<_>>();
            return Ok(kept.into_iter().zip(outputs).map(|(c, o)| place(c, o)).collect());
        }
        let mut places = Vec::with_capacity(outputs.len());
        let mut written = Vec::with_capacity(outputs.len());
        for (o, bytes) in outputs.iter().zip(sizes) {
            let t = self.buffer(o.0, bytes)?;
            written.push(t);
            places.push(place(Storage::Buffer(t), o));
        }
        let held = |(i, place): (usize, Location)| match place.constant() {
            Some(_) if i < own && !kernel.reads(i) => {
                Location { storage: Storage::Unread, ..place }
            }
            Some(_) if i < own && !kernel.aligns(i) => place,
            _ => self.aligned(place),
        };
        let inputs = inputs.into_iter().enumerate().map(held).collect();
        let (kernel, epilogue) = (kernel.into(), epilogue.map(Arc::new));
        self.draft.passes.push(Pass { kernel, inputs, own, outputs: written, epilogue, node });
        Ok(places)
    }

    /// The results of a kernel that reads only constants.
    fn run_on_constants(
        &self,
        kernel: &dyn Kernel,
        inputs: &[Location],
        outputs: &[Output],
        sizes: &[usize],
        node: NodeId,
    ) -> Result<Vec<Tensor>, BackendError> {
        let fail = |reason: String| self.fail(node, reason);
        let views = self.constants(inputs).unwrap_or_default();
        let mut buffers: Vec<Buffer> = sizes.iter().map(|&n| Buffer::new(n)).collect();
        let mut outs: Vec<&mut [u8]> = buffers.iter_mut().map(Buffer::bytes_mut).collect();
        let cx = Context { threads: self.cx.threads, epilogue: None };
        kernel.run(&cx, &views, &mut outs).map_err(fail)?;
        let tensor = |(b, (_, dtype, shape)): (Buffer, &Output)| {
            Tensor::new(*dtype, shape.to_vec(), Bytes::from_owner(b))
                .map_err(|e| fail(e.to_string()))
        };
        buffers.into_iter().zip(outputs).map(tensor).collect()
    }
}

/// Bytes of a result.
fn size(dtype: DType, shape: &[usize]) -> Option<usize> {
    let bytes = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
    let bytes = if shape.contains(&0) { Some(0) } else { bytes };
    bytes.filter(|&b| b <= isize::MAX as usize)
}

/// An operator that only moves its operand's elements, at indices that depend on no data, as a copy.
fn as_row_copy(
    operator: &fallback::ReferenceFallback,
    args: &[Location],
    outputs: &[Output],
) -> Option<RowCopy> {
    let ([x], [(_, dtype, shape)]) = (args, outputs) else { return None };
    let usable = x.layout.is_dense() && x.dtype == *dtype && *dtype != DType::Str;
    let constant = x.constant().is_some();
    if !usable || constant {
        return None;
    }
    let places = operator.places(&x.layout.shape, shape)?;
    RowCopy::of_places(*dtype, shape, &places, x.layout.offset)
}
