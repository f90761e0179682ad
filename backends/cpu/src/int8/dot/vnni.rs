//! Register tiles on AVX-512 with VNNI: rows of unsigned bytes that lie anywhere by packed columns of signed ones, or each
//! channel by its own weights, and the steps that requantize_rows while the sums are in registers.

use super::super::epilogue::requantize::{
    DenseElements, DenseOperand, Operand, OutputType, RequantizeStep, RequantizeSteps, Sign,
};
use super::COLUMNS;
use mlc_vector::arrays::array;
use std::arch::x86_64::*;

/// Sums of a vector.
const LANES: usize = 16;

/// Rows of bytes: a pointer for each row and piece.
#[derive(Clone, Copy)]
pub struct PointerRows<'a> {
    /// The pointers, piece by piece.
    pub pointers: &'a [*const u8],
    /// Pointers of a piece, and the first row's among them.
    pub apart: usize,
    pub first: usize,
    /// Groups of four bytes of a piece.
    pub groups: usize,
}

/// Zero points of columns, which are multiplied with the sums of rows and taken off.
#[derive(Clone, Copy)]
pub struct ZeroPoints<'a> {
    /// From the tile's first column on.
    pub zeros: &'a [i32],
    /// From the tile's first row on.
    pub row_sums: &'a [i32],
}

impl<'a> ZeroPoints<'a> {
    fn beginning_at(self, row: usize) -> ZeroPoints<'a> {
        ZeroPoints { row_sums: &self.row_sums[row..], ..self }
    }
}

/// What sums begin with.
#[derive(Clone, Copy)]
pub struct InitialSums<'a> {
    /// A summand for each column.
    pub columns: &'a [i32],
    pub shifted: Option<ZeroPoints<'a>>,
}

/// Where a tile's results go.
#[derive(Clone, Copy)]
pub struct OutputTile<'a> {
    /// The whole result, and its bytes.
    pub out: *mut u8,
    pub len: usize,
    pub steps: &'a RequantizeSteps<'a>,
    /// Columns of the result.
    pub n: usize,
    /// The first row and column, and the columns that count.
    pub row: usize,
    pub column: usize,
    pub wide: usize,
}

impl OutputTile<'_> {
    /// Panics unless the results of so many rows lie inside, and the operands of steps cover them.
    fn covers(&self, rows: usize) {
        let size = match self.steps.written {
            OutputType::Floats => 4,
            OutputType::Bytes(_) => 1,
        };
        let end = (self.row + rows - 1) * self.n + self.column + self.wide;
        assert!((1..=COLUMNS).contains(&self.wide) && self.column + self.wide <= self.n);
        assert!(end * size <= self.len, "tiles inside the result");
        self.steps.covers(end);
    }

    /// The elements of vector `v` that count.
    #[inline(always)]
    fn mask(&self, v: usize) -> __mmask16 {
        let count = self.wide.saturating_sub(v * LANES).min(LANES);
        ((1u32 << count) - 1) as __mmask16
    }
}

/// Computes rows `rows.first..rows.first + count` by the columns of a packed panel, as many vectors as hold `to.wide`, and writes what the
/// steps make of them.
///
/// # Safety
/// The machine has AVX-512 (F, BW, VL) and VNNI. Behind every pointer are all groups of its piece. The results are valid for writes and not
/// aliased.
pub unsafe fn tiles(
    rows: PointerRows<'_>,
    count: usize,
    panel: &[u32],
    begin: InitialSums<'_>,
    to: &OutputTile<'_>,
) {
    let vectors = to.wide.div_ceil(LANES);
    assert!(rows.apart > 0 && rows.first + count <= rows.apart, "a pointer for each row");
    let pieces = rows.pointers.len() / rows.apart;
    assert!(panel.len() >= pieces * rows.groups * COLUMNS, "the panel holds the depth");
    let fits = |s: &ZeroPoints<'_>| s.zeros.len() >= vectors * LANES && s.row_sums.len() >= count;
    assert!(begin.columns.len() >= vectors * LANES && begin.shifted.as_ref().is_none_or(fits));
    to.covers(count);
    let mut done = 0;
    while done < count {
        let rows = PointerRows { first: rows.first + done, ..rows };
        let to = OutputTile { row: to.row + done, ..*to };
        let begin = InitialSums { shifted: begin.shifted.map(|s| s.beginning_at(done)), ..begin };
        let left = count - done;
        macro_rules! call {
            ($($v:literal: $($r:literal)*;)*) => {
                match (vectors, left) {
                    // SAFETY: by the contract and the assertions.
                    $($(($v, $r..) => unsafe { tile::<$r, $v>(rows, panel, begin, &to); $r })*)*
                    // There is a row and a vector.
                    _ => left,
                }
            };
        }
        done += call! {
            1: 12 8 6 4 3 2 1;
            2: 8 6 4 3 2 1;
            3: 6 5 4 3 2 1;
            4: 6 5 4 3 2 1;
        };
    }
}

