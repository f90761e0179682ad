//! Skips tiles of keys that a mask hides: all their scores are replaced or lowered so far that their exponentials are 0.
//!
//! A mask is found between the product and the softmax: a condition that selects the product or a number, or a term that
//! is minus infinity. A masked tile is skipped, and so are the loads of its factors. Where masked scores
//! are finite, they count in rows that have nothing above them; then the skipped tiles follow in a second pass.

use super::block::AttentionWriter;
use super::{ElementPlace, FlashAttention, ReadFollower};
use crate::generate::emit::{Emitter, coordinates, vector_width};
use crate::generate::kernel::KernelProgram;
use crate::generate::spelling as spell;
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Real, Truth};
use mlc_backends::reference::scalar::RealOp;
use mlc_dsl::ir::{Program, Value};

/// Scores at most so large are as good as minus infinity: no sum of a product in 32 bits brings them back.
pub const LOWEST: f64 = -1e30;
/// How far below another score one is whose exponential beside that one's is 0 in 32 bits.
pub const FAR: f64 = 110.0;
/// Masks that are considered at most.
pub const MOST: usize = 3;

/// A mask of scores.
enum Mask {
    /// A condition of this value's code, and its value where the element is not masked.
    Condition(Value, Truth, bool),
    /// An additive mask in this value's code.
    Term(Value, Real),
}

/// The masks of scores.
pub struct MaskedTileSkip {
    masks: Vec<Mask>,
    /// Upper bound of masked scores.
    pub largest: f64,
}

impl MaskedTileSkip {
    /// The masks between this product and the scores, if there are any.
    pub fn recognise(
        e: &mut Emitter<'_>,
        kernel: &KernelProgram,
        scores: &ElementPlace,
        inner: Value,
    ) -> Option<MaskedTileSkip> {
        let mut skip = MaskedTileSkip { masks: vec![], largest: f64::NEG_INFINITY };
        let body = |v| kernel.code(v).map(|c| &c.body);
        let number = |of, r: &Real| number(&kernel.program, &body, of, r);
        let mut at = scores.clone();
        let (mut factor, mut has_term) = (1.0, false);
        while at.0 != inner && skip.masks.len() < MOST {
            let Some((place, code)) = (ReadFollower { e: &mut *e, kernel }).code(at) else { break };
            let of = place.0;
            let leads =
                |e: &mut Emitter<'_>, r: &Real| !e.analyse_real(of, r).reductions.is_empty();
            let next = match &code {
                Real::If(condition, then, otherwise) => {
                    let counts = leads(e, then);
                    let (rest, low) = if counts { (then, otherwise) } else { (otherwise, then) };
                    let Some(low) = number(of, low).map(|n| n * factor) else { break };
                    if low > if has_term { LOWEST } else { -FAR } || low.is_nan() {
                        break;
                    }
                    skip.masks.push(Mask::Condition(of, (**condition).clone(), counts));
                    skip.largest = skip.largest.max(low);
                    rest
                }
                Real::Binary(RealOp::Add, a, b) => {
                    let (rest, term) = if leads(e, a) { (a, b) } else { (b, a) };
                    if leads(e, term) {
                        break;
                    }
                    skip.masks.push(Mask::Term(of, (**term).clone()));
                    skip.largest = skip.largest.max(LOWEST);
                    has_term = true;
                    rest
                }
                Real::Binary(op @ (RealOp::Mul | RealOp::Div), a, b) => {
                    let (rest, by) = if leads(e, a) { (a, b) } else { (b, a) };
                    let by = number(of, by).filter(|n| *n > 0.0 && n.is_finite());
                    match (op, by) {
                        (RealOp::Mul, Some(n)) => factor *= n,
                        (RealOp::Div, Some(n)) if std::ptr::eq(rest, a) => factor /= n,
                        _ => break,
                    }
                    rest
                }
                _ => break,
            };
            match (ReadFollower { e: &mut *e, kernel }).read(of, next) {
                Some(read) => at = read,
                None => break,
            }
        }
        // Terms that are scaled behind the product are smaller by the factor.
        if has_term && factor < 1.0 {
            skip.largest = skip.largest.max(LOWEST * factor);
        }
        (!skip.masks.is_empty()).then_some(skip)
    }

    /// Declares whether an element of the tile at `keys` is not masked.
    pub fn declare(&self, e: &mut Emitter<'_>, p: &FlashAttention, own: &str, threads: u32) {
        let (c, along) = (&p.tiling, [p.along]);
        let kind = e.index_type();
        let mut width = vector_width(&along, 8).min(c.keys);
        let accesses =
            e.count_accesses(|e| e.lanes("across", &along, width, |e| drop(self.counts(e))));
        if accesses.vectorized <= accesses.scalar {
            width = 1;
        }
        let (lines, steps) = (c.rows.min(c.sizes.rows), c.keys / width);
        e.line("bool counts = false;");
        e.open(&format!("for (int at = {own}; at < {}; at += {threads})", lines * steps));
        e.line(format!(
            "{kind} down = row + at / {steps}, across = keys + at % {steps} * {width};"
        ));
        e.open(&format!("if (down < {} && across < {})", c.sizes.rows, c.sizes.keys));
        coordinates(e, "down", &p.rows);
        e.lanes("across", &along, width, |e| {
            let counts = self.counts(e);
            e.line(format!("counts = counts || {counts};"));
        });
        e.close();
        e.close();
    }

