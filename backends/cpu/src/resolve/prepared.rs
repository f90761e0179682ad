//! What is launched for a kernel, and when that can be launched again: a kernel is prepared for what it reads and the values of the symbols that
//! occur in it, whatever the extents of the rest of the program.

use crate::layout::Layout;
use crate::runtime::launch::{Epilogue, Launch};
use mlc_dsl::ir::{DType, Extent, Tensor, Value};
use mlc_dsl::plan::PlannedBuffer;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What holds the elements of a value.
#[derive(Clone)]
pub enum Storage {
    /// A constant.
    Const(Tensor),
    /// An input of the program.
    Input(usize),
    /// A buffer.
    Temp(TempId),
    /// No one's: a constant that its kernel has in another form.
    Unread,
}

/// A buffer: one of those that a kernel writes, the plan's in their order, then its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TempId {
    pub kernel: usize,
    pub slot: usize,
}

impl TempId {
    /// The memory of an input with room, of that number: no kernel's own.
    pub fn of_room(slot: usize) -> TempId {
        TempId { kernel: usize::MAX, slot }
    }

    /// The number of the room that it is.
    pub fn room(self) -> Option<usize> {
        (self.kernel == usize::MAX).then_some(self.slot)
    }
}

impl PartialEq for Storage {
    /// Two constants are one if they are the same memory.
    fn eq(&self, other: &Storage) -> bool {
        match (self, other) {
            (Storage::Const(a), Storage::Const(b)) => {
                let (x, y) = (a.bytes(), b.bytes());
                x.as_ptr() == y.as_ptr() && x.len() == y.len() && a.shape() == b.shape()
            }
            (Storage::Input(a), Storage::Input(b)) => a == b,
            (Storage::Temp(a), Storage::Temp(b)) => a == b,
            (Storage::Unread, Storage::Unread) => true,
            (Storage::Const(_) | Storage::Input(_) | Storage::Temp(_) | Storage::Unread, _) => {
                false
            }
        }
    }
}

impl Hash for Storage {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Storage::Const(t) => (0, t.bytes().as_ptr()).hash(state),
            Storage::Input(i) => (1, i).hash(state),
            Storage::Temp(t) => (2, t).hash(state),
            Storage::Unread => 3.hash(state),
        }
    }
}

/// A value: where its elements are.
#[derive(Clone, PartialEq, Hash)]
pub struct Location {
    /// Element type.
    pub dtype: DType,
    /// Where in the storage.
    pub layout: Layout,
    /// Whose memory.
    pub storage: Storage,
}

impl Location {
    /// The elements, if they are constant.
    pub fn constant(&self) -> Option<&Tensor> {
        match &self.storage {
            Storage::Const(t) => Some(t),
            Storage::Input(_) | Storage::Temp(_) | Storage::Unread => None,
        }
    }
}

/// One launch and what it reads and writes.
pub struct Pass {
    pub launch: Box<dyn Launch>,
    /// Its inputs, those of the epilogue after its own.
    pub inputs: Vec<Location>,
    /// How many of them are the kernel's own.
    pub own: usize,
    /// The buffers it writes.
    pub outputs: Vec<TempId>,
    /// The pointwise program applied to the result.
    pub epilogue: Option<Epilogue>,
    /// The operator and the imported node, for messages.
    pub name: String,
}

/// A kernel of the plan: what is launched for it.
pub struct PreparedKernel {
    /// Which kernel.
    pub kernel: usize,
    /// One launch after the other; the last yields the results. None if all is known.
    pub passes: Vec<Pass>,
    /// The bytes of buffers that the passes hand to each other, one behind the other.
    pub workspace: Vec<usize>,
    /// What other kernels may read.
    pub places: Vec<(Value, Location)>,
    /// Extents that constants decide.
    pub learned: Vec<(Extent, i64)>,
    /// Bytes of the constants that were computed for it.
    pub constants: u64,
}

/// Bytes that a pass takes, about.
const PASS: u64 = 1 << 10;