/// # Safety
/// As [`tiles`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn tile<const R: usize, const V: usize>(
    rows: PointerRows<'_>,
    panel: &[u32],
    begin: InitialSums<'_>,
    to: &OutputTile<'_>,
) {
    // SAFETY: pointers, panel and results are as promised.
    unsafe {
        let mut sums = [[_mm512_setzero_si512(); V]; R];
        for row in &mut sums {
            for (v, s) in row.iter_mut().enumerate() {
                *s = _mm512_loadu_si512(begin.columns.as_ptr().add(v * LANES).cast());
            }
        }
        if let Some(shifted) = begin.shifted {
            for (r, row) in sums.iter_mut().enumerate() {
                let sum = _mm512_set1_epi32(*shifted.row_sums.get_unchecked(r));
                for (v, s) in row.iter_mut().enumerate() {
                    let zeros = _mm512_loadu_si512(shifted.zeros.as_ptr().add(v * LANES).cast());
                    *s = _mm512_sub_epi32(*s, _mm512_mullo_epi32(zeros, sum));
                }
            }
        }
        let mut line = panel.as_ptr();
        for pointers in rows.pointers.chunks_exact(rows.apart) {
            let at: [*const u8; R] = array(|r| *pointers.get_unchecked(rows.first + r));
            for g in 0..rows.groups {
                let mut weights = [_mm512_setzero_si512(); V];
                for (v, w) in weights.iter_mut().enumerate() {
                    *w = _mm512_loadu_si512(line.add(v * LANES).cast());
                }
                line = line.add(COLUMNS);
                for (row, at) in sums.iter_mut().zip(at) {
                    let four = at.add(4 * g).cast::<i32>().read_unaligned();
                    let x = _mm512_set1_epi32(four);
                    for (s, &w) in row.iter_mut().zip(&weights) {
                        *s = _mm512_dpbusd_epi32(*s, x, w);
                    }
                }
            }
        }
        let x = followed(sums, to);
        for (r, x) in x.into_iter().enumerate() {
            let at = (to.row + r) * to.n + to.column;
            match to.steps.written {
                OutputType::Floats => {
                    for (v, &x) in x.iter().enumerate() {
                        let to_floats = to.out.cast::<f32>().add(at + v * LANES);
                        _mm512_mask_storeu_ps(to_floats, to.mask(v), x);
                    }
                }
                OutputType::Bytes(sign) if V == 4 && to.wide == COLUMNS => {
                    let bytes = packed([x[0], x[1 % V], x[2 % V], x[3 % V]], sign);
                    let order =
                        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
                    let bytes = _mm512_permutexvar_epi32(order, bytes);
                    _mm512_storeu_si512(to.out.add(at).cast(), bytes);
                }
                OutputType::Bytes(_) => {
                    for (v, &x) in x.iter().enumerate() {
                        let to_bytes = to.out.add(at + v * LANES).cast();
                        _mm512_mask_cvtepi32_storeu_epi8(
                            to_bytes,
                            to.mask(v),
                            _mm512_cvttps_epi32(x),
                        );
                    }
                }
            }
        }
    }
}

/// Numbers of a byte's range, or NaN, as bytes: in each quarter of the register those of the same quarter of the four vectors.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn packed(x: [__m512; 4], sign: Sign) -> __m512i {
    let cut = |x: __m512| match sign {
        // NaN is cut to the least number, which saturates to 0.
        Sign::Unsigned => _mm512_cvttps_epi32(x),
        Sign::Signed => _mm512_maskz_cvttps_epi32(_mm512_cmp_ps_mask::<_CMP_ORD_Q>(x, x), x),
    };
    let low = _mm512_packs_epi32(cut(x[0]), cut(x[1]));
    let high = _mm512_packs_epi32(cut(x[2]), cut(x[3]));
    match sign {
        Sign::Unsigned => _mm512_packus_epi16(low, high),
        Sign::Signed => _mm512_packs_epi16(low, high),
    }
}

