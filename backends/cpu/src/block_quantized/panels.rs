//! Block-quantised weights packed for products: sixteen rows interleaved, so that a vector holds a number of each; a group's scales and offsets
//! precede its numbers.
//!
//! A number is `scale * stored`, plus an offset. Never scales single numbers, only the sums of groups.

use crate::runtime::buffer::Buffer;
use mlc_vector::arrays::array;
use mlc_vector::simd::prefetch;
use mlc_vector::tile::shape;
use std::ops::Range;

/// Rows side by side.
pub const LANES: usize = 16;

/// What is added to scaled numbers, or taken off before, group by group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offset {
    /// Nothing.
    None,
    /// This is taken off all numbers.
    Same(f32),
    /// A whole number from 0 to 255 is taken off the numbers of each group; of signed ones, 128 less than that.
    Bytes,
    /// A number of 32 bits is taken off the numbers of each group.
    Less,
    /// A number of 16 bits is added to the scaled numbers of each group.
    Half,
    /// A number of 32 bits is.
    Single,
}

/// How the numbers of a matrix are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// Signed numbers of eight bits instead of unsigned ones of four.
    pub wide: bool,
    /// Numbers of a group: a multiple of eight.
    pub group: usize,
    /// Scales of 16 bits instead of 32. Numbers of 16 bits are finite.
    pub half: bool,
    pub offset: Offset,
}

impl Form {
    /// Bits of a number.
    pub const fn bits(self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// The same with numbers of 32 bits, which need not be finite.
    pub fn single(self) -> Form {
        let offset = if self.offset == Offset::Half { Offset::Single } else { self.offset };
        Form { half: false, offset, ..self }
    }

    /// Words of the scales of a group.
    pub fn scales(self) -> usize {
        if self.half { LANES / 2 } else { LANES }
    }

    /// Words before the numbers of a group.
    pub fn head(self) -> usize {
        let offsets = match self.offset {
            Offset::None | Offset::Same(_) => 0,
            Offset::Bytes => LANES / 4,
            Offset::Half => LANES / 2,
            Offset::Less | Offset::Single => LANES,
        };
        self.scales() + offsets
    }

    /// Words of a group.
    pub fn words(self) -> usize {
        self.head() + self.group * self.bits() / 32 * LANES
    }
}

/// One row while a matrix is packed.
pub struct Row<'a> {
    /// Stored numbers: of eight bits as their bits, all others below 16.
    pub numbers: &'a mut [u8],
    /// A scale for each group.
    pub scales: &'a mut [f32],
    /// What [`Offset`] says, unless it is the same for all.
    pub offsets: &'a mut [f32],
}

/// A packed matrix.
pub struct BlockPanels {
    pub form: Form,
    /// Rows.
    pub rows: usize,
    /// Numbers of a row.
    numbers: usize,
    /// Places of a row: numbers, and what fills up groups.
    pub depth: usize,
    /// Which number of a row stands at each place, if not the same; none that fills up a group.
    pub order: Option<Vec<Option<u32>>>,
    /// All scales and offsets are finite.
    pub finite: bool,
    words: Buffer,
}

