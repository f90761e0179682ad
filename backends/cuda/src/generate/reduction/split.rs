//! Split reductions (few results, many elements): blocks reduce parts, and the last block of a result combines them.

use super::super::emit::{Emitter, Sharing, coordinates};
use super::super::grid::GridSize;
use super::super::kernel::KernelProgram;
use super::super::spelling::{self as spell, ScalarKind};
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Int, Real};
use mlc_backends::reference::scalar::Monoid;
use mlc_dsl::ir::{DType, Value};

/// Most results for which a block each leaves most of a device idle.
pub const FEW: i64 = 64;
/// Least elements of a split reduction.
const LEAST: i64 = 1 << 14;
/// Elements of a part at least, and parts of all results at most.
const PART: i64 = 1 << 12;
const MOST: i64 = 256;
/// Threads of a block that combines elements.
const THREADS: u32 = 512;

/// A split reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitReduction {
    monoid: Monoid,
    kind: ScalarKind,
    results: i64,
    elements: i64,
    /// Elements of a part; only the last part may have fewer.
    part: i64,
}

impl SplitReduction {
    /// A value as a reduction that is worth splitting.
    pub fn recognise(kernel: &KernelProgram, v: Value) -> Option<SplitReduction> {
        let code = kernel.code(v)?;
        let (monoid, kind, over) = match &code.body {
            Body::Real(Real::Reduce(r)) => {
                (r.monoid, ScalarKind::Real(Emitter::new(kernel).double(v)), &r.over)
            }
            Body::Int(_, Int::Reduce(r)) => (r.monoid, ScalarKind::Int(r.dtype), &r.over),
            Body::Real(_) | Body::Int(..) => return None,
        };
        let results = code.axes.iter().map(|a| a.1).product::<i64>();
        let elements = over.iter().map(|o| o.1).product::<i64>();
        if !(1..=FEW).contains(&results) || elements < LEAST {
            return None;
        }
        let parts = (elements / PART).min(MOST / results).max(1);
        let part = elements.div_euclid(parts) + i64::from(elements % parts != 0);
        Some(SplitReduction { monoid, kind, results, elements, part })
    }

    fn parts(&self) -> i64 {
        self.elements / self.part + i64::from(self.elements % self.part != 0)
    }

    /// Element type and extents of the parts.
    pub fn ty(&self) -> (DType, Vec<usize>) {
        let dtype = match self.kind {
            ScalarKind::Real(false) => DType::F32,
            ScalarKind::Real(true) => DType::F64,
            ScalarKind::Int(_) => DType::I64,
        };
        (dtype, vec![self.results as usize, self.parts() as usize])
    }
}

/// Writes the function.
pub fn write(
    e: &mut Emitter<'_>,
    v: Value,
    dtype: DType,
    shape: &[i64],
    split: &SplitReduction,
) -> GridSize {
    let slots: Vec<usize> = shape.iter().map(|&n| e.variable(n)).collect();
    let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
    let axes: Vec<(usize, i64)> = slots.iter().copied().zip(shape.iter().copied()).collect();
    let (kind, block, parts) = (e.index_type(), e.block(), split.parts());
    let (name, (op, first)) = (split.kind.name(), spell::monoid(split.monoid, split.kind));
    let head = e.mark();
    e.line(format!("{kind} row = {block} / {parts}, part = {block} % {parts};"));
    coordinates(e, "row", &axes);
    e.line(format!("{kind} begin = part * {};", split.part));
    let (part, elements) = (split.part, split.elements);
    e.line(format!("{kind} end = begin + {part} < {elements} ? begin + {part} : {elements};"));
    e.cooperate(Sharing::plain(THREADS));
    let text = e.part(v, &index, "begin", "end");
    e.line(format!("if (threadIdx.x == 0) parts[row * {parts} + part] = {text};"));
    e.line("// Of all parts together, by the block that comes last.");
    e.line(format!("if (!comes_last(counts + row, {parts})) return;"));
    e.open("if (threadIdx.x < 32)");
    e.line(format!("{name} total = {first};"));
    e.open(&format!("for (int at = threadIdx.x; at < {parts}; at += 32)"));
    let next = format!("load_one_fresh(parts + (row * {parts} + at))");
    e.line(format!("total = {op}()(total, ({name}){next});"));
    e.close();
    e.line(format!("total = combine_warp({op}(), total);"));
    let total = match split.kind {
        ScalarKind::Int(Some(of)) => spell::wrapped(dtype, &spell::wrapped(of, "total")),
        ScalarKind::Int(None) => spell::wrapped(dtype, "total"),
        ScalarKind::Real(true) if dtype != DType::F64 => "(float)total".into(),
        ScalarKind::Real(_) => "total".into(),
    };
    e.open("if (threadIdx.x == 0)");
    e.store_result(dtype, shape, &slots, &total);
    e.close();
    e.close();
    e.declare_arrays(head);
    GridSize { blocks: (split.results * parts) as u64, threads: THREADS }
}
