//! The weight cache: constants packed for kernels, and aligned for their elements. Packed constants are shared by all sessions of the process.
//!
//! What is packed, and how, is known to the kernels that read it. A packed constant keeps its sources alive, so that their addresses
//! identify it.

use super::buffer::{Buffer, is_aligned};
use bytes::Bytes;
use mlc_dsl::ir::{Consts, Tensor};
use mlc_dsl::layout::Layout;
use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
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

/// What of its constants a packed form is made of: two that agree in this and in their type are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PackKey {
    /// Offsets, strides and extents, in an order of the form's own.
    pub numbers: Vec<isize>,
    /// The layouts of the constants, if these matter as a whole.
    pub layouts: Vec<Layout>,
}

impl PackKey {
    /// A key of numbers alone.
    pub fn of(numbers: impl IntoIterator<Item = isize>) -> PackKey {
        PackKey { numbers: numbers.into_iter().collect(), layouts: vec![] }
    }
}

/// The type of a packed form, the addresses of its constants, and what of them it is made of.
type FullKey = (TypeId, Vec<usize>, PackKey);

/// Packed constants of any form.
type Store<P> = Mutex<HashMap<FullKey, P>>;

/// The packed constants of all sessions.
static ALL: LazyLock<Store<Weak<dyn Any + Send + Sync>>> = LazyLock::new(Store::default);

/// The packed constants of one session, for all shapes that it runs: those of the program live as long as it does, others while in use.
#[derive(Default)]
pub struct WeightCache {
    /// Addresses of the constants that are the same in all runs.
    kept: Mutex<HashSet<usize>>,
    /// Aligned copies by the constant's address.
    aligned: Mutex<HashMap<usize, Weak<Buffer>>>,
    own: Store<Arc<dyn Any + Send + Sync>>,
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

    /// A packed form of some constants: from this session, else from another one, else a new one. `pack` must not ask for another.
    pub fn get_or_pack<P: Any + Send + Sync>(
        &self,
        constants: &[&Tensor],
        key: PackKey,
        pack: &dyn Fn() -> P,
    ) -> Arc<Pack<P>> {
        let addresses = constants.iter().map(|t| start(t)).collect();
        let key = (TypeId::of::<P>(), addresses, key);
        let is_own = constants.iter().all(|t| self.is_kept(t));
        let mut own = is_own.then(|| self.own.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(known) = own.as_ref().and_then(|own| own.get(&key)) {
            return typed(known.clone());
        }
        let shared = || ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let other = shared().get(&key).and_then(Weak::upgrade);
        let found = other.unwrap_or_else(|| {
            let constants = constants.iter().map(|t| t.bytes().clone()).collect();
            let new: Arc<dyn Any + Send + Sync> =
                Arc::new(Pack { packed: pack(), _constants: constants });
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
        typed(found)
    }
}

/// A packed form as what it is: its type is part of its key.
fn typed<P: Any + Send + Sync>(pack: Arc<dyn Any + Send + Sync>) -> Arc<Pack<P>> {
    pack.downcast().unwrap_or_else(|_| unreachable!("the type is part of the key"))
}

/// An aligned copy as the owner of bytes.
struct AlignedCopy(Arc<Buffer>);

impl AsRef<[u8]> for AlignedCopy {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// A constant's address.
fn start(constant: &Tensor) -> usize {
    constant.bytes().as_ptr() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_share_the_packing_of_a_constant_and_its_end_forgets_it() {
        let constant = Tensor::from_f32(vec![3, 4], (0..12).map(|i| i as f32).collect());
        let whole = PackKey::of([0, 4, 1]);
        let (first, second) = (WeightCache::default(), WeightCache::default());
        first.keep(&constant);
        let pack = |cache: &WeightCache, key: &PackKey| {
            cache.get_or_pack(&[&constant], key.clone(), &|| constant.bytes().to_vec())
        };
        let one = pack(&first, &whole);
        assert!(Arc::ptr_eq(&one, &pack(&second, &whole)));
        assert!(!Arc::ptr_eq(&one, &pack(&second, &PackKey::of([1, 4, 1]))), "another part");
        let other = second.get_or_pack(&[&constant], whole.clone(), &|| 0u8);
        assert_eq!(**other, 0, "another form");
        let key = (TypeId::of::<Vec<u8>>(), vec![start(&constant)], whole);
        let known = || ALL.lock().expect("no panic").get(&key).and_then(Weak::upgrade).is_some();
        assert!(known());
        drop((one, first, second));
        assert!(!known());
    }
}
