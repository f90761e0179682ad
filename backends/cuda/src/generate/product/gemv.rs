//! GEMV and its batched form for a few vectors: the matrix is streamed once, in accesses of 16 bytes where it allows them.
//!
//! Where the matrix is contiguous along the depth, a warp takes columns of the result, and its threads share the depth.
//! Otherwise neighbouring threads take neighbouring columns, and the others share the depth. Sums are combined in shared memory.

use super::super::emit::{Emitter, coordinates, vector_width};
use super::super::spelling as spell;
use super::simt::open_unrolled;
use super::smem_pipeline::{THREADS, runs_along_depth};
use super::split_k;
use super::{Product, size};
use mlc_backends::reference::code::Slot;

/// Vectors up to which their length does not matter, and the length of more of them.
pub const SHORT: i64 = 8;
pub const LONG: i64 = 512;
/// Vectors at most, of 16 bits where tensor cores take over, and elements of columns and depth at least.
pub const MOST: i64 = 16;
pub const MOST_HALVES: i64 = 7;
pub const LEAST: i64 = 32;
/// Warps of a block.
const WARPS: i64 = THREADS as i64 / 32;
/// Sums of a thread at most.
const SUMS: i64 = 64;
/// Bytes that a block reads from which on more blocks pay for adding their sums.
const MANY: i64 = 100_000;

/// The tiling of a GEMV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemv {
    /// Whether a warp takes whole columns.
    along_depth: bool,
    /// Vector width of the loads of the matrix.
    width: i64,
    /// Columns of a warp and warps that share them; or threads side by side.
    columns: i64,
    sharing: i64,
    /// Parts of the depth (split-K).
    pub parts: i64,
}

