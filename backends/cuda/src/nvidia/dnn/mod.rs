//! Convolutions by cuDNN, opened at run time and never linked.
//!
//! A convolution and what follows it is a graph of operations; the library names engines for it, each with notes about its numbers, and an
//! engine becomes a plan. Signatures, attributes and their types are those of `cudnn_graph.h` of version 9.28; none is newer than 9.0. All
//! but the graph has been deprecated since then.

use super::library::{Destroy, Failure, Handle, Owned};
use super::{blas, search};
use crate::convolution::{Convolution, ConvolutionTensor, WindowAxis};
use crate::driver::Address;
use libloading::Library;
use mlc_dsl::ir::DType;
use plans::{ExecutionPlan, PlanSearch};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

mod plans;

/// Names the library file to open, or the folder that it lies in, in place of a search.
pub const VARIABLE: &str = "MLC_CUDNN";

/// The library's functions.
pub struct CudnnFunctions {
    pub create: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub destroy: Destroy,
    pub set_stream: unsafe extern "C" fn(Handle, Handle) -> c_int,
    pub version: unsafe extern "C" fn() -> usize,
    /// The version of CUDA's runtime that it was made for.
    pub runtime: unsafe extern "C" fn() -> usize,
    pub describe: unsafe extern "C" fn(c_int) -> *const c_char,
    /// What the last failure of this thread was.
    pub explain: unsafe extern "C" fn(*mut c_char, usize),
    pub make: unsafe extern "C" fn(c_int, *mut Handle) -> c_int,
    pub unmake: Destroy,
    /// Of a description: the attribute, the type, and how many values.
    pub set: unsafe extern "C" fn(Handle, c_int, c_int, i64, *const c_void) -> c_int,
    pub get: unsafe extern "C" fn(Handle, c_int, c_int, i64, *mut i64, *mut c_void) -> c_int,
    pub finish: unsafe extern "C" fn(Handle) -> c_int,
    /// Of the library, a plan, and what it is computed of.
    pub execute: unsafe extern "C" fn(Handle, Handle, Handle) -> c_int,
}

impl CudnnFunctions {
    fn of(library: &Library) -> Result<CudnnFunctions, libloading::Error> {
        // SAFETY: the types are those of cudnn_graph.h; its enumerations are 32-bit numbers here, its handles pointers.
        unsafe {
            Ok(CudnnFunctions {
                create: *library.get(b"cudnnCreate\0")?,
                destroy: *library.get(b"cudnnDestroy\0")?,
                set_stream: *library.get(b"cudnnSetStream\0")?,
                version: *library.get(b"cudnnGetVersion\0")?,
                runtime: *library.get(b"cudnnGetCudartVersion\0")?,
                describe: *library.get(b"cudnnGetErrorString\0")?,
                explain: *library.get(b"cudnnGetLastErrorString\0")?,
                make: *library.get(b"cudnnBackendCreateDescriptor\0")?,
                unmake: *library.get(b"cudnnBackendDestroyDescriptor\0")?,
                set: *library.get(b"cudnnBackendSetAttribute\0")?,
                get: *library.get(b"cudnnBackendGetAttribute\0")?,
                finish: *library.get(b"cudnnBackendFinalize\0")?,
                execute: *library.get(b"cudnnBackendExecute\0")?,
            })
        }
    }

    /// The functions of the library on this machine, which is never closed; or why there is none.
    pub fn open() -> Result<CudnnFunctions, String> {
        let found = search::open("libcudnn.so", &[9], VARIABLE, None)?;
        let table =
            CudnnFunctions::of(&found).map_err(|e| format!("libcudnn.so lacks a function: {e}"))?;
        std::mem::forget(found);
        // It opens cuBLASLt by name, and ends the process where there is none. One that is open already is found.
        // SAFETY: the function takes nothing.
        let major = unsafe { (table.runtime)() } / 1000;
        let needed = search::open("libcublasLt.so", &[major as u32], blas::VARIABLE, None);
        std::mem::forget(needed.map_err(|e| format!("cuDNN needs cuBLASLt, and {e}"))?);
        Ok(table)
    }

