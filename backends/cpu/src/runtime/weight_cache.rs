//! The weight cache: constants packed for kernels, and aligned for their elements. Packed constants are shared by all sessions of the process.
//!
//! A packed constant keeps its source alive, so that the source's address identifies it.

use super::buffer::{Buffer, is_aligned};
use crate::block_quantized::BlockPanels;
use crate::channels_last::winograd::{TileSize, TransformedFilters, WinogradFilters};
use crate::gemm::{FilterShape, Matrix, PackedFilters, PackedLeft, PackedRight};
use crate::int8::PackedBytes;
use crate::layout::Layout;
use bytes::Bytes;
use mlc_dsl::ir::{Consts, Tensor};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// A packed constant with its sources.
pub struct Pack<P> {
    packed: P,
    _constants: Vec<Bytes>,
}

impl<P> Deref for Pack<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.packed
    }
}

/// A constant as a kernel views it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    address: usize,
    offset: usize,
    strides: (isize, isize),
    sizes: (usize, usize),
    /// Taps of each axis, if only some are packed.
    taps: Vec<Taps>,
}

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

/// Packed constants by key.
type Store<P, K = Key> = Mutex<HashMap<K, P>>;
/// Several constants with their layouts, and the packing's parameters.
type BlocksKey = (Vec<(usize, Layout)>, [usize; 2]);
type PointsStore<P> = Store<P, (Key, WinogradFilters, TileSize)>;

/// The packed constants of all sessions.
static LEFT: LazyLock<Store<Weak<Pack<PackedLeft>>>> = LazyLock::new(Store::default);
static RIGHT: LazyLock<Store<Weak<Pack<PackedRight>>>> = LazyLock::new(Store::default);
static BYTES: LazyLock<Store<Weak<Pack<PackedBytes>>>> = LazyLock::new(Store::default);
static FILTERS: LazyLock<Store<Weak<Pack<PackedFilters>>>> = LazyLock::new(Store::default);
static BLOCKS: LazyLock<Store<Weak<Pack<BlockPanels>>, BlocksKey>> = LazyLock::new(Store::default);
static POINTS: LazyLock<PointsStore<Weak<Pack<TransformedFilters>>>> =
    LazyLock::new(Store::default);

/// The packed constants of one session, for all shapes that it runs: those of the program live as long as it does, others while in use.
#[derive(Default)]
pub struct WeightCache {
    /// Addresses of the constants that are the same in all runs.
    kept: Mutex<HashSet<usize>>,
    /// Aligned copies by the constant's address.
    aligned: Mutex<HashMap<usize, Weak<Buffer>>>,
    left: Store<Arc<Pack<PackedLeft>>>,
    right: Store<Arc<Pack<PackedRight>>>,
    filters: Store<Arc<Pack<PackedFilters>>>,
    points: PointsStore<Arc<Pack<TransformedFilters>>>,
    bytes: Store<Arc<Pack<PackedBytes>>>,
    blocks: Store<Arc<Pack<BlockPanels>>, BlocksKey>,
}

impl WeightCache {
    /// The cache of a program with these constants.
    pub fn new(constants: &Consts) -> WeightCache {
        let cache = WeightCache::default();
        constants.iter().for_each(|t| cache.keep(t));
        cache
    }

