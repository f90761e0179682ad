//! The int8 micro-kernel: u8 × i8 dot products of four bytes, accumulated in i32.
//!
//! Never saturates: accumulators wrap, so every instruction set gives the same bits.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vnni;

use mlc_vector::simd::{VectorLevel, level};
use std::sync::OnceLock;

/// Rows of a tile.
pub const ROWS: usize = 6;
/// Columns of a tile.
pub const COLUMNS: usize = 64;
/// Columns of a vector; a tile has one to four vectors.
pub const LANES: usize = 16;

/// The operand whose bytes are signed; the other is unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedSide {
    /// The rows.
    Left,
    /// The columns.
    Right,
}

/// The columns of a product: groups of four bytes along the depth, with the offset of each group.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    /// Four bytes per column.
    pub groups: &'a [u32],
    /// The first column of each group of the depth.
    pub offsets: &'a [usize],
    /// The largest offset.
    pub reach: usize,
}

/// The rows of a product: bytes in the order of the depth, padded to whole groups.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// Row after row.
    pub bytes: &'a [u8],
    /// Bytes from one row to the next.
    pub stride: usize,
}

/// The rows and columns of a tile.
#[derive(Clone, Copy)]
pub struct TileRange {
    /// The first row.
    pub row: usize,
    /// Rows.
    pub count: usize,
    /// The first column.
    pub column: usize,
    /// Vectors of [`LANES`] columns.
    pub vectors: usize,
}

/// Initial values of a tile's accumulators.
#[derive(Clone, Copy)]
pub struct InitialSums<'a> {
    /// A summand for each row.
    pub rows: [i32; ROWS],
    /// A summand for each column.
    pub columns: Option<&'a [i32]>,
}

/// The instructions that tiles use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InstructionSet {
    /// Four products and their sum in one instruction.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// Bytes widened to 16 bits, whose products are summed in pairs.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Four products and their sum in one instruction, for bytes of one kind.
    #[cfg(target_arch = "aarch64")]
    Neon,
    Portable,
}

fn path() -> InstructionSet {
    static PATH: OnceLock<InstructionSet> = OnceLock::new();
    *PATH.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            if level() == VectorLevel::V4 && is_x86_feature_detected!("avx512vnni") {
                return InstructionSet::Vnni;
            }
            if level() >= VectorLevel::V3 {
                return InstructionSet::Avx2;
            }
        }
        #[cfg(target_arch = "aarch64")]
        if level() == VectorLevel::Neon && std::arch::is_aarch64_feature_detected!("dotprod") {
            return InstructionSet::Neon;
        }
        let _ = (level(), VectorLevel::Base);
        InstructionSet::Portable
    })
}

/// Whether tiles use AVX-512 VNNI.
pub fn has_vnni() -> bool {
    #[cfg(target_arch = "x86_64")]
    return path() == InstructionSet::Vnni;
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Computes a tile. Row `r` of it begins at `out[r * stride]`.
pub fn tile(
    signed: SignedSide,
    a: Rows<'_>,
    b: Columns<'_>,
    TileRange { row, count, column, vectors }: TileRange,
    start: &InitialSums<'_>,
    out: &mut [i32],
    stride: usize,
) {
    let (wide, depth) = (vectors * LANES, 4 * b.offsets.len());
    assert!((1..=ROWS).contains(&count) && (1..=COLUMNS / LANES).contains(&vectors));
    assert!(
        depth <= a.stride && (row + count) * a.stride <= a.bytes.len(),
        "rows lie inside the bytes"
    );
    assert!(b.reach + column + wide <= b.groups.len(), "columns lie inside the groups");
    assert!((count - 1) * stride + wide <= out.len(), "the tile lies inside the result");
    assert!(start.columns.is_none_or(|c| wide <= c.len()), "a summand per column");
    debug_assert!(b.offsets.iter().all(|&o| o <= b.reach));
    let t = CheckedTile {
        a: a.bytes[row * a.stride..].as_ptr(),
        lead: a.stride,
        b: b.groups[column..].as_ptr(),
        offsets: b.offsets,
        start,
        out: out.as_mut_ptr(),
        stride,
    };
    // SAFETY: the instructions are there, and the assertions above keep every access inside its slice.
    unsafe {
        match (path(), signed) {
            #[cfg(target_arch = "x86_64")]
            (InstructionSet::Vnni, SignedSide::Left) => x86::vnni::<true>(&t, count, vectors),
            #[cfg(target_arch = "x86_64")]
            (InstructionSet::Vnni, SignedSide::Right) => x86::vnni::<false>(&t, count, vectors),
            #[cfg(target_arch = "x86_64")]
            (InstructionSet::Avx2, SignedSide::Left) => x86::avx2::<true>(&t, count, vectors),
            #[cfg(target_arch = "x86_64")]
            (InstructionSet::Avx2, SignedSide::Right) => x86::avx2::<false>(&t, count, vectors),
            #[cfg(target_arch = "aarch64")]
            (InstructionSet::Neon, SignedSide::Left) => neon::tile::<true>(&t, count, vectors),
            #[cfg(target_arch = "aarch64")]
            (InstructionSet::Neon, SignedSide::Right) => neon::tile::<false>(&t, count, vectors),
            (InstructionSet::Portable, _) => portable(&t, count, vectors, signed),
        }
    }
}

/// A checked tile.
pub(super) struct CheckedTile<'a> {
    pub(super) a: *const u8,
    pub(super) lead: usize,
    pub(super) b: *const u32,
    pub(super) offsets: &'a [usize],
    pub(super) start: &'a InitialSums<'a>,
    pub(super) out: *mut i32,
    pub(super) stride: usize,
}

