//! Weights of 2, 4 or 8 bits quantised by blocks, with scales and zero points as separate operands (ONNX `MatMulNBits`).

use super::bytes::LONGEST;
use super::panels::{BlockPanels, Form, Offset, Row};
use super::{BlockProduct, Packer};
use crate::runtime::kernel::{Kernel, KernelSpec, OperandSpec};
use mlc_dsl::ir::DType;
use mlc_dsl::layout::Layout;

/// What is taken off numbers of eight bits so that they are signed.
const MIDDLE: f32 = 128.0;

/// Specialises `x` times the transposed matrix, whose rows are blocks of consecutive numbers.
pub fn product(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [x, w, s, z] = spec.args else { return None };
    let bits = Bits::new(spec, [x, w, s, z])?;
    let (rows, bits_per_number) = (bits.rows, bits.bits);
    BlockProduct::make(spec, rows, bits_per_number, bits.packer(None), None)
}

/// The same with dynamically quantised rows.
pub fn rounded_product(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [x, w, s, z] = spec.args else { return None };
    let bits = Bits::new(spec, [x, w, s, z])?;
    let (rows, bits_per_number, block) = (bits.rows, bits.bits, bits.block());
    if !(1..=LONGEST).contains(&block) {
        return None;
    }
    BlockProduct::make(spec, rows, bits_per_number, bits.packer(None), Some(block))
}

/// The same where a constant maps numbers to blocks (`g_idx`).
pub fn product_by_groups(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [x, w, s, z, g] = spec.args else { return None };
    let bits = Bits::new(spec, [x, w, s, z])?;
    let blocks = bits.scales.shape[1] as i64;
    let (t, at) = (g.constant.as_ref()?, &g.layout);
    let all = t.to_i64();
    let group = |k: usize| {
        let g = *all.get((at.offset as isize + k as isize * at.strides[0]) as usize)?;
        let g = if g < 0 { g + blocks } else { g };
        (0..blocks).contains(&g).then_some(g as usize)
    };
    let groups: Vec<usize> = (0..at.shape[0]).map(group).collect::<Option<_>>()?;
    let (rows, bits_per_number) = (bits.rows, bits.bits);
    BlockProduct::make(spec, rows, bits_per_number, bits.packer(Some(groups)), None)
}

/// The operands of a matrix.
struct Bits {
    bits: usize,
    rows: usize,
    /// Numbers of a row that count.
    depth: usize,
    numbers: Layout,
    scales: Layout,
    zeros: Layout,
}

impl Bits {
    fn new(spec: &KernelSpec<'_>, [x, w, s, z]: [&OperandSpec; 4]) -> Option<Bits> {
        let floats = [x, s, z].iter().all(|a| a.dtype == DType::F32);
        let bits = spec.int(0).filter(|b| [2, 4, 8].contains(b))? as usize;
        if !floats || w.dtype != DType::U8 || w.layout.rank() != 3 || x.layout.rank() == 0 {
            return None;
        }
        Some(Bits {
            bits,
            rows: w.layout.shape[0],
            depth: *x.layout.shape.last()?,
            numbers: w.layout.clone(),
            scales: s.layout.clone(),
            zeros: z.layout.clone(),
        })
    }

    /// Numbers of a block.
    fn block(&self) -> usize {
        self.numbers.shape[2] * 8 / self.bits
    }

    /// Number `k` of a row, as it is stored.
    fn number(&self, bytes: &[u8], row: usize, k: usize) -> u8 {
        let (block, i) = (k / self.block(), k % self.block() * self.bits);
        let byte = bytes[at(&self.numbers, &[row, block, i / 8])];
        let n = byte >> (i % 8) & (255 >> (8 - self.bits));
        if self.bits == 8 { n ^ 0x80 } else { n }
    }