    /// Keeps a constant's packed forms as long as the cache lives: it is the same in all runs.
    pub fn keep(&self, constant: &Tensor) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(start(constant));
    }

    /// This session's store, if it keeps the constant.
    fn own<'s, S>(&self, store: &'s S, constant: &Tensor) -> Option<&'s S> {
        self.is_kept(constant).then_some(store)
    }

    fn is_kept(&self, constant: &Tensor) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.contains(&start(constant))
    }

    /// The constant, aligned for its elements: itself, or a copy shared while in use.
    pub fn aligned(&self, constant: &Tensor) -> Tensor {
        if is_aligned(constant) {
            return constant.clone();
        }
        let mut copies = self.aligned.lock().unwrap_or_else(PoisonError::into_inner);
        let known = copies.get(&start(constant)).and_then(Weak::upgrade);
        // A part of what was copied is another constant.
        let known = known.filter(|copy| copy.bytes().len() == constant.bytes().len());
        let copy = known.unwrap_or_else(|| {
            let copy = Arc::new(Buffer::copy_of(constant.bytes()));
            copies.insert(start(constant), Arc::downgrade(&copy));
            copy
        });
        let bytes = Bytes::from_owner(AlignedCopy(copy));
        let (dtype, shape) = (constant.dtype(), constant.shape().to_vec());
        Tensor::new(dtype, shape, bytes).unwrap_or_else(|_| constant.clone())
    }

    /// The packed form of an `m` × `k` matrix that is part of `constant`.
    pub fn left(
        &self,
        constant: &Tensor,
        part: SubMatrix,
        m: usize,
        k: usize,
    ) -> Arc<Pack<PackedLeft>> {
        let key = key(constant, part, (m, k));
        find(self.own(&self.left, constant), &LEFT, key, &[constant], &|| {
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
        let key = key(constant, part, (k, n));
        find(self.own(&self.right, constant), &RIGHT, key, &[constant], &|| {
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
        let key = key(constant, part, (o, q));
        find(self.own(&self.filters, constant), &FILTERS, key, &[constant], &|| {
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
        let (address, strides) = (start(constant), (0, 0));
        let key = Key { address, offset: at, strides, sizes: (o, q), taps: taps.to_vec() };
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
        find(self.own(&self.filters, constant), &FILTERS, key, &[constant], &pack)
    }

    /// The packed form of a matrix of bytes that begins at element `offset` of `constant`.
    pub fn bytes(
        &self,
        constant: &Tensor,
        offset: usize,
        strides: (isize, isize),
        sizes: (usize, usize),
        pack: &dyn Fn() -> PackedBytes,
    ) -> Arc<Pack<PackedBytes>> {
        let address = start(constant);
        find(
            self.own(&self.bytes, constant),
            &BYTES,
            Key { address, offset, strides, sizes, taps: vec![] },
            &[constant],
            pack,
        )
    }

    /// The packed form of a block-quantised matrix made of several constants; `how` are the packing's parameters.
    pub fn blocks(
        &self,
        constants: &[(&Tensor, &Layout)],
        how: [usize; 2],
        pack: &dyn Fn() -> BlockPanels,
    ) -> Arc<Pack<BlockPanels>> {
        let key = constants.iter().map(|&(t, layout)| (start(t), layout.clone())).collect();
        let tensors: Vec<&Tensor> = constants.iter().map(|c| c.0).collect();
        let own = tensors.iter().all(|t| self.is_kept(t)).then_some(&self.blocks);
        find(own, &BLOCKS, (key, how), &tensors, pack)
    }

    /// The Winograd transform of filters that begin at element `at` of `constant`, for tiles of a size.
    pub fn points(
        &self,
        constant: &Tensor,
        at: usize,
        filters: WinogradFilters,
        size: TileSize,
    ) -> Arc<Pack<TransformedFilters>> {
        let whole = SubMatrix { offset: at, row: 0, col: 1 };
        let key = (key(constant, whole, (1, filters.len())), filters, size);
        find(self.own(&self.points, constant), &POINTS, key, &[constant], &|| {
            let aligned = self.aligned(constant);
            let all: &[f32] = bytemuck::cast_slice(aligned.bytes());
            TransformedFilters::new(&all[at..][..filters.len()], filters, size)
        })
    }
}

/// An aligned copy as the owner of bytes.
struct AlignedCopy(Arc<Buffer>);

impl AsRef<[u8]> for AlignedCopy {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// A strided matrix in a constant: offset and strides in elements.
#[derive(Clone, Copy)]
pub struct SubMatrix {
    pub offset: usize,
    pub row: isize,
    pub col: isize,
}

impl SubMatrix {
    fn of(self, aligned: &Tensor) -> Matrix<'_> {
        let SubMatrix { offset, row, col } = self;
        Matrix { data: bytemuck::cast_slice(aligned.bytes()), offset, row, col }
    }
}

/// A constant's address.
fn start(constant: &Tensor) -> usize {
    constant.bytes().as_ptr() as usize
}

fn key(constant: &Tensor, part: SubMatrix, sizes: (usize, usize)) -> Key {
    let SubMatrix { offset, row, col } = part;
    Key { address: start(constant), offset, strides: (row, col), sizes, taps: vec![] }
}

/// The packed form from this session, else from another one, else a new one.
fn find<P, K: Clone + Eq + Hash>(
    own: Option<&Store<Arc<Pack<P>>, K>>,
    all: &Store<Weak<Pack<P>>, K>,
    key: K,
    constants: &[&Tensor],
    pack: &dyn Fn() -> P,
) -> Arc<Pack<P>> {
    let mut own = own.map(|own| own.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(known) = own.as_ref().and_then(|own| own.get(&key)) {
        return known.clone();
    }
    let shared = || all.lock().unwrap_or_else(PoisonError::into_inner);
    let other = shared().get(&key).and_then(Weak::upgrade);
    let found = other.unwrap_or_else(|| {
        let constants = constants.iter().map(|t| t.bytes().clone()).collect();
        let new = Arc::new(Pack { packed: pack(), _constants: constants });
        let mut shared = shared();
        // Another session may have packed it meanwhile.
        let found = shared.get(&key).and_then(Weak::upgrade).unwrap_or(new);
        shared.retain(|_, pack| pack.strong_count() > 0);
        shared.insert(key.clone(), Arc::downgrade(&found));
        found
    });
    if let Some(own) = &mut own {
        own.insert(key, found.clone());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_share_the_packing_of_a_constant_and_its_end_forgets_it() {
        let constant = Tensor::from_f32(vec![3, 4], (0..12).map(|i| i as f32).collect());
        let b = SubMatrix { offset: 0, row: 4, col: 1 };
        let (first, second) = (WeightCache::default(), WeightCache::default());
        first.keep(&constant);
        let one = first.right(&constant, b, 3, 4);
        assert!(Arc::ptr_eq(&one, &second.right(&constant, b, 3, 4)));
        assert!(!Arc::ptr_eq(&one, &second.right(&constant, b, 3, 2)), "another part");
        let key = key(&constant, b, (3, 4));
        let known = || RIGHT.lock().expect("no panic").get(&key).and_then(Weak::upgrade).is_some();
        assert!(known());
        drop((one, first, second));
        assert!(!known());
    }
}
