//! Constants packed for products in f32, and for convolutions that are such products.

use super::pack::{FilterShape, Matrix, PackedFilters, PackedLeft, PackedRight};
use crate::runtime::weight_cache::{Pack, PackKey, WeightCache};
use mlc_dsl::ir::Tensor;
use std::sync::Arc;

/// Strided taps of a window along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Taps {
    /// Extent of the window.
    pub size: usize,
    pub first: usize,
    /// Stride.
    pub step: usize,
    pub count: usize,
}

/// A strided matrix in a constant: offset and strides in elements.
#[derive(Clone, Copy)]
pub struct SubMatrix {
    pub offset: usize,
    pub row: isize,
    pub col: isize,
}

impl SubMatrix {
    fn key(self, rows: usize, columns: usize) -> PackKey {
        let SubMatrix { offset, row, col } = self;
        PackKey::of([offset as isize, row, col, rows as isize, columns as isize])
    }

    fn of(self, aligned: &Tensor) -> Matrix<'_> {
        let SubMatrix { offset, row, col } = self;
        Matrix { data: bytemuck::cast_slice(aligned.bytes()), offset, row, col }
    }
}

impl WeightCache {
    /// The packed form of an `m` × `k` matrix that is part of `constant`.
    pub fn left(
        &self,
        constant: &Tensor,
        part: SubMatrix,
        m: usize,
        k: usize,
    ) -> Arc<Pack<PackedLeft>> {
        self.get_or_pack(&[constant], part.key(m, k), &|| {
            let aligned = self.aligned(constant);
            PackedLeft::new(&part.of(&aligned), m, k)
        })
    }

    /// The packed form of a `k` × `n` matrix that is part of `constant`; in 16-bit floats if these hold its elements.
    pub fn right(
        &self,
        constant: &Tensor,
        part: SubMatrix,
        k: usize,
        n: usize,
    ) -> Arc<Pack<PackedRight>> {
        self.get_or_pack(&[constant], part.key(k, n), &|| {
            let aligned = self.aligned(constant);
            PackedRight::of_constant(&part.of(&aligned), k, n)
        })
    }

    /// The packed form of filters that begin at element `at` of `constant`.
    pub fn filters(
        &self,
        constant: &Tensor,
        at: usize,
        shape: FilterShape,
    ) -> Arc<Pack<PackedFilters>> {
        let FilterShape { o, q, taps } = shape;
        let part = SubMatrix { offset: at, row: (q * taps) as isize, col: taps as isize };
        self.get_or_pack(&[constant], part.key(o, q), &|| {
            let aligned = self.aligned(constant);
            let all: &[f32] = bytemuck::cast_slice(aligned.bytes());
            PackedFilters::new(&all[at..][..o * q * taps], shape)
        })
    }

    /// The packed form of some taps, in reverse order, of `q` × `o` transposed filters that begin at element `at` of `constant`.
    pub fn taps(
        &self,
        constant: &Tensor,
        at: usize,
        o: usize,
        q: usize,
        taps: &[Taps],
    ) -> Arc<Pack<PackedFilters>> {
        let of_taps = taps.iter().flat_map(|t| [t.size, t.first, t.step, t.count]);
        let numbers = [at, 0, 0, o, q].into_iter().chain(of_taps).map(|n| n as isize);
        let pack = || {
            let all: usize = taps.iter().map(|t| t.size).product();
            let aligned = self.aligned(constant);
            let w: &[f32] = &bytemuck::cast_slice(aligned.bytes())[at..];
            let mut places = vec![0];
            for t in taps {
                let along = |p: usize| (0..t.count).rev().map(move |k| (p, t.first + k * t.step));
                let each = places.iter().flat_map(|&p| along(p));
                places = each.map(|(p, tap)| p * t.size + tap).collect();
            }
            let filter = |f: usize| (0..q).map(move |c| (c * o + f) * all);
            let taps = |from: usize| places.iter().map(move |p| w[from + p]);
            let chosen: Vec<f32> = (0..o).flat_map(filter).flat_map(taps).collect();
            PackedFilters::new(&chosen, FilterShape { o, q, taps: places.len() })
        };
        self.get_or_pack(&[constant], PackKey::of(numbers), &pack)
    }
}