impl CheckedTile<'_> {
    /// Four bytes of a row.
    ///
    /// # Safety
    /// The tile has the row and the group.
    #[inline(always)]
    pub(super) unsafe fn left(&self, row: usize, group: usize) -> i32 {
        // SAFETY: inside the rows, by the caller.
        unsafe { self.a.add(row * self.lead + 4 * group).cast::<i32>().read_unaligned() }
    }

    /// The initial sum of a column of row `row`.
    ///
    /// # Safety
    /// The tile has the column.
    #[inline(always)]
    unsafe fn begin(&self, row: usize, column: usize) -> i32 {
        let own = self.start.rows[row];
        // SAFETY: inside the columns, by the caller.
        self.start.columns.map_or(own, |c| own.wrapping_add(unsafe { *c.get_unchecked(column) }))
    }
}

/// # Safety
/// As [`tile`] asserts.
unsafe fn portable(t: &CheckedTile<'_>, count: usize, vectors: usize, signed: SignedSide) {
    let bytes = |word: u32, sign: bool| {
        word.to_le_bytes().map(|b| if sign { b as i8 as i32 } else { b as i32 })
    };
    for r in 0..count {
        for v in 0..vectors {
            let mut sums = [0i32; LANES];
            for (c, s) in sums.iter_mut().enumerate() {
                // SAFETY: inside the tile.
                *s = unsafe { t.begin(r, v * LANES + c) };
            }
            for (g, &o) in t.offsets.iter().enumerate() {
                // SAFETY: inside the rows.
                let a = bytes(unsafe { t.left(r, g) } as u32, signed == SignedSide::Left);
                for (c, s) in sums.iter_mut().enumerate() {
                    // SAFETY: inside the groups.
                    let word = unsafe { *t.b.add(o + v * LANES + c) };
                    let b = bytes(word, signed == SignedSide::Right);
                    let sum = a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
                    *s = s.wrapping_add(sum);
                }
            }
            for (c, s) in sums.into_iter().enumerate() {
                // SAFETY: inside the result.
                unsafe { *t.out.add(r * t.stride + v * LANES + c) = s };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CheckedTile, LANES};
    use std::arch::x86_64::*;

    /// Calls a function of as many rows and vectors as there are.
    macro_rules! sized {
        ($f:ident::<$left:ident>, $t:expr, $count:expr, $vectors:expr) => {
            match ($count, $vectors) {
                (1, 1) => $f::<$left, 1, 1>($t),
                (1, 2) => $f::<$left, 1, 2>($t),
                (1, 3) => $f::<$left, 1, 3>($t),
                (1, _) => $f::<$left, 1, 4>($t),
                (2, 1) => $f::<$left, 2, 1>($t),
                (2, 2) => $f::<$left, 2, 2>($t),
                (2, 3) => $f::<$left, 2, 3>($t),
                (2, _) => $f::<$left, 2, 4>($t),
                (3, 1) => $f::<$left, 3, 1>($t),
                (3, 2) => $f::<$left, 3, 2>($t),
                (3, 3) => $f::<$left, 3, 3>($t),
                (3, _) => $f::<$left, 3, 4>($t),
                (4, 1) => $f::<$left, 4, 1>($t),
                (4, 2) => $f::<$left, 4, 2>($t),
                (4, 3) => $f::<$left, 4, 3>($t),
                (4, _) => $f::<$left, 4, 4>($t),
                (5, 1) => $f::<$left, 5, 1>($t),
                (5, 2) => $f::<$left, 5, 2>($t),
                (5, 3) => $f::<$left, 5, 3>($t),
                (5, _) => $f::<$left, 5, 4>($t),
                (_, 1) => $f::<$left, 6, 1>($t),
                (_, 2) => $f::<$left, 6, 2>($t),
                (_, 3) => $f::<$left, 6, 3>($t),
                (_, _) => $f::<$left, 6, 4>($t),
            }
        };
    }

    /// # Safety
    /// As [`super::tile`] asserts; the machine has AVX-512 with VNNI.
    pub unsafe fn vnni<const LEFT: bool>(t: &CheckedTile<'_>, count: usize, vectors: usize) {
        // SAFETY: by the contract.
        unsafe { sized!(vnni_tile::<LEFT>, t, count, vectors) }
    }

    /// # Safety
    /// As [`super::tile`] asserts; the machine has AVX-512 with VNNI.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn vnni_tile<const LEFT: bool, const R: usize, const V: usize>(t: &CheckedTile<'_>) {
        // SAFETY: rows, groups and columns are inside the tile.
        unsafe {
            let mut sums = [[_mm512_setzero_si512(); V]; R];
            for (r, row) in sums.iter_mut().enumerate() {
                for (v, s) in row.iter_mut().enumerate() {
                    *s = _mm512_set1_epi32(t.start.rows[r]);
                    if let Some(c) = t.start.columns {
                        *s = _mm512_add_epi32(
                            *s,
                            _mm512_loadu_si512(c.as_ptr().add(v * LANES).cast()),
                        );
                    }
                }
            }
            for (g, &o) in t.offsets.iter().enumerate() {
                let mut b = [_mm512_setzero_si512(); V];
                for (v, b) in b.iter_mut().enumerate() {
                    *b = _mm512_loadu_si512(t.b.add(o + v * LANES).cast());
                }
                for (r, row) in sums.iter_mut().enumerate() {
                    let a = _mm512_set1_epi32(t.left(r, g));
                    for (s, &b) in row.iter_mut().zip(&b) {
                        *s = match LEFT {
                            true => _mm512_dpbusd_epi32(*s, b, a),
                            false => _mm512_dpbusd_epi32(*s, a, b),
                        };
                    }
                }
            }
            for (r, row) in sums.iter().enumerate() {
                for (v, &s) in row.iter().enumerate() {
                    _mm512_storeu_si512(t.out.add(r * t.stride + v * LANES).cast(), s);
                }
            }
        }
    }

    /// # Safety
    /// As [`super::tile`] asserts; the machine has AVX2.
    pub unsafe fn avx2<const LEFT: bool>(t: &CheckedTile<'_>, count: usize, vectors: usize) {
        // SAFETY: by the contract.
        unsafe { sized!(avx2_tile::<LEFT>, t, count, vectors) }
    }

    /// Eight columns at a time. A sum of two products of a byte and a signed byte needs 17 bits, so nothing overflows.
    ///
    /// # Safety
    /// As [`super::tile`] asserts; the machine has AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn avx2_tile<const LEFT: bool, const R: usize, const V: usize>(t: &CheckedTile<'_>) {
        const STEP: usize = 8;
        // SAFETY: rows, groups and columns are inside the tile.
        unsafe {
            for c in (0..V * LANES).step_by(STEP) {
                // Pairs of products of four columns each.
                let mut sums = [[_mm256_setzero_si256(); 2]; R];
                for (g, &o) in t.offsets.iter().enumerate() {
                    let low = _mm_loadu_si128(t.b.add(o + c).cast());
                    let high = _mm_loadu_si128(t.b.add(o + c + STEP / 2).cast());
                    let b = match LEFT {
                        true => [_mm256_cvtepu8_epi16(low), _mm256_cvtepu8_epi16(high)],
                        false => [_mm256_cvtepi8_epi16(low), _mm256_cvtepi8_epi16(high)],
                    };
                    for (r, row) in sums.iter_mut().enumerate() {
                        let four = _mm_cvtsi32_si128(t.left(r, g));
                        let wide =
                            if LEFT { _mm_cvtepi8_epi16(four) } else { _mm_cvtepu8_epi16(four) };
                        let a = _mm256_broadcastq_epi64(wide);
                        for (s, &b) in row.iter_mut().zip(&b) {
                            *s = _mm256_add_epi32(*s, _mm256_madd_epi16(a, b));
                        }
                    }
                }
                for (r, row) in sums.iter().enumerate() {
                    // Neighbours are added within halves of the register: columns 0, 1, 4, 5 and 2, 3, 6, 7.
                    let joined = _mm256_hadd_epi32(row[0], row[1]);
                    let mut sum = _mm256_permute4x64_epi64::<0b11_01_10_00>(joined);
                    sum = _mm256_add_epi32(sum, _mm256_set1_epi32(t.start.rows[r]));
                    if let Some(columns) = t.start.columns {
                        let more = _mm256_loadu_si256(columns.as_ptr().add(c).cast());
                        sum = _mm256_add_epi32(sum, more);
                    }
                    _mm256_storeu_si256(t.out.add(r * t.stride + c).cast(), sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_yields_the_sums_of_the_definition() {
        let (rows, depth, width) = (6, 12, 64 + 7);
        let byte = |i: usize| (i.wrapping_mul(2654435761) >> 7) as u8;
        let a: Vec<u8> =
            (0..rows * depth).map(byte).map(|b| if b < 20 { 128 } else { b }).collect();
        let groups: Vec<u32> = (0..3 * width + 64)
            .map(|i| u32::from_le_bytes([byte(4 * i), 255, byte(4 * i + 2), 128]))
            .collect();
        let offsets = [0, width, 2 * width];
        let columns: Vec<i32> = (0..64).map(|i| i * 1000 - 7).collect();
        for signed in [SignedSide::Left, SignedSide::Right] {
            for count in 1..=ROWS {
                for vectors in 1..=4 {
                    for with in [false, true] {
                        let start = InitialSums {
                            rows: [1, -2, 3, i32::MAX, 5, -6],
                            columns: with.then_some(&columns[..]),
                        };
                        let t = CheckedTile {
                            a: a.as_ptr(),
                            lead: depth,
                            b: groups[5..].as_ptr(),
                            offsets: &offsets,
                            start: &start,
                            out: std::ptr::null_mut(),
                            stride: 70,
                        };
                        let mut expected = vec![0i32; 6 * 70];
                        // SAFETY: all slices are large enough.
                        unsafe {
                            portable(
                                &CheckedTile { out: expected.as_mut_ptr(), ..t },
                                count,
                                vectors,
                                signed,
                            )
                        };
                        let value = |b: u8, s| if signed == s { b as i8 as i32 } else { b as i32 };
                        for r in 0..count {
                            for c in 0..vectors * LANES {
                                let mut sum =
                                    start.rows[r].wrapping_add(if with { columns[c] } else { 0 });
                                for k in 0..depth {
                                    let word = groups[5 + c + k / 4 * width].to_le_bytes();
                                    let product = value(a[r * depth + k], SignedSide::Left)
                                        * value(word[k % 4], SignedSide::Right);
                                    sum = sum.wrapping_add(product);
                                }
                                assert_eq!(expected[r * 70 + c], sum);
                            }
                        }
                        let mut found = vec![0i32; 6 * 70];
                        let b = Columns { groups: &groups, offsets: &offsets, reach: 2 * width };
                        let rows = Rows { bytes: &a, stride: depth };
                        let range = TileRange { row: 0, count, column: 5, vectors };
                        tile(signed, rows, b, range, &start, &mut found, 70);
                        assert_eq!(found, expected, "{signed:?} {count} {vectors}");
                        #[cfg(target_arch = "x86_64")]
                        if is_x86_feature_detected!("avx2") {
                            let mut found = vec![0i32; 6 * 70];
                            let t = CheckedTile { out: found.as_mut_ptr(), ..t };
                            // SAFETY: detected, and all slices are large enough.
                            unsafe {
                                match signed {
                                    SignedSide::Left => x86::avx2::<true>(&t, count, vectors),
                                    SignedSide::Right => x86::avx2::<false>(&t, count, vectors),
                                }
                            }
                            assert_eq!(found, expected, "{signed:?} {count} {vectors}");
                        }
                    }
                }
            }
        }
    }
}