    fn done(&self, call: &'static str, code: c_int) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function takes any code and yields a static text.
        let text = unsafe { (self.describe)(code) };
        let mut reason = match text.is_null() {
            true => format!("error {code}"),
            // SAFETY: the text ends with a NUL and is never freed.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        let mut more: [c_char; 512] = [0; 512];
        // SAFETY: the library writes as many bytes as said at most; the last one, which it is not told of, stays a NUL.
        unsafe { (self.explain)(more.as_mut_ptr(), more.len() - 1) };
        // SAFETY: there is a NUL within the array.
        let more = unsafe { CStr::from_ptr(more.as_ptr()) }.to_string_lossy();
        if !more.is_empty() {
            reason += &format!(" ({more})");
        }
        Err(Failure { call, reason })
    }
}

/// What descriptions describe, by their numbers in cudnn_graph.h.
mod kind {
    pub const POINTWISE: i32 = 0;
    pub const CONVOLUTION: i32 = 1;
    pub const ENGINE: i32 = 2;
    pub const CONFIGURATION: i32 = 3;
    pub const HEURISTICS: i32 = 4;
    pub const PLAN: i32 = 5;
    pub const OF_CONVOLUTION: i32 = 10;
    pub const OF_POINTWISE: i32 = 13;
    pub const GRAPH: i32 = 15;
    pub const PACK: i32 = 16;
    pub const TENSOR: i32 = 17;
}

/// Types of attributes.
mod ty {
    pub const HANDLE: i32 = 0;
    pub const DATA_TYPE: i32 = 1;
    pub const BOOLEAN: i32 = 2;
    pub const INT64: i32 = 3;
    pub const FLOAT: i32 = 4;
    pub const POINTER: i32 = 6;
    pub const CONVOLUTION_MODE: i32 = 7;
    pub const HEURISTIC_MODE: i32 = 8;
    pub const NAN_PROPAGATION: i32 = 10;
    pub const NUMERICAL_NOTE: i32 = 11;
    pub const POINTWISE_MODE: i32 = 14;
    pub const DESCRIPTION: i32 = 15;
}

/// Sums are not turned: cross-correlation.
const CROSS_CORRELATION: i32 = 1;
const ADD: i32 = 0;
const RELU: i32 = 100;
const NAN_IS_KEPT: i32 = 1;
/// The heuristics of the library, and engines of which one is always there.
const MODES: [i32; 2] = [3, 2];
/// Engines that are asked for at most.
const MOST: usize = 64;
/// Notes of an engine: tensor cores, which round factors of 32 bits; inputs of fewer bits, sums of fewer bits, Fourier transforms, sums in any
/// order, and what Winograd's transforms come in.
const TENSOR_CORE: i32 = 0;
const REFUSED: [i32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// Bytes that all operands are aligned to.
const ALIGNED: i64 = 16;
/// Names of tensors, the last one for what lies in no memory.
const IMAGE: i64 = 1;
const WEIGHTS: i64 = 2;
const ADDED: i64 = 3;
const BIAS: i64 = 4;
const RESULT: i64 = 5;
const BETWEEN: i64 = 6;

/// `cudnnDataType_t`.
fn type_of(dtype: DType) -> Option<i32> {
    match dtype {
        DType::F32 => Some(0),
        DType::F16 => Some(2),
        DType::BF16 => Some(9),
        _ => None,
    }
}

/// A description that is not complete.
struct DescriptorBuilder<'t> {
    table: &'t CudnnFunctions,
    own: Owned,
}

impl<'t> DescriptorBuilder<'t> {
    fn new(table: &'t CudnnFunctions, kind: i32) -> Result<DescriptorBuilder<'t>, Failure> {
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        table.done("cudnnBackendCreateDescriptor", unsafe { (table.make)(kind, &mut handle) })?;
        Ok(DescriptorBuilder { table, own: Owned { handle, destroy: table.unmake } })
    }

    /// Sets an attribute. `T` is what the type stands for.
    fn with<T: Copy>(
        self,
        attribute: i32,
        ty: i32,
        values: &[T],
    ) -> Result<DescriptorBuilder<'t>, Failure> {
        let (to, count) = (self.own.handle, values.len() as i64);
        // SAFETY: the description is valid, and the library reads as many values as said; those that are handles are valid.
        let code = unsafe { (self.table.set)(to, attribute, ty, count, values.as_ptr().cast()) };
        self.table.done("cudnnBackendSetAttribute", code)?;
        Ok(self)
    }