impl Gemv {
    /// For a product whose matrix is the factor of columns.
    pub fn choose(e: &mut Emitter<'_>, p: &Product, processors: u32) -> Gemv {
        let (rows, n, depth) = (size(&p.rows), size(&p.columns), size(&p.deep));
        let most = if p.double { 2 } else { 8 }.min(SUMS / rows);
        let read = e.analyse_term(p.value, &p.factors[1]).offsets;
        let bytes = read.iter().map(|o| e.type_of(o.0).size() as i64).min().unwrap_or(8);
        let most = most.min(16 / bytes);
        let packs = |e: &mut Emitter<'_>, axes: &[(Slot, i64)]| {
            let width = vector_width(axes, most);
            let value = |e: &mut Emitter<'_>| drop(e.term_of(p.value, p.double, &p.factors[1]));
            let accesses = e.count_accesses(|e| e.lanes("place", axes, width, value));
            (width > 1 && accesses.vectorized > accesses.scalar).then_some(width)
        };
        let (across, down) = (packs(e, &p.columns), packs(e, &p.deep));
        let along_depth = match (across, down) {
            (Some(_), _) => false,
            (None, Some(_)) => true,
            (None, None) => runs_along_depth(&read, &p.deep, &p.columns),
        };
        let width = if along_depth { down } else { across }.unwrap_or(1);
        let (batch, processors) = (size(&p.batch), i64::from(processors));
        let mut gemv = Gemv { along_depth, width, columns: 1, sharing: 1, parts: 1 };
        let blocks = |t: &Gemv| batch * (n / t.of_block()).max(1);
        if along_depth {
            let enough = [4, 2].map(|columns| Gemv { columns, ..gemv });
            let mut enough = enough.into_iter().filter(|t| t.columns * rows <= SUMS);
            gemv = enough.find(|t| blocks(t) >= 2 * processors).unwrap_or(gemv);
            while gemv.columns == 1 && gemv.sharing < WARPS && blocks(&gemv) < processors {
                gemv.sharing *= 2;
            }
        } else {
            let sizes = [16, 8, 4].map(|columns| Gemv { columns, ..gemv });
            gemv = sizes.into_iter().find(|t| blocks(t) >= 2 * processors).unwrap_or(sizes[2]);
        }
        let busy = blocks(&gemv).max(1);
        if busy < processors / 2 && gemv.of_block() * depth * 4 > MANY {
            gemv.parts = (processors / busy).min(depth / 512).clamp(1, 32);
        }
        gemv
    }

    /// Columns of a block.
    pub fn of_block(&self) -> i64 {
        match self.along_depth {
            true => WARPS / self.sharing * self.columns,
            false => self.columns * self.width,
        }
    }

    /// Writes the function that computes a product; `store` gets an element's sum. Returns the blocks.
    pub fn write(
        &self,
        e: &mut Emitter<'_>,
        p: &Product,
        part: Slot,
        store: &mut dyn FnMut(&mut Emitter<'_>, &str),
    ) -> u64 {
        let (rows, n, depth) = (size(&p.rows), size(&p.columns), size(&p.deep));
        let (own, real) = (self.of_block(), spell::real(p.double));
        let across = n / own + i64::from(n % own != 0);
        let (kind, block) = (e.index_type(), e.block());
        e.line(format!("SHARED({real}, sums, {});", WARPS * rows * self.of_warp()));
        e.line(format!("{kind} column = {block} % {across} * {own};"));
        e.line(format!("{kind} batch = {block} / {across};"));
        coordinates(e, "batch", &[vec![(part, self.parts)], p.batch.clone()].concat());
        e.line("int warp = threadIdx.x / 32, thread = threadIdx.x % 32;");
        match self.parts {
            1 => e.line(format!("const {kind} begin = 0, end = {depth};")),
            parts => {
                let (part, each) = (Emitter::name(part), (depth / parts / 128 + 1) * 128);
                e.line(format!("{kind} begin = {part} * {each};"));
                e.line(format!(
                    "{kind} end = begin + {each} < {depth} ? begin + {each} : {depth};"
                ));
            }
        }
        match self.along_depth {
            true => self.by_columns(e, p),
            false => self.vector_width(e, p),
        }
        e.line("__syncthreads();");
        let all = format!("for (int at = threadIdx.x; at < {}; at += {THREADS})", rows * own);
        if self.parts > 1 {
            split_k::declare(e, p, part);
            e.open(&all);
            e.line(format!("int down = at / {own}, beside = at % {own};"));
            self.add(e, rows, real);
            e.line("parts[own_part + at] = sum_of_all;");
            e.close();
            split_k::wait(e, p);
        }
        e.open(&all);
        e.line(format!("int down = at / {own}, beside = at % {own};"));
        e.line(format!("{kind} across = column + beside;"));
        e.open(&if n % own == 0 { String::new() } else { format!("if (across < {n})") });
        match self.parts {
            1 => self.add(e, rows, real),
            _ => e.line(format!("{real} sum_of_all = {};", split_k::total(p, "at"))),
        }
        coordinates(e, "down", &p.rows);
        coordinates(e, "across", &p.columns);
        store(e, "sum_of_all");
        e.close();
        e.close();
        (size(&p.batch) * self.parts * across) as u64
    }

    /// Columns of which a warp has sums.
    fn of_warp(&self) -> i64 {
        if self.along_depth { self.columns } else { self.of_block() }
    }

    /// Adds the sums of the warps that have some of an element.
    fn add(&self, e: &mut Emitter<'_>, rows: i64, real: &str) {
        let own = self.of_warp();
        let (first, warps) = match self.along_depth {
            true => (format!("beside / {own} * {}", self.sharing), self.sharing),
            false => ("0".to_string(), WARPS),
        };
        e.line(format!("{real} sum_of_all = 0;"));
        e.line("#pragma unroll");
        e.open(&format!("for (int i = 0; i < {warps}; ++i)"));
        let beside = if self.along_depth { format!("beside % {own}") } else { "beside".into() };
        e.line(format!("sum_of_all += sums[(({first} + i) * {rows} + down) * {own} + {beside}];"));
        e.close();
    }

    /// A warp's threads share the depth.
    fn by_columns(&self, e: &mut Emitter<'_>, p: &Product) {
        let (rows, n, kind) = (size(&p.rows), size(&p.columns), e.index_type());
        let (real, width, own) = (spell::real(p.double), self.width, self.columns);
        e.line(format!("{kind} first = column + warp / {} * {own};", self.sharing));
        e.line(format!("{real} sum[{own}][{rows}] = {{}};"));
        e.line(if rows <= 4 { "#pragma unroll 4" } else { "#pragma unroll 1" });
        let start = format!("(warp % {} * 32 + thread) * {width}", self.sharing);
        let turn = self.sharing * 32 * width;
        e.open(&format!("for ({kind} at = begin + {start}; at < end; at += {turn})"));
        e.line(format!("{real} matrix[{own}][{width}] = {{}};"));
        open_unrolled(e, "c", own);
        e.line(format!("{kind} across = first + c;"));
        e.open(&if n % self.of_block() == 0 {
            String::new()
        } else {
            format!("if (across < {n})")
        });
        coordinates(e, "across", &p.columns);
        let lane = if width == 1 { "0" } else { "lane" };
        e.lanes("at", &p.deep, width, |e| {
            let value = e.term_of(p.value, p.double, &p.factors[1]);
            e.line(format!("matrix[c][{lane}] = {value};"));
        });
        e.close();
        e.close();
        open_unrolled(e, "m", rows);
        coordinates(e, "m", &p.rows);
        e.lanes("at", &p.deep, width, |e| {
            let value = e.term_of(p.value, p.double, &p.factors[0]);
            e.line("#pragma unroll");
            let add = format!("sum[c][m] += {value} * matrix[c][{lane}];");
            e.line(format!("for (int c = 0; c < {own}; ++c) {add}"));
        });
        e.close();
        e.close();
        open_unrolled(e, "c", own);
        open_unrolled(e, "m", rows);
        e.line(format!("{real} total = combine_warp(Sum(), sum[c][m]);"));
        e.line(format!("if (thread == 0) sums[(warp * {rows} + m) * {own} + c] = total;"));
        e.close();
        e.close();
    }

    /// Neighbouring threads take neighbouring columns.
    fn vector_width(&self, e: &mut Emitter<'_>, p: &Product) {
        let (rows, n, kind) = (size(&p.rows), size(&p.columns), e.index_type());
        let (real, width, own) = (spell::real(p.double), self.width, self.columns);
        let steps = vector_width(&p.deep, 4);
        e.line(format!("int x = thread % {own}, y = threadIdx.x / {own};"));
        e.line(format!("{kind} place = column + x * {width};"));
        e.line(format!("{real} sum[{rows}][{width}] = {{}};"));
        e.open(&if n % self.of_block() == 0 { String::new() } else { format!("if (place < {n})") });
        e.line(if steps * rows <= 4 { "#pragma unroll 4" } else { "#pragma unroll 1" });
        let turn = i64::from(THREADS) / own * steps;
        e.open(&format!("for ({kind} at = begin + y * {steps}; at < end; at += {turn})"));
        e.line(format!("{real} matrix[{steps}][{width}];"));
        open_unrolled(e, "step", steps);
        e.line(format!("{kind} deep = at + step;"));
        coordinates(e, "deep", &p.deep);
        let lane = if width == 1 { "0" } else { "lane" };
        e.lanes("place", &p.columns, width, |e| {
            let value = e.term_of(p.value, p.double, &p.factors[1]);
            e.line(format!("matrix[step][{lane}] = {value};"));
        });
        e.close();
        open_unrolled(e, "m", rows);
        coordinates(e, "m", &p.rows);
        let step = if steps == 1 { "0" } else { "lane" };
        e.lanes("at", &p.deep, steps, |e| {
            let value = e.term_of(p.value, p.double, &p.factors[0]);
            e.line("#pragma unroll");
            let add = format!("sum[m][j] += {value} * matrix[{step}][j];");
            e.line(format!("for (int j = 0; j < {width}; ++j) {add}"));
        });
        e.close();
        e.close();
        e.close();
        open_unrolled(e, "m", rows);
        open_unrolled(e, "j", width);
        e.line(format!("{real} total = sum[m][j];"));
        let mut apart = 16;
        while apart >= own {
            e.line(format!("total += __shfl_xor_sync(0xffffffffu, total, {apart});"));
            apart /= 2;
        }
        let (all, to) = (self.of_block(), format!("x * {width} + j"));
        e.line(format!("if (thread < {own}) sums[(warp * {rows} + m) * {all} + {to}] = total;"));
        e.close();
        e.close();
    }
}
