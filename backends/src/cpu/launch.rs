//! What every kernel takes and what it is made from.
//!
//! A [`Maker`] sees an application whose shapes are known and prepares a [`Launch`]; what it cannot do it declines, and
//! the judge computes that operator.

use super::gemm::{Matrix, PackedLeft, PackedRight};
use super::layout::Layout;
use super::pointwise::Fused;
use super::threads::Threads;
use bytemuck::Pod;
use mlc_dsl::ir::{Attr, DType, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

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
pub struct Tail {
    /// Input 0 is the kernel's result.
    pub fused: Fused,
}

impl Tail {
    /// Replaces a finished part of the result that begins at element `at`. `inputs` are the tail's, from number 1 on.
    pub fn apply(&self, at: usize, part: &mut [f32], inputs: &[&[u8]]) {
        self.fused.span_in_place(at, part, inputs);
    }
}

/// The surroundings of a launch.
pub struct Context<'a> {
    /// Threads to use.
    pub threads: &'a Threads,
    /// What to do with the result, and the memory of the tail's inputs (entry 0 is a stand-in for the result).
    pub tail: Option<(&'a Tail, &'a [&'a [u8]])>,
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

    /// True if it applies [`Context::tail`].
    fn takes_tail(&self) -> bool {
        false
    }
}

/// An argument while a kernel is made.
#[derive(Clone)]
pub struct Operand {
    /// Element type.
    pub dtype: DType,
    /// Where the elements lie.
    pub layout: Layout,
    /// The elements, if they are constant.
    pub constant: Option<Tensor>,
}

/// An application whose shapes are known.
pub struct Site<'a> {
    /// Attributes in declared order, symbols replaced.
    pub attrs: &'a [Attr],
    /// Arguments.
    pub args: &'a [Operand],
    /// Results.
    pub outputs: &'a [(DType, Vec<usize>)],
    /// Constants packed for the matrix product.
    pub packs: &'a Packs,
}

/// Prepares a kernel, or declines.
pub type Maker = fn(&Site<'_>) -> Option<Box<dyn Launch>>;

impl Site<'_> {
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

/// Which constant, seen how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PackKey {
    address: usize,
    offset: usize,
    strides: (isize, isize),
    sizes: (usize, usize),
}

/// Constants packed for the matrix product, shared by all shapes of one program.
#[derive(Default)]
pub struct Packs {
    left: Mutex<HashMap<PackKey, Arc<PackedLeft>>>,
    right: Mutex<HashMap<PackKey, Arc<PackedRight>>>,
}

impl Packs {
    /// The packed form of `a`, part of `constant`.
    pub fn left(&self, constant: &Tensor, a: &Matrix<'_>, m: usize, k: usize) -> Arc<PackedLeft> {
        let mut known = self.left.lock().unwrap_or_else(|e| e.into_inner());
        known
            .entry(key(constant, a, m, k))
            .or_insert_with(|| Arc::new(PackedLeft::new(a, m, k)))
            .clone()
    }

    /// The packed form of `b`, part of `constant`.
    pub fn right(&self, constant: &Tensor, b: &Matrix<'_>, k: usize, n: usize) -> Arc<PackedRight> {
        let mut known = self.right.lock().unwrap_or_else(|e| e.into_inner());
        known
            .entry(key(constant, b, k, n))
            .or_insert_with(|| Arc::new(PackedRight::new(b, k, n)))
            .clone()
    }
}

fn key(constant: &Tensor, m: &Matrix<'_>, rows: usize, cols: usize) -> PackKey {
    // The program keeps its constants alive, so an address names one.
    let address = constant.bytes().as_ptr() as usize;
    PackKey { address, offset: m.offset, strides: (m.row, m.col), sizes: (rows, cols) }
}