    fn with_descriptor(
        self,
        attribute: i32,
        other: Handle,
    ) -> Result<DescriptorBuilder<'t>, Failure> {
        self.with(attribute, ty::DESCRIPTION, &[other])
    }

    fn done(self) -> Result<Owned, Failure> {
        // SAFETY: the description is valid.
        let code = unsafe { (self.table.finish)(self.own.handle) };
        self.table.done("cudnnBackendFinalize", code)?;
        Ok(self.own)
    }
}

/// Values of an attribute into those that are given, at most as many; how many there are.
fn get<T>(
    t: &CudnnFunctions,
    of: Handle,
    attribute: i32,
    ty: i32,
    to: &mut [T],
) -> Result<usize, Failure> {
    let mut count = 0;
    let room = to.len() as i64;
    // SAFETY: the description is valid, and the library writes as many values as there is room for at most.
    let code = unsafe { (t.get)(of, attribute, ty, room, &mut count, to.as_mut_ptr().cast()) };
    t.done("cudnnBackendGetAttribute", code)?;
    Ok(usize::try_from(count).unwrap_or(0).min(to.len()))
}

/// Whom plans are for: a device, by the library in its context.
#[derive(Clone, Copy)]
enum PlanTarget {
    Library(Handle),
    /// A device that is not there, by its description.
    #[cfg(test)]
    Device(Handle),
    #[cfg(test)]
    None,
}

/// Descriptions that others refer to; the last ones are given back first.
#[derive(Default)]
struct Descriptors(Vec<Owned>);

// SAFETY: descriptions do not change once they are finished, and those that are not are used with the library alone.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    fn keep(&mut self, part: Owned) -> Handle {
        let handle = part.handle;
        self.0.push(part);
        handle
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        while let Some(last) = self.0.pop() {
            drop(last);
        }
    }
}

/// A convolution as the library has it: along two axes at least.
fn lifted(c: &Convolution) -> Convolution {
    let mut c = c.clone();
    while c.windows.len() < 2 {
        let still = WindowAxis { extents: [1; 3], stride: 1, dilation: 1, padding: [0; 2] };
        c.windows.insert(0, still);
    }
    c
}

/// A graph as it is put together.
struct OperationGraph<'t> {
    table: &'t CudnnFunctions,
    convolution: Convolution,
    parts: Descriptors,
    operations: Vec<Handle>,
}