    /// What packs the matrix; `groups` says the block of each number whose scale it has, if that is not its own.
    fn packer(self, groups: Option<Vec<usize>>) -> Packer {
        let places = self.places(groups);
        Box::new(move |operands| self.pack(operands, &places))
    }

    /// The numbers group by group.
    fn places(&self, groups: Option<Vec<usize>>) -> Places {
        let (block, blocks) = (self.block(), self.scales.shape[1]);
        let group = block.next_multiple_of(8).max(8);
        let mut members = vec![vec![]; blocks];
        for k in 0..self.depth {
            let of = groups.as_ref().map_or_else(|| k / block.max(1), |g| g[k]);
            members[of].push(k as u32);
        }
        let (mut order, mut blocks) = (vec![], vec![]);
        for (b, members) in members.iter().enumerate() {
            for part in members.chunks(group) {
                blocks.push(b);
                order.extend(part.iter().map(|&k| Some(k)));
                order.resize(blocks.len() * group, None);
            }
        }
        let plain = order.iter().enumerate().all(|(i, k)| k.is_none_or(|k| k as usize == i));
        Places { group, depth: order.len(), blocks, order, plain }
    }

    fn pack(&self, operands: &[&[u8]], places: &Places) -> BlockPanels {
        let scale = |row: usize, b: usize| float(operands[1], at(&self.scales, &[row, b]));
        let middle = if self.bits == 8 { MIDDLE } else { 0.0 };
        let zero = |row: usize, b: usize| float(operands[2], at(&self.zeros, &[row, b])) - middle;
        let form = Form {
            wide: self.bits == 8,
            group: places.group,
            half: self.all(scale, |s| s.is_finite() && half::f16::from_f32(s).to_f32() == s),
            offset: self.offset(zero, middle),
        };
        let order = (!places.plain).then(|| places.order.clone());
        BlockPanels::new(form, self.rows, self.depth, places.depth, order, |row, to: Row<'_>| {
            for (to, k) in to.numbers.iter_mut().zip(&places.order) {
                if let Some(k) = k {
                    *to = self.number(operands[0], row, *k as usize);
                }
            }
            for (g, &b) in places.blocks.iter().enumerate() {
                let z = zero(row, b);
                to.scales[g] = scale(row, b);
                to.offsets[g] = if form.offset == Offset::Bytes { z + middle } else { z };
            }
        })
    }

    /// How zero points are stored.
    fn offset(&self, zero: impl Fn(usize, usize) -> f32 + Copy, middle: f32) -> Offset {
        if self.rows * self.scales.shape[1] == 0 {
            return Offset::None;
        }
        let first = zero(0, 0);
        let whole =
            |z: f32| z + middle == (z + middle).round() && (0.0..=255.0).contains(&(z + middle));
        match first.is_finite() && self.all(zero, |z| z == first) {
            true if first == 0.0 => Offset::None,
            true => Offset::Same(first),
            false if self.all(zero, whole) => Offset::Bytes,
            false => Offset::Less,
        }
    }

    fn all(&self, value: impl Fn(usize, usize) -> f32, test: impl Fn(f32) -> bool) -> bool {
        let blocks = self.scales.shape[1];
        (0..self.rows).all(|r| (0..blocks).all(|b| test(value(r, b))))
    }
}

/// Where the numbers of a row stand.
struct Places {
    group: usize,
    depth: usize,
    /// The block whose scale each group has.
    blocks: Vec<usize>,
    order: Vec<Option<u32>>,
    /// Every number stands at its own place.
    plain: bool,
}

/// Where an element lies.
fn at(layout: &Layout, index: &[usize]) -> usize {
    let steps = index.iter().zip(&layout.strides).map(|(&i, &s)| i as isize * s);
    (layout.offset as isize + steps.sum::<isize>()) as usize
}

/// Element `i` of floats that may lie anywhere.
fn float(bytes: &[u8], i: usize) -> f32 {
    bytes[4 * i..].first_chunk().map_or(0.0, |b| f32::from_ne_bytes(*b))
}