/// What the steps make of sums.
///
/// # Safety
/// The operands of steps cover the tile.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn followed<const R: usize, const V: usize>(
    sums: [[__m512i; V]; R],
    to: &OutputTile<'_>,
) -> [[__m512; V]; R] {
    let mut sums = sums;
    if !to.steps.summands.is_empty() {
        for v in 0..V {
            // SAFETY: the summands of columns have whole tiles.
            let y = unsafe {
                let from = to.steps.summands.as_ptr().add(to.column + v * LANES);
                _mm512_loadu_si512(from.cast())
            };
            for row in &mut sums {
                row[v] = _mm512_add_epi32(row[v], y);
            }
        }
    }
    let mut x = [[_mm512_setzero_ps(); V]; R];
    for r in 0..R {
        for v in 0..V {
            x[r][v] = _mm512_cvtepi32_ps(sums[r][v]);
        }
    }
    macro_rules! each {
        ($x:ident => $body:expr) => {
            for row in &mut x {
                for value in row.iter_mut() {
                    let $x = *value;
                    *value = $body;
                }
            }
        };
    }
    macro_rules! combine {
        ($operand:expr, $f:ident) => {
            match $operand {
                Operand::Number(y) => {
                    let y = _mm512_set1_ps(y);
                    each!(x => $f(x, y))
                }
                Operand::Column(first) => {
                    for v in 0..V {
                        let from = to.steps.columns.as_ptr().add(first + to.column + v * LANES);
                        let y = _mm512_loadu_ps(from);
                        for row in &mut x {
                            row[v] = $f(row[v], y);
                        }
                    }
                }
                Operand::Dense(side) => {
                    for r in 0..R {
                        let at = (to.row + r) * to.n + to.column;
                        for v in 0..V {
                            let y = elements(side, at + v * LANES, to.mask(v));
                            x[r][v] = $f(x[r][v], y);
                        }
                    }
                }
            }
        };
    }
    // SAFETY: operands of columns have whole tiles; the caller promises the rest.
    unsafe {
        for step in &to.steps.steps {
            match *step {
                RequantizeStep::Add(o) => combine!(o, _mm512_add_ps),
                RequantizeStep::Mul(o) => combine!(o, _mm512_mul_ps),
                RequantizeStep::Div(o) => combine!(o, _mm512_div_ps),
                // The second operand is taken if either is NaN or both are zeros; then a zero becomes a positive one.
                RequantizeStep::Max(0.0) => {
                    let zero = _mm512_setzero_ps();
                    each!(x => _mm512_add_ps(_mm512_max_ps(zero, x), zero))
                }
                RequantizeStep::Max(y) => {
                    let y = _mm512_set1_ps(y);
                    each!(x => _mm512_max_ps(y, x))
                }
                RequantizeStep::Min(y) => {
                    let y = _mm512_set1_ps(y);
                    each!(x => _mm512_min_ps(y, x))
                }
                RequantizeStep::Round => each!(x => _mm512_roundscale_ps::<0x08>(x)),
                RequantizeStep::Byte(Sign::Unsigned) => each!(x => {
                    let byte = _mm512_and_si512(_mm512_cvttps_epi32(x), _mm512_set1_epi32(0xff));
                    _mm512_cvtepi32_ps(byte)
                }),
                RequantizeStep::Byte(Sign::Signed) => each!(x => {
                    let byte = _mm512_slli_epi32::<24>(_mm512_cvttps_epi32(x));
                    _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(byte))
                }),
            }
        }
    }
    x
}

/// Elements of an array from a place on.
///
/// # Safety
/// The array has those that the mask names.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn elements(side: DenseOperand<'_>, at: usize, mask: __mmask16) -> __m512 {
    // SAFETY: the mask confines the access.
    let x = unsafe {
        match side.elements {
            DenseElements::Floats(d) => _mm512_maskz_loadu_ps(mask, d.as_ptr().add(at)),
            DenseElements::Unsigned(d) => {
                let bytes = _mm_maskz_loadu_epi8(mask, d.as_ptr().add(at).cast());
                _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))
            }
            DenseElements::Signed(d) => {
                let bytes = _mm_maskz_loadu_epi8(mask, d.as_ptr().add(at).cast());
                _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
            }
        }
    };
    let shifted = _mm512_add_ps(x, _mm512_set1_ps(side.shift));
    _mm512_mul_ps(shifted, _mm512_set1_ps(side.scale))
}

/// Rows of a tile of [`depthwise`].
const DEEP: usize = 4;

/// The channel of a tile that element `i` of its sums belongs to: unpacking leaves them in this order.
pub fn depthwise_order(i: usize) -> usize {
    let (tile, i) = (i / COLUMNS * COLUMNS, i % COLUMNS);
    tile + i % LANES / 4 * LANES + i / LANES * 4 + i % 4
}

