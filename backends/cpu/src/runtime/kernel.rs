//! The interface of kernels: a [`KernelFactory`] specialises a [`Kernel`] to the shapes and layouts of a [`KernelSpec`].
//!
//! A factory may decline; then the operator falls back to the reference interpreter.

use super::threads::Threads;
use super::weight_cache::WeightCache;
use crate::pointwise::Fused;
use bytemuck::Pod;
use mlc_dsl::ir::{Attr, DType, Tensor};
use mlc_dsl::layout::{Layout, PerAxis};

/// A strided view of an input.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    /// Element type.
    pub dtype: DType,
    /// Shape, strides and offset.
    pub layout: &'a Layout,
    /// The memory that `layout` indexes.
    pub bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// The memory as elements.
    pub fn typed<T: Pod>(&self) -> &'a [T] {
        bytemuck::cast_slice(self.bytes)
    }
}

/// A fused pointwise program, applied to a kernel's result while it is in the cache.
pub struct Epilogue {
    /// Input 0 is the kernel's result.
    pub fused: Fused,
}

impl Epilogue {
    /// Replaces a finished span of the result that begins at element `at`. `inputs` are the epilogue's, from number 1 on.
    pub fn apply(&self, at: usize, part: &mut [f32], inputs: &[&[u8]]) {
        self.fused.span_in_place(at, part, inputs);
    }
}

/// What a kernel runs with besides its operands.
pub struct Context<'a> {
    /// The thread pool.
    pub threads: &'a Threads,
    /// The fused epilogue and the memory of its inputs (entry 0 is a placeholder for the result).
    pub epilogue: Option<(&'a Epilogue, &'a [&'a [u8]])>,
}

impl Context<'_> {
    /// Applies the epilogue, if any, to a finished span of the result that begins at element `at`.
    pub fn finish(&self, at: usize, part: &mut [f32]) {
        if let Some((epilogue, inputs)) = self.epilogue {
            epilogue.apply(at, part, inputs);
        }
    }
}

/// A kernel specialised to its operands' shapes and layouts.
pub trait Kernel: Send + Sync {
    /// Computes the outputs, each dense and row-major, from inputs of the layouts it is specialised to.
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String>;

    /// Bytes of scratch memory, where these grow with inputs and outputs.
    fn scratch(&self) -> u64 {
        0
    }

    /// False for a constant that it holds in packed form and no longer reads.
    fn reads(&self, _input: usize) -> bool {
        true
    }

    /// False for a constant that may be unaligned for its element type.
    fn aligns(&self, _input: usize) -> bool {
        true
    }

    /// Whether the reference interpreter computes it.
    fn is_interpreted(&self) -> bool {
        false
    }

    /// Whether it applies [`Context::epilogue`].
    fn takes_epilogue(&self) -> bool {
        false
    }

    /// Whether the epilogue may change the element type.
    fn epilogue_converts(&self) -> bool {
        false
    }
}

/// An operand that a kernel is specialised to.
#[derive(Clone)]
pub struct OperandSpec {
    /// Element type.
    pub dtype: DType,
    /// Shape, strides and offset.
    pub layout: Layout,
    /// The elements, if constant.
    pub constant: Option<Tensor>,
}

/// What a kernel is specialised to: an application of an operator with known shapes.
pub struct KernelSpec<'a> {
    /// Attributes in declared order, symbols replaced.
    pub attrs: &'a [Attr],
    /// Operands.
    pub args: &'a [OperandSpec],
    /// Results.
    pub outputs: &'a [(DType, PerAxis<usize>)],
    /// Which results are read; a kernel may leave the others undefined.
    pub read: &'a [bool],
    /// Packed and aligned constants.
    pub weights: &'a WeightCache,
}

/// Specialises a kernel, or declines.
pub type KernelFactory = fn(&KernelSpec<'_>) -> Option<Box<dyn Kernel>>;

impl KernelSpec<'_> {
    /// A known integer attribute.
    pub fn int(&self, at: usize) -> Option<i64> {
        self.attrs.get(at)?.as_i64()
    }

    /// A known list of integers.
    pub fn ints(&self, at: usize) -> Option<Vec<i64>> {
        self.attrs.get(at)?.as_i64s()
    }

    /// A list of non-negative integers.
    pub fn sizes(&self, at: usize) -> Option<Vec<usize>> {
        self.ints(at)?.into_iter().map(|v| usize::try_from(v).ok()).collect()
    }

    /// A truth value.
    pub fn bool(&self, at: usize) -> Option<bool> {
        match self.attrs.get(at)? {
            Attr::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// A real number.
    pub fn float(&self, at: usize) -> Option<f64> {
        self.attrs.get(at)?.as_f64()
    }

    /// The element type that all operands and results share.
    pub fn same_dtype(&self) -> Option<DType> {
        let first = self.args.first()?.dtype;
        let all = self.args.iter().map(|a| a.dtype).chain(self.outputs.iter().map(|o| o.0));
        all.into_iter().all(|d| d == first).then_some(first)
    }
}
