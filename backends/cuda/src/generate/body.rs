//! Function bodies: the loop nest of each schedule around what the emitter writes.

use super::emit::{Accesses, Emitter, Sharing, coordinates, offset_of, vector_width, widest};
use super::grid::GridSize;
use super::kernel::KernelProgram;
use super::product::Product;
use super::product::{smem_pipeline, tiled};
use super::reduction::split;
use super::reduction::vectorized::VectorizedReduction;
use super::reduction::windows::WindowedReduction;
use super::stages::{Schedule, Stage};
use super::tiled_transpose::TiledTranspose;
use super::{THREADS, flash_attention, spelling};
use mlc_dsl::ir::{DType, Value};

/// Writes the body of a stage.
pub fn body(
    e: &mut Emitter<'_>,
    kernel: &KernelProgram,
    stage: &Stage,
    shape: &[usize],
) -> Option<GridSize> {
    let v = stage.value;
    let dtype = kernel.program.ty(v).dtype;
    let shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    let put =
        |e: &mut Emitter<'_>, slots: &[usize], v: &str| e.store_result(dtype, &shape, slots, v);
    match &stage.schedule {
        Schedule::TiledProduct(product) | Schedule::SplitK(product, _) => {
            tiles(e, kernel, v, *product)
        }
        Schedule::EpilogueOnly(product, (stored, _), _) => {
            let whole = |e: &mut Emitter<'_>, slots: &[usize]| {
                let index: Vec<_> = slots.iter().map(|s| Emitter::index(*s)).collect();
                let own = kernel.program.ty(*product).known_shape().unwrap_or_default();
                let place = offset_of(&own, &index).expect("its bytes are an `i64`");
                let element = format!("parts[{}]", spelling::affine(&place, &Emitter::name));
                let is_double = *stored == DType::F64;
                e.line(format!(
                    "{} total = {};",
                    spelling::real(is_double),
                    spelling::loaded(*stored, &element, is_double)
                ));
                e.bind(*product, &index, "total");
            };
            Some(elements(e, v, dtype, &shape, Some(&whole)))
        }
        Schedule::FlashAttention(product) | Schedule::SplitKv(product, _) => {
            flash_attention::write(
                e,
                kernel,
                *product,
                &flash_attention::OutputTarget { value: v, store: &put },
            )
        }
        Schedule::SplitReduction(split) => Some(split::write(e, v, dtype, &shape, split)),
        Schedule::Scan(scan) => scan.write(e, kernel, v, &shape),
        Schedule::RowPerBlock(axes) => Some(rows(e, kernel, v, &shape, axes)),
        _ => Some(elements(e, v, dtype, &shape, None)),
    }
}

/// A product and its epilogue.
fn tiles(
    e: &mut Emitter<'_>,
    kernel: &KernelProgram,
    v: Value,
    product: Value,
) -> Option<GridSize> {
    let p = Product::recognise(e, kernel, product)?;
    let dtype = kernel.program.ty(v).dtype;
    let offset = offset_of(&p.shape, &p.index)?;
    let part = e.variable(p.count_of_parts());
    let mut store = |e: &mut Emitter<'_>, sum: &str| {
        e.bind(product, &p.index, sum);
        let value = e.element(v, &p.index);
        e.store(dtype, &offset, &value);
    };
    let blocks = match &p.gemv {
        Some(gemv) => gemv.write(e, &p, part, &mut store),
        None => tiled::write(e, &p, part, &mut store),
    };
    Some(GridSize { blocks, threads: smem_pipeline::THREADS })
}

/// Binds what is known of an element before it is computed.
type BindKnown<'a> = Option<&'a dyn Fn(&mut Emitter<'_>, &[usize])>;

/// An element, or a vector, for each thread.
fn elements(
    e: &mut Emitter<'_>,
    v: Value,
    dtype: DType,
    shape: &[i64],
    known: BindKnown<'_>,
) -> GridSize {
    let slots: Vec<usize> = shape.iter().map(|&n| e.variable(n)).collect();
    let index: Vec<_> = slots.iter().map(|s| Emitter::index(*s)).collect();
    let axes: Vec<(usize, i64)> = slots.iter().copied().zip(shape.iter().copied()).collect();
    if known.is_none()
        && let Some(wide) = VectorizedReduction::recognise(e, v, &index, &axes)
    {
        return wide.write(e, v, dtype, shape, &axes);
    }
    if known.is_none()
        && let Some(windows) = WindowedReduction::recognise(e, v, &index, &axes)
    {
        return windows.write(e, v, dtype, shape, &axes);
    }
    let total = shape.iter().product::<i64>();
    let one = |e: &mut Emitter<'_>| {
        if let Some(known) = known {
            known(e, &slots);
        }
        let text = e.element(v, &index);
        e.store_result(dtype, shape, &slots, &text);
    };
    let mut width = vector_width(&axes, widest(dtype));
    let mut is_apart = width == 1;
    if width > 1 {
        let loops = !e.analyse(&[(v, index.clone())]).reductions.is_empty();
        let is_single = known.is_some() || loops;
        let trial = |width| e.count_accesses(|e| e.lanes("at", &axes, width, one));
        let widest = trial(width);
        is_apart = widest.scalar > 0;
        let is_wide = |accesses: Accesses| accesses.vectorized > accesses.scalar;
        // Accesses that are not aligned to as many elements may be to half of them.
        let narrower = || [4, 2].into_iter().filter(|w| *w < width).find(|w| is_wide(trial(*w)));
        width = match (is_single, is_wide(widest)) {
            (true, _) => 1,
            (false, true) => width,
            (false, false) => narrower().unwrap_or(1),
        };
    }
    if is_apart
        && known.is_none()
        && let Some(turned) = TiledTranspose::recognise(e, v, &index, &axes)
    {
        return turned.write(e, v, dtype, shape, &axes);
    }
    let kind = e.index_type();
    let thread = format!("({kind})blockIdx.x * {THREADS} + threadIdx.x");
    match width {
        1 => e.line(format!("{kind} at = {thread};")),
        _ => e.line(format!("{kind} at = ({thread}) * {width};")),
    }
    e.line(format!("if (at >= {}) return;", spelling::int(total)));
    e.lanes("at", &axes, width, one);
    GridSize { blocks: ((total / width) as u64).div_ceil(THREADS.into()), threads: THREADS }
}