impl OperationGraph<'_> {
    /// A tensor in memory, or of `f32` in none if it is what lies between operations.
    fn tensor(&mut self, name: i64, part: ConvolutionTensor) -> Result<Handle, Failure> {
        let c = &self.convolution;
        let is_between = name >= BETWEEN;
        let dtype = if is_between { DType::F32 } else { c.dtype };
        let signed = |v: Vec<u64>| v.into_iter().map(|n| n as i64).collect::<Vec<_>>();
        let call = "cudnnBackendCreateDescriptor";
        let other = || Failure { call, reason: format!("there is no type for {dtype}") };
        let dtype = type_of(dtype).ok_or_else(other)?;
        let tensor = DescriptorBuilder::new(self.table, kind::TENSOR)?
            .with(906, ty::INT64, &[name])?
            .with(901, ty::DATA_TYPE, &[dtype])?
            .with(900, ty::INT64, &[ALIGNED])?
            .with(902, ty::INT64, &signed(c.extents(part)))?
            .with(903, ty::INT64, &signed(c.strides(part)))?
            .with(907, ty::BOOLEAN, &[is_between])?
            .done()?;
        Ok(self.parts.keep(tensor))
    }

    fn convolve(&mut self, to: Handle) -> Result<(), Failure> {
        let image = self.tensor(IMAGE, ConvolutionTensor::Image)?;
        let weights = self.tensor(WEIGHTS, ConvolutionTensor::Weights)?;
        let along = |f: &dyn Fn(&WindowAxis) -> u64| -> Vec<i64> {
            self.convolution.windows.iter().map(|w| f(w) as i64).collect()
        };
        let convolution = DescriptorBuilder::new(self.table, kind::CONVOLUTION)?
            .with(100, ty::DATA_TYPE, &[0i32])?
            .with(101, ty::CONVOLUTION_MODE, &[CROSS_CORRELATION])?
            .with(106, ty::INT64, &[self.convolution.windows.len() as i64])?
            .with(102, ty::INT64, &along(&|w| w.dilation))?
            .with(103, ty::INT64, &along(&|w| w.stride))?
            .with(105, ty::INT64, &along(&|w| w.padding[0]))?
            .with(104, ty::INT64, &along(&|w| w.padding[1]))?
            .done()?;
        let convolution = self.parts.keep(convolution);
        let operation = DescriptorBuilder::new(self.table, kind::OF_CONVOLUTION)?
            .with_descriptor(702, convolution)?
            .with_descriptor(704, image)?
            .with_descriptor(703, weights)?
            .with_descriptor(705, to)?
            .with(700, ty::FLOAT, &[1.0f32])?
            .with(701, ty::FLOAT, &[0.0f32])?
            .done()?;
        self.operations.push(self.parts.keep(operation));
        Ok(())
    }

    /// What is done element by element to a tensor, and another one if there is one.
    fn follow(
        &mut self,
        mode: i32,
        from: Handle,
        other: Option<Handle>,
        to: Handle,
    ) -> Result<(), Failure> {
        let mut what = DescriptorBuilder::new(self.table, kind::POINTWISE)?
            .with(0, ty::POINTWISE_MODE, &[mode])?
            .with(1, ty::DATA_TYPE, &[0i32])?;
        if mode == RELU {
            what = what.with(2, ty::NAN_PROPAGATION, &[NAN_IS_KEPT])?;
        }
        let what = self.parts.keep(what.done()?);
        let mut operation = DescriptorBuilder::new(self.table, kind::OF_POINTWISE)?
            .with_descriptor(750, what)?
            .with_descriptor(751, from)?;
        if let Some(other) = other {
            operation = operation.with_descriptor(752, other)?;
        }
        let operation = operation.with_descriptor(753, to)?.done()?;
        self.operations.push(self.parts.keep(operation));
        Ok(())
    }
}

/// The graph of a convolution, and what it refers to.
fn graph(
    t: &CudnnFunctions,
    c: &Convolution,
    target: PlanTarget,
) -> Result<(Descriptors, Handle), Failure> {
    let (parts, operations) = (Descriptors::default(), vec![]);
    let mut g = OperationGraph { table: t, convolution: lifted(c), parts, operations };
    // The order in which the library knows them.
    let follows = [
        c.is_added.then_some((ADD, Some((ADDED, ConvolutionTensor::Result)))),
        c.has_bias.then_some((ADD, Some((BIAS, ConvolutionTensor::Bias)))),
        c.is_rectified.then_some((RELU, None)),
    ];
    let follows: Vec<_> = follows.into_iter().flatten().collect();
    let name = |g: &OperationGraph<'_>| match g.operations.len() == follows.len() {
        true => RESULT,
        false => BETWEEN + g.operations.len() as i64,
    };
    let mut last = g.tensor(name(&g), ConvolutionTensor::Result)?;
    g.convolve(last)?;
    for (mode, other) in &follows {
        let other = other.map(|(name, part)| g.tensor(name, part)).transpose()?;
        let next = g.tensor(name(&g), ConvolutionTensor::Result)?;
        g.follow(*mode, last, other, next)?;
        last = next;
    }
    let graph =
        DescriptorBuilder::new(t, kind::GRAPH)?.with(801, ty::DESCRIPTION, &g.operations)?;
    let graph = match target {
        PlanTarget::Library(handle) => graph.with(800, ty::HANDLE, &[handle])?,
        #[cfg(test)]
        _ => graph,
    };
    let graph = g.parts.keep(graph.done()?);
    Ok((g.parts, graph))
}