    /// Whether an element is not masked.
    fn counts(&self, e: &mut Emitter<'_>) -> String {
        let one = |mask: &Mask| match mask {
            Mask::Condition(of, truth, true) => e.truth_of(*of, truth),
            Mask::Condition(of, truth, false) => format!("!{}", e.truth_of(*of, truth)),
            Mask::Term(of, term) => {
                let term = e.real_of(*of, false, term);
                // Not below: what is not a number counts.
                format!("!({term} <= {})", spell::float(LOWEST, false))
            }
        };
        format!("({})", self.masks.iter().map(one).collect::<Vec<_>>().join(" && "))
    }
}

/// The number that a float of a value's code is, if it is one; `body` is the code of a value.
pub fn number<'p>(
    program: &Program,
    body: &impl Fn(Value) -> Option<&'p Body>,
    of: Value,
    r: &Real,
) -> Option<f64> {
    match r {
        Real::Const(n) => Some(*n),
        Real::Round(_, r) => number(program, body, of, r),
        Real::Read(read) if read.otherwise.is_none() => {
            let source = *program.node(of.node).args.get(read.input)?;
            match (program.as_const(source), body(source)) {
                (Some(t), _) => t.splat().map(|_| t.get_f64(0)),
                (None, Some(Body::Real(r))) => number(program, body, source, r),
                (None, Some(Body::Int(..)) | None) => None,
            }
        }
        _ => None,
    }
}

/// Whether masked scores may be finite.
fn has_turns(e: &impl AttentionWriter) -> bool {
    e.hidden().is_some_and(|largest| largest != f64::NEG_INFINITY)
}

/// The largest score below which, or at which, masked scores count.
fn bound(e: &impl AttentionWriter) -> String {
    spell::float(e.hidden().unwrap_or(f64::NEG_INFINITY) + FAR, false)
}

/// Opens the turns over all keys, if there are masks. Of `count` rows of a thread, `row` is the place of the one of number `i`, and `tops`
/// names the largest of its elements, once it has written what that takes.
pub fn open_turns<E: AttentionWriter>(
    e: &mut E,
    count: i64,
    row: &str,
    tops: impl FnOnce(&mut E) -> String,
) {
    let warps = e.tiling().threads / 32;
    if e.hidden().is_some() && warps > 1 {
        e.line(format!("SHARED(int, anywhere, {warps});"));
    }
    if !has_turns(e) {
        return;
    }
    e.open("for (int turn = 0; turn < 2; ++turn)");
    e.open("if (turn == 1)");
    e.line("bool is_low = false;");
    let (top, queries, bound) = (tops(e), e.queries(), bound(e));
    let low = format!("is_low = is_low || ({row} < {queries} && {top} <= {bound});");
    e.line("#pragma unroll");
    e.line(format!("for (int i = 0; i < {count}; ++i) {low}"));
    let any = any_of_block(e, "is_low", warps);
    e.line(format!("if (!({any})) break;"));
    e.close();
}

/// The same where each warp has keys of its own, and all rows: what is low in all of them is.
pub fn open_turns_of_warps(e: &mut impl AttentionWriter) {
    if !has_turns(e) {
        return;
    }
    let c = e.tiling();
    let (rows, warps) = (c.rows, c.threads / 32);
    e.line(format!("SHARED(float, highest, {});", rows * i64::from(warps)));
    e.open("for (int turn = 0; turn < 2; ++turn)");
    e.open("if (turn == 1)");
    e.line("#pragma unroll");
    e.line(format!(
        "for (int r = 0; r < {rows}; ++r) if (own == r) highest[warp * {rows} + r] = most[r];"
    ));
    e.line("__syncthreads();");
    e.line("bool is_low = false;");
    let queries = e.queries();
    e.open(&format!("for (int r = 0; r < {queries}; ++r)"));
    e.line("float top = highest[r];");
    let next = format!("highest[i * {rows} + r]");
    e.line(format!("for (int i = 1; i < {warps}; ++i) top = fmaxf(top, {next});"));
    let bound = bound(e);
    e.line(format!("is_low = is_low || top <= {bound};"));
    e.close();
    e.line("if (!is_low) break;");
    e.close();
}

/// Closes the passes.
pub fn close_turns(e: &mut impl AttentionWriter) {
    if has_turns(e) {
        e.close();
    }
}

/// Continues with the next tile where this pass skips one.
pub fn leave_out(e: &mut impl AttentionWriter) {
    let threads = e.tiling().threads;
    leave_out_of(e, "threadIdx.x", threads);
}

/// The same of a warp, if there are masks.
pub fn leave_out_of_warp(e: &mut impl AttentionWriter) {
    if e.hidden().is_some() {
        leave_out_of(e, "own", 32);
    }
}

/// The same of the threads that have a tile: the number of one, and how many there are.
fn leave_out_of(e: &mut impl AttentionWriter, own: &str, threads: u32) {
    e.declare_counts(own, threads);
    let any = any_of_block(e, "counts", threads / 32);
    match has_turns(e) {
        true => e.line(format!("if (({any}) == (turn == 1)) continue;")),
        false => e.line(format!("if (!({any})) continue;")),
    }
}

/// Whether something holds for a thread of the block; all threads learn it.
fn any_of_block(e: &mut impl AttentionWriter, text: &str, warps: u32) -> String {
    if warps == 1 {
        return format!("__any_sync(0xffffffffu, {text}) != 0");
    }
    e.line(format!("bool of_warp = __any_sync(0xffffffffu, {text}) != 0;"));
    e.line("if (threadIdx.x % 32 == 0) anywhere[threadIdx.x / 32] = of_warp;");
    e.line("__syncthreads();");
    e.line("bool any = false;");
    e.line(format!("for (int i = 0; i < {warps}; ++i) any = any || anywhere[i] != 0;"));
    e.line("__syncthreads();");
    "any".into()
}