/// Computes rows `rows.first..rows.first + count` of the channels from `to.column` on, each with its own weights: a pointer of `rows` is
/// to channel 0 of a tap, and a group of the packed weights holds four taps of [`COLUMNS`] channels in the order of [`depthwise_order`], as
/// what sums begin with and the steps' operands of columns do.
///
/// # Safety
/// As [`tiles`]; behind every pointer are all channels.
pub unsafe fn depthwise(
    rows: PointerRows<'_>,
    count: usize,
    weights: &[u32],
    begin: &[i32],
    to: &OutputTile<'_>,
) {
    assert!(rows.apart > 0 && rows.first + count <= rows.apart, "a pointer for each row");
    let taps = rows.pointers.len() / rows.apart;
    assert!(weights.len() >= taps.div_ceil(4) * COLUMNS && begin.len() >= COLUMNS);
    assert!(!to.steps.has_sides, "steps of columns");
    to.covers(count);
    let mut done = 0;
    while done < count {
        let rows = PointerRows { first: rows.first + done, ..rows };
        let to = OutputTile { row: to.row + done, ..*to };
        // SAFETY: by the contract and the assertions.
        done += unsafe {
            match count - done {
                DEEP.. => deep::<DEEP>(rows, weights, begin, &to),
                2.. => deep::<2>(rows, weights, begin, &to),
                _ => deep::<1>(rows, weights, begin, &to),
            }
        };
    }
}

/// # Safety
/// As [`depthwise`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn deep<const R: usize>(
    rows: PointerRows<'_>,
    weights: &[u32],
    begin: &[i32],
    to: &OutputTile<'_>,
) -> usize {
    let mask = u64::MAX >> (COLUMNS - to.wide);
    // SAFETY: pointers, weights and results are as promised.
    unsafe {
        let mut sums = [[_mm512_setzero_si512(); 4]; R];
        for row in &mut sums {
            for (v, s) in row.iter_mut().enumerate() {
                *s = _mm512_loadu_si512(begin.as_ptr().add(v * LANES).cast());
            }
        }
        let mut line = weights.as_ptr();
        for taps in rows.pointers.chunks(4 * rows.apart) {
            let count = taps.len() / rows.apart;
            let mut w = [_mm512_setzero_si512(); 4];
            for (v, w) in w.iter_mut().enumerate() {
                *w = _mm512_loadu_si512(line.add(v * LANES).cast());
            }
            line = line.add(COLUMNS);
            for (r, row) in sums.iter_mut().enumerate() {
                let mut x = [_mm512_setzero_si512(); 4];
                for (t, x) in x.iter_mut().enumerate().take(count) {
                    let from = *taps.get_unchecked(t * rows.apart + rows.first + r);
                    *x = _mm512_maskz_loadu_epi8(mask, from.add(to.column).cast());
                }
                let low = [_mm512_unpacklo_epi8(x[0], x[1]), _mm512_unpacklo_epi8(x[2], x[3])];
                let high = [_mm512_unpackhi_epi8(x[0], x[1]), _mm512_unpackhi_epi8(x[2], x[3])];
                let fours = [
                    _mm512_unpacklo_epi16(low[0], low[1]),
                    _mm512_unpackhi_epi16(low[0], low[1]),
                    _mm512_unpacklo_epi16(high[0], high[1]),
                    _mm512_unpackhi_epi16(high[0], high[1]),
                ];
                for ((s, x), &w) in row.iter_mut().zip(fours).zip(&w) {
                    *s = _mm512_dpbusd_epi32(*s, x, w);
                }
            }
        }
        let x = followed(sums, to);
        for (r, x) in x.into_iter().enumerate() {
            let at = (to.row + r) * to.n + to.column;
            match to.steps.written {
                OutputType::Bytes(sign) => {
                    _mm512_mask_storeu_epi8(to.out.add(at).cast(), mask, packed(x, sign));
                }
                OutputType::Floats => {
                    let mut all = [0f32; COLUMNS];
                    for (v, x) in x.into_iter().enumerate() {
                        let mut four = [0f32; LANES];
                        _mm512_storeu_ps(four.as_mut_ptr(), x);
                        for (i, x) in four.into_iter().enumerate() {
                            all[depthwise_order(v * LANES + i)] = x;
                        }
                    }
                    let out = to.out.cast::<f32>().add(at);
                    std::ptr::copy_nonoverlapping(all.as_ptr(), out, to.wide);
                }
            }
        }
    }
    R
}