/// A convolution that is ready.
pub struct PreparedConvolution {
    /// Where its operands are.
    pack: Owned,
    planned: Arc<ExecutionPlan>,
}

/// The library in a context.
pub struct Dnn {
    /// Used by one thread at a time.
    library: Mutex<HandleAndPlans>,
    table: CudnnFunctions,
}

/// A handle, and what is kept for it.
struct HandleAndPlans {
    /// Plans of the convolution that was prepared last, whose ways are asked for one after the other; given back ahead of the handle.
    last: Option<PlanSearch>,
    own: Owned,
}

// SAFETY: a handle may be used by any thread, by one at a time, for which the mutex is; so says the library's manual.
unsafe impl Send for Dnn {}
// SAFETY: as above.
unsafe impl Sync for Dnn {}
// SAFETY: plans and what they are made of do not change once they are finished; whoever uses them has the library.
unsafe impl Send for PreparedConvolution {}
// SAFETY: as above.
unsafe impl Sync for PreparedConvolution {}

impl Dnn {
    /// The library in the current context.
    pub fn new(table: CudnnFunctions) -> Result<Dnn, Failure> {
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        table.done("cudnnCreate", unsafe { (table.create)(&mut handle) })?;
        let own = Owned { handle, destroy: table.destroy };
        Ok(Dnn { library: Mutex::new(HandleAndPlans { last: None, own }), table })
    }

    /// The library's name and version.
    pub fn name(&self) -> String {
        // SAFETY: the function takes nothing.
        format!("cuDNN {}", unsafe { (self.table.version)() })
    }

    /// Makes a convolution ready in the library's n-th way, if it has so many, in the context that it was opened in.
    pub fn prepare(
        &self,
        c: &Convolution,
        at: &[Address],
        workspace: (Address, u64),
        way: usize,
    ) -> Result<Option<PreparedConvolution>, Failure> {
        let t = &self.table;
        let said = [Some(IMAGE), Some(WEIGHTS), c.is_added.then_some(ADDED)];
        let said = said.into_iter().chain([c.has_bias.then_some(BIAS), Some(RESULT)]).flatten();
        let names: Vec<i64> = said.collect();
        if names.len() != at.len() {
            return Err(Failure { call: "prepare", reason: "operands are missing".into() });
        }
        let mut library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        let target = PlanTarget::Library(library.own.handle);
        let plans = match library.last.take().filter(|p| p.are_of(c, workspace.1)) {
            Some(plans) => plans,
            None => PlanSearch::new(t, c, target, workspace.1)?,
        };
        let Some(planned) = library.last.insert(plans).nth(t, target, way)? else {
            return Ok(None);
        };
        let pointer = |a: &Address| ptr::without_provenance_mut::<c_void>(a.0 as usize);
        let pointers: Vec<Handle> = at.iter().map(pointer).collect();
        let pack = DescriptorBuilder::new(t, kind::PACK)?
            .with(1000, ty::INT64, &names)?
            .with(1001, ty::POINTER, &pointers)?
            .with(1003, ty::POINTER, &[pointer(&workspace.0)])?
            .done()?;
        Ok(Some(PreparedConvolution { pack, planned }))
    }

    /// Computes a convolution on a stream of the context.
    pub fn convolve(&self, ready: &PreparedConvolution, stream: Handle) -> Result<(), Failure> {
        let (t, library) =
            (&self.table, self.library.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: the handle and the stream are valid.
        t.done("cudnnSetStream", unsafe { (t.set_stream)(library.own.handle, stream) })?;
        let (plan, pack) = (ready.planned.plan.handle, ready.pack.handle);
        // SAFETY: all handles are valid; the addresses are the device's, and as large as the tensors say.
        t.done("cudnnBackendExecute", unsafe { (t.execute)(library.own.handle, plan, pack) })
    }
}

#[cfg(test)]
mod tests;