impl BlockPanels {
    /// The matrix of rows of so many numbers at so many places, which `fill` writes: zeros at first.
    pub fn new(
        form: Form,
        rows: usize,
        numbers: usize,
        depth: usize,
        order: Option<Vec<Option<u32>>>,
        mut fill: impl FnMut(usize, Row<'_>),
    ) -> BlockPanels {
        let groups = depth / form.group;
        let size = groups * form.words();
        let mut words = Buffer::new(rows.div_ceil(LANES) * size * 4);
        let all: &mut [u32] = bytemuck::cast_slice_mut(words.bytes_mut());
        let mut stored = vec![0u8; depth];
        let (mut scales, mut offsets) = (vec![0f32; groups], vec![0f32; groups]);
        let mut finite = true;
        for row in 0..rows {
            stored.fill(0);
            scales.fill(0.0);
            offsets.fill(0.0);
            let to = Row { numbers: &mut stored, scales: &mut scales, offsets: &mut offsets };
            fill(row, to);
            finite &= scales.iter().chain(&offsets).all(|v| v.is_finite());
            let panel = &mut all[row / LANES * size..][..size];
            let groups = panel.chunks_exact_mut(form.words()).zip(stored.chunks_exact(form.group));
            for ((group, numbers), (&s, &o)) in groups.zip(scales.iter().zip(&offsets)) {
                put(form, group, row % LANES, numbers, s, o);
            }
        }
        BlockPanels { form, rows, numbers, depth, order, finite, words }
    }

    /// Panels of sixteen rows.
    pub fn count(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Groups of a row.
    pub fn groups(&self) -> usize {
        self.depth / self.form.group
    }

    /// The words of a panel.
    pub fn panel(&self, i: usize) -> &[u32] {
        let size = self.groups() * self.form.words();
        &bytemuck::cast_slice(self.words.bytes())[i * size..][..size]
    }

    /// Which number of a row stands at a place; none that fills up a group.
    pub fn number_at(&self, place: usize) -> Option<usize> {
        match &self.order {
            Some(order) => order[place].map(|k| k as usize),
            None => (place < self.numbers).then_some(place),
        }
    }

    /// Whether a number stands at each of these places, and which it is is the place itself.
    pub fn is_plain(&self, places: &Range<usize>) -> bool {
        self.order.is_none() && places.end <= self.numbers
    }

    /// Real numbers of sixteen rows at some places, one line of [`LANES`] each. Fetches the same places of the panels of the next tile, since
    /// tiles are computed one beside the other.
    #[inline(always)]
    pub fn lines(
        &self,
        panel: usize,
        places: Range<usize>,
        line: impl FnMut(usize, &[f32; LANES]),
    ) {
        let adds = matches!(self.form.offset, Offset::Half | Offset::Single);
        match (self.form.wide, adds) {
            (false, false) => self.lines_of::<4, false>(panel, places, line),
            (false, true) => self.lines_of::<4, true>(panel, places, line),
            (true, false) => self.lines_of::<8, false>(panel, places, line),
            (true, true) => self.lines_of::<8, true>(panel, places, line),
        }
    }

    /// The same for numbers of so many bits, whose offsets are added once they are scaled, or are taken off before. Each operation is that of
    /// the definition.
    #[inline(always)]
    fn lines_of<const BITS: usize, const ADDS: bool>(
        &self,
        panel: usize,
        places: Range<usize>,
        mut line: impl FnMut(usize, &[f32; LANES]),
    ) {
        let (form, panel, per) = (self.form, self.panel(panel), 32 / BITS);
        let next_tile = panel.len() * shape().cols.div_ceil(LANES);
        let mut place = places.start;
        while place < places.end {
            let first = place / form.group * form.group;
            let end = places.end.min(first + form.group);
            let (head, data) = panel[first / form.group * form.words()..].split_at(form.head());
            let (by, offset) = (scales(form, head), offsets(form, head));
            prefetch(head, next_tile);
            for (t, word) in data.as_chunks::<LANES>().0.iter().enumerate() {
                let at = first + t * per;
                let value = |j: usize| {
                    let n = number::<BITS>(word, j);
                    match ADDS {
                        true => array(|i| n[i].mul_add(by[i], offset[i])),
                        false => array(|i| (n[i] - offset[i]).mul_add(by[i], 0.0)),
                    }
                };
                if at >= end {
                    break;
                }
                prefetch(word, next_tile);
                if place <= at && at + per <= end {
                    for j in 0..per {
                        line(at + j, &value(j));
                    }
                } else {
                    for j in place.saturating_sub(at).min(per)..per.min(end - at) {
                        line(at + j, &value(j));
                    }
                }
            }
            place = end;
        }
    }
}

/// Number `j` of sixteen words.
#[inline(always)]
fn number<const BITS: usize>(words: &[u32; LANES], j: usize) -> [f32; LANES] {
    let shift = (j * BITS) as u32;
    match BITS {
        8 => array(|i| ((words[i] << (24 - shift)) as i32 >> 24) as f32),
        _ => array(|i| (words[i] >> shift & 15) as i32 as f32),
    }
}

/// Writes the group of one row.
fn put(form: Form, group: &mut [u32], lane: usize, numbers: &[u8], scale: f32, offset: f32) {
    let (half_at, half_by) = (lane % (LANES / 2), lane / (LANES / 2) * 16);
    let half = |v: f32| u32::from(half::f16::from_f32(v).to_bits()) << half_by;
    let (head, data) = group.split_at_mut(form.head());
    let (scales, offsets) = head.split_at_mut(form.scales());
    match form.half {
        true => scales[half_at] |= half(scale),
        false => scales[lane] = scale.to_bits(),
    }
    match form.offset {
        Offset::None | Offset::Same(_) => {}
        Offset::Bytes => offsets[lane % 4] |= u32::from(offset as u8) << (lane / 4 * 8),
        Offset::Half => offsets[half_at] |= half(offset),
        Offset::Less | Offset::Single => offsets[lane] = offset.to_bits(),
    }
    let words = data.as_chunks_mut::<LANES>().0.iter_mut();
    match form.wide {
        true => {
            for (word, bytes) in words.zip(numbers.as_chunks::<4>().0) {
                word[lane] = u32::from_le_bytes(*bytes);
            }
        }
        false => {
            for (word, numbers) in words.zip(numbers.as_chunks::<8>().0) {
                // Neighbours are joined to bytes first, all at once.
                let both = u64::from_le_bytes(*numbers);
                let pairs = both | both >> 4;
                let bytes = pairs & 0x00FF_00FF_00FF_00FF;
                let fours = (bytes | bytes >> 8) & 0x0000_FFFF_0000_FFFF;
                word[lane] = (fours | fours >> 16) as u32;
            }
        }
    }
}

/// The real number that the upper half of a word is, which is finite.
#[inline(always)]
fn real(word: u32) -> f32 {
    // What the exponent is less than that of 32 bits.
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    f32::from_bits((word as i32 >> 3) as u32 & 0x8FFF_E000) * SCALE
}

#[inline(always)]
fn halves(words: &[u32]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for i in 0..LANES / 2 {
        out[i] = real(words[i] << 16);
        out[i + LANES / 2] = real(words[i]);
    }
    out
}

/// The scales of a group, by its first words.
#[inline(always)]
pub fn scales(form: Form, head: &[u32]) -> [f32; LANES] {
    match form.half {
        true => halves(&head[..LANES / 2]),
        false => {
            let head = &head[..LANES];
            array(|i| f32::from_bits(head[i]))
        }
    }
}

/// What is taken off or added.
#[inline(always)]
pub fn offsets(form: Form, head: &[u32]) -> [f32; LANES] {
    let words = &head[form.scales()..];
    match form.offset {
        Offset::None => [0.0; LANES],
        Offset::Same(o) => [o; LANES],
        Offset::Bytes => {
            let (words, less) = (&words[..LANES / 4], if form.wide { 128 } else { 0 });
            array(|i| ((words[i % 4] >> (i / 4 * 8) & 255) as i32 - less) as f32)
        }
        Offset::Half => halves(&words[..LANES / 2]),
        Offset::Less | Offset::Single => {
            let words = &words[..LANES];
            array(|i| f32::from_bits(words[i]))
        }
    }
}
