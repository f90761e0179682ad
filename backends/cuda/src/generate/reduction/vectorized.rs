//! Vectorised short reductions with contiguous results, such as depthwise convolution and pooling with channels last: a thread has several
//! results, and reads vectors. Recognised by access patterns, not by the operator.

use super::super::THREADS;
use super::super::emit::{Emitter, vector_width, widest};
use super::super::grid::GridSize;
use super::super::product::Term;
use super::super::product::simt::open_unrolled;
use super::super::spelling::{self as spell, ScalarKind};
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Int, Real, Slot};
use mlc_backends::reference::scalar::Monoid;
use mlc_dsl::ir::{DType, Value};

/// Most elements of a reduction, and of one that is unrolled, so that its loads overlap.
const MOST: i64 = 256;
const UNROLLED: i64 = 32;

/// A vectorised reduction.
pub struct VectorizedReduction {
    of: Value,
    at: Vec<Int>,
    body: Term,
    over: Vec<(Slot, i64)>,
    monoid: Monoid,
    /// Results of a thread.
    width: i64,
}

impl VectorizedReduction {
    /// The reduction of a value, at these axes, that takes no other one; none along no axis, which has no loop.
    pub fn recognise(
        e: &mut Emitter<'_>,
        v: Value,
        index: &[Int],
        axes: &[(Slot, i64)],
    ) -> Option<VectorizedReduction> {
        let found = e.analyse(&[(v, index.to_vec())]).reductions;
        let [(of, at)] = found.as_slice() else { return None };
        let Body::Real(Real::Reduce(r)) = e.body_at(*of, at)? else { return None };
        let elements = r.over.iter().map(|o| o.1).fold(1, i64::saturating_mul);
        let has_loop = !r.over.is_empty() && (1..=MOST).contains(&elements);
        if !has_loop || !e.analyse_real(*of, &r.body).reductions.is_empty() {
            return None;
        }
        let (dtype, results) = (e.type_of(v), axes.iter().map(|a| a.1).product::<i64>());
        let processors = i64::from(e.kernel().tuning.processors);
        // As many side by side as leave no multiprocessor idle, but two.
        let all =
            [8, 4, 2].into_iter().filter(|&w| w <= widest(dtype) && vector_width(axes, w) == w);
        let all: Vec<i64> = all.collect();
        let busy = all.iter().find(|w| results / (*w * i64::from(THREADS)) >= processors);
        let width = *busy.or(all.last())?;
        let (of, at, monoid) = (*of, at.clone(), r.monoid);
        let wide =
            VectorizedReduction { of, at, body: Term::Real(r.body), over: r.over, monoid, width };
        let accesses = e.count_accesses(|e| wide.sum(e, axes));
        (accesses.vectorized > 0 && accesses.scalar == 0).then_some(wide)
    }

    /// Writes the function.
    pub fn write(
        &self,
        e: &mut Emitter<'_>,
        v: Value,
        dtype: DType,
        shape: &[i64],
        axes: &[(Slot, i64)],
    ) -> GridSize {
        let (kind, width) = (e.index_type(), self.width);
        let results = axes.iter().map(|a| a.1).product::<i64>();
        e.line(format!("{kind} at = (({kind})blockIdx.x * {THREADS} + threadIdx.x) * {width};"));
        e.line(format!("if (at >= {}) return;", spell::int(results)));
        self.sum(e, axes);
        let slots: Vec<Slot> = axes.iter().map(|a| a.0).collect();
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
        e.lanes("at", axes, width, |e| {
            e.bind(self.of, &self.at, "sum[lane]");
            let text = e.element(v, &index);
            e.store_result(dtype, shape, &slots, &text);
        });
        let blocks = ((results / width) as u64).div_ceil(THREADS.into());
        GridSize { blocks, threads: THREADS }
    }

    /// Writes the loops that combine the elements of a thread's results.
    fn sum(&self, e: &mut Emitter<'_>, axes: &[(Slot, i64)]) {
        let (width, double) = (self.width, e.double(self.of));
        let (kind, real) = (e.index_type(), spell::real(double));
        let (op, first) = spell::monoid(self.monoid, ScalarKind::Real(double));
        e.line(format!("{real} sum[{width}];"));
        open_unrolled(e, "lane", width);
        e.line(format!("sum[lane] = {first};"));
        e.close();
        let elements = self.over.iter().map(|o| o.1).product::<i64>();
        for &(slot, n) in &self.over {
            let i = Emitter::name(slot);
            if elements <= UNROLLED {
                e.line("#pragma unroll");
            }
            e.open(&format!("for ({kind} {i} = 0; {i} < {n}; ++{i})"));
        }
        e.lanes("at", axes, width, |e| {
            let value = e.term_of(self.of, double, &self.body);
            e.line(format!("sum[lane] = {op}()(sum[lane], ({real}){value});"));
        });
        self.over.iter().for_each(|_| e.close());
    }
}
