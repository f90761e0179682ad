//! The interface of kernels.
//!
//! A [`Maker`] takes an application with known shapes and prepares a [`Launch`]; it may decline, and then
//! the reference interpreter computes the operator.

use super::threads::Threads;
use super::weight_cache::PackedConstants;
use crate::layout::{Layout, PerAxis};
use crate::pointwise::Fused;
use bytemuck::Pod;
use mlc_dsl::ir::{Attr, DType, Tensor};

/// An input of a launch.
#[derive(Clone, Copy)]
pub struct Array<'a> {
    /// Element type.
    pub dtype: DType,
    /// Where the elements lie.
    pub layout: &'a Layout,
    /// The memory that `layout` points into.
    pub bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// The memory as elements.
    pub fn typed<T: Pod>(&self) -> &'a [T] {
        bytemuck::cast_slice(self.bytes)
    }
}

/// A pointwise program applied to a kernel's result while it is in the cache.
pub struct Epilogue {
    /// Input 0 is the kernel's result.
    pub fused: Fused,
}

impl Epilogue {
    /// Replaces a finished part of the result that begins at element `at`. `inputs` are the epilogue's, from number 1 on.
    pub fn apply(&self, at: usize, part: &mut [f32], inputs: &[&[u8]]) {
        self.fused.span_in_place(at, part, inputs);
    }
}

/// The surroundings of a launch.
pub struct Context<'a> {
    /// Threads to use.
    pub threads: &'a Threads,
    /// What to do with the result, and the memory of the epilogue's inputs (entry 0 is a stand-in for the result).
    pub epilogue: Option<(&'a Epilogue, &'a [&'a [u8]])>,
}

impl Context<'_> {
    /// Applies the epilogue, if there is one, to a finished part of the result that begins at element `at`.
    pub fn finish(&self, at: usize, part: &mut [f32]) {
        if let Some((epilogue, inputs)) = self.epilogue {
            epilogue.apply(at, part, inputs);
        }
    }
}

/// A prepared kernel.
pub trait Launch: Send + Sync {
    /// Computes the outputs, each dense and row-major, from inputs of the layouts it was made for.
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String>;

    /// Bytes that it works in besides inputs and outputs, where that grows with them.
    fn scratch(&self) -> u64 {
        0
    }

    /// False of a constant that it has in another form, and does not look at any more.
    fn reads(&self, _input: usize) -> bool {
        true
    }

    /// False of a constant that it reads byte by byte, wherever its elements lie.
    fn aligns(&self, _input: usize) -> bool {
        true
    }

    /// True if the reference interpreter computes it.
    fn is_interpreted(&self) -> bool {
        false
    }

    /// True if it applies [`Context::epilogue`].
    fn takes_epilogue(&self) -> bool {
        false
    }

    /// True if what the epilogue yields may be of another type than what it begins with.
    fn epilogue_converts(&self) -> bool {
        false
    }
}

/// An argument while a kernel is made.
#[derive(Clone)]
pub struct LaunchOperand {
    /// Element type.
    pub dtype: DType,
    /// Where the elements lie.
    pub layout: Layout,
    /// The elements, if they are constant.
    pub constant: Option<Tensor>,
}

/// An application whose shapes are known.
pub struct LaunchSite<'a> {
    /// Attributes in declared order, symbols replaced.
    pub attrs: &'a [Attr],
    /// Arguments.
    pub args: &'a [LaunchOperand],
    /// Results.
    pub outputs: &'a [(DType, PerAxis<usize>)],
    /// Which of them something reads; what is in the others after a run does not matter.
    pub read: &'a [bool],
    /// Constants packed for the matrix product.
    pub packs: &'a PackedConstants,
}

/// Prepares a kernel, or declines.
pub type Maker = fn(&LaunchSite<'_>) -> Option<Box<dyn Launch>>;

impl LaunchSite<'_> {
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

    /// The one dtype that all arguments and results share.
    pub fn same_dtype(&self) -> Option<DType> {
        let first = self.args.first()?.dtype;
        let all = self.args.iter().map(|a| a.dtype).chain(self.outputs.iter().map(|o| o.0));
        all.into_iter().all(|d| d == first).then_some(first)
    }
}