impl PreparedKernel {
    /// Bytes that it holds, about.
    pub fn bytes(&self) -> u64 {
        self.constants.saturating_add(PASS * self.passes.len() as u64)
    }
}

/// What a kernel is prepared for.
pub struct Occasion<'a> {
    /// The values of the symbols that occur in it.
    pub symbols: &'a [Option<i64>],
    /// Where what it reads lies.
    pub reads: &'a [&'a Location],
    /// The buffers that it has.
    pub planned: &'a [PlannedBuffer],
}

/// An [`Occasion`] that is kept.
pub struct Key {
    fingerprint: u64,
    symbols: Vec<Option<i64>>,
    reads: Vec<Location>,
    planned: Vec<(Value, u64)>,
}

/// A buffer as far as a kernel goes by it: where it is in memory is no matter.
fn of_buffer(b: &PlannedBuffer) -> (Value, u64) {
    (b.value, b.bytes)
}

impl Occasion<'_> {
    /// Whether it is what a kernel was prepared for.
    fn is(&self, key: &Key) -> bool {
        self.symbols == key.symbols
            && self.planned.iter().map(of_buffer).eq(key.planned.iter().copied())
            && self.reads.iter().copied().eq(key.reads.iter())
    }

    /// The same of what is alike. Inputs that are fed back lie otherwise at every step, so that symbols alone do not tell occasions apart.
    fn fingerprint(&self) -> u64 {
        let mut state = FxHasher::default();
        (self.symbols, self.reads).hash(&mut state);
        self.planned.iter().for_each(|b| of_buffer(b).hash(&mut state));
        state.finish()
    }

    /// The same, to be kept.
    pub fn key(&self) -> Key {
        Key {
            fingerprint: self.fingerprint(),
            symbols: self.symbols.to_vec(),
            reads: self.reads.iter().map(|l| (*l).clone()).collect(),
            planned: self.planned.iter().map(of_buffer).collect(),
        }
    }
}

/// The prepared kernels of a program that are still in use, by what they were prepared for; also those that are the same in all runs.
#[derive(Default)]
pub struct KnownKernels(Mutex<Vec<OfKernel>>);

/// What one kernel was prepared for, by its fingerprint.
#[derive(Default)]
struct OfKernel {
    known: FxHashMap<u64, Vec<Known>>,
    /// How many there are, and with how many those are dropped that nothing uses.
    count: usize,
    most: usize,
}

struct Known {
    key: Key,
    prepared: Weak<PreparedKernel>,
    /// The same, if it is kept whether or not something uses it.
    _kept: Option<Arc<PreparedKernel>>,
}

/// Fewer are not worth a look whether something uses them.
const FEW: usize = 8;

impl KnownKernels {
    /// The kernel as it was prepared for the like.
    pub fn find(&self, kernel: usize, occasion: &Occasion<'_>) -> Option<Arc<PreparedKernel>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.get(kernel)?.known.get(&occasion.fingerprint())?.iter().rev();
        own.filter(|known| occasion.is(&known.key)).find_map(|known| known.prepared.upgrade())
    }

    /// Notes what a kernel was prepared for, for as long as something uses it or, if it `lasts`, for good.
    pub fn add(&self, prepared: &Arc<PreparedKernel>, key: Key, lasts: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() <= prepared.kernel {
            all.resize_with(prepared.kernel + 1, OfKernel::default);
        }
        let own = &mut all[prepared.kernel];
        if own.count >= own.most.max(FEW) {
            own.drop_unused();
        }
        own.count += 1;
        own.known.entry(key.fingerprint).or_default().push(Known {
            key,
            prepared: Arc::downgrade(prepared),
            _kept: lasts.then(|| prepared.clone()),
        });
    }
}

impl OfKernel {
    fn drop_unused(&mut self) {
        self.known.retain(|_, known| {
            known.retain(|known| known.prepared.strong_count() > 0);
            !known.is_empty()
        });
        self.count = self.known.values().map(Vec::len).sum();
        self.most = 2 * self.count;
    }
}