/// A row for each block, or for each warp of a block: its threads share loops.
fn rows(
    e: &mut Emitter<'_>,
    kernel: &KernelProgram,
    v: Value,
    shape: &[i64],
    rows: &[usize],
) -> GridSize {
    let dtype = kernel.program.ty(v).dtype;
    let slots: Vec<usize> = shape.iter().map(|&n| e.variable(n)).collect();
    let index: Vec<_> = slots.iter().map(|s| Emitter::index(*s)).collect();
    let axis = |a: &usize| (slots[*a], shape[*a]);
    let of_rows: Vec<(usize, i64)> = rows.iter().map(axis).collect();
    let along: Vec<(usize, i64)> =
        (0..shape.len()).filter(|a| !rows.contains(a)).map(|a| axis(&a)).collect();
    let own: Vec<usize> = along.iter().map(|a| a.0).collect();
    let count = of_rows.iter().map(|a| a.1).product::<i64>();
    let write = |e: &mut Emitter<'_>| {
        e.diverge(&own);
        let text = e.element(v, &index);
        e.store_result(dtype, shape, &slots, &text);
    };
    let mut extents: Vec<i64> = along.iter().map(|a| a.1).collect();
    let mut width = vector_width(&along, widest(dtype).min(4));
    let length = |extents: &[i64]| extents.iter().copied().fold(1, i64::saturating_mul);
    match e.longest_loop(v, &index) {
        Some((loops, at)) if length(&loops) > length(&extents) => {
            width = e.width_of_loop(at.0, &at.1);
            extents = loops;
        }
        _ => {
            let accesses = e.count_accesses(|e| e.lanes("at", &along, width, write));
            width = if accesses.vectorized > accesses.scalar { width } else { 1 };
        }
    }
    let sharing = sharing(extents, width, count, kernel);
    let (threads, by_warp) = (sharing.threads, sharing.by_warp);
    let of_block = if by_warp { i64::from(THREADS / 32) } else { 1 };
    let head = e.mark();
    let (kind, block) = (e.index_type(), e.block());
    match by_warp {
        true => e.line(format!("{kind} row = {block} * {of_block} + threadIdx.x / 32;")),
        false => e.line(format!("{kind} row = blockIdx.x;")),
    }
    if by_warp && count % of_block != 0 {
        e.line(format!("if (row >= {count}) return;"));
    }
    coordinates(e, "row", &of_rows);
    e.cooperate(sharing);
    e.diverge(&own);
    let found = e.analyse(&[(v, index.clone())]);
    e.converge();
    for (h, at) in &found.reductions {
        e.element(*h, at);
    }
    e.along_at_last(&along, write);
    e.declare_arrays(head);
    let threads = if by_warp { THREADS } else { threads };
    GridSize { blocks: (count as u64).div_ceil(of_block as u64), threads }
}

/// Rows of a warp that are short enough whatever their number.
const SHORT: i64 = 128;

/// How threads share `count` rows of these extents.
fn sharing(extents: Vec<i64>, width: i64, count: i64, kernel: &KernelProgram) -> Sharing {
    let length: i64 = extents.iter().product();
    let turns = |threads: i64| {
        let each = threads * width;
        length / each + i64::from(length % each != 0)
    };
    let many = count >= 8 * i64::from(kernel.tuning.processors);
    let by_warp = turns(32) * width <= 32 && (many || length <= SHORT);
    let wanted = [32, 64, 128, 256].into_iter().find(|t| turns(*t) * width <= 4);
    let threads = match (by_warp, kernel.uniform_blocks) {
        (true, _) => 32,
        (false, true) => i64::from(THREADS),
        (false, false) => wanted.unwrap_or(512),
    };
    let turns = Some(turns(threads)).filter(|t| t * width <= 16 || by_warp).unwrap_or(0);
    Sharing { threads: threads as u32, by_warp, extents, width, turns }
}
