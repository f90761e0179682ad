//! The cache of prepared kernels. Its key is all that preparing depends on: operand locations, buffer sizes, and the symbols that occur in the
//! kernel, whatever the other extents of the program.

use crate::runtime::kernel::{Epilogue, Kernel};
use mlc_dsl::ir::{DType, Extent, NodeId, Tensor, Value};
use mlc_dsl::layout::Layout;
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
    Buffer(BufferId),
    /// No one's: a constant that its kernel has in another form.
    Unread,
}

/// A buffer: one of those that a kernel writes, the plan's in their order, then its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId {
    pub kernel: usize,
    pub slot: usize,
}

impl BufferId {
    /// The memory of an input with room, of that number: no kernel's own.
    pub fn of_room(slot: usize) -> BufferId {
        BufferId { kernel: usize::MAX, slot }
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
            (Storage::Buffer(a), Storage::Buffer(b)) => a == b,
            (Storage::Unread, Storage::Unread) => true,
            (Storage::Const(_) | Storage::Input(_) | Storage::Buffer(_) | Storage::Unread, _) => {
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
            Storage::Buffer(t) => (2, t).hash(state),
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
            Storage::Input(_) | Storage::Buffer(_) | Storage::Unread => None,
        }
    }
}

/// One kernel and what it reads and writes.
pub struct Pass {
    pub kernel: Arc<dyn Kernel>,
    /// Its inputs, then the epilogue's.
    pub inputs: Vec<Location>,
    /// How many of them are the kernel's own.
    pub own: usize,
    /// The buffers it writes.
    pub outputs: Vec<BufferId>,
    /// The pointwise program applied to the result.
    pub epilogue: Option<Arc<Epilogue>>,
    /// What it computes, for messages.
    pub node: NodeId,
}

/// A kernel of the plan, lowered to passes.
pub struct PreparedKernel {
    /// Which kernel.
    pub kernel: usize,
    /// One kernel after the other; the last yields the results. None if all is known.
    pub passes: Vec<Pass>,
    /// Bytes of the buffers between passes.
    pub workspace: Vec<usize>,
    /// The locations of what other kernels may read.
    pub places: Vec<(Value, Location)>,
    /// Extents that constants determine.
    pub learned: Vec<(Extent, i64)>,
    /// Bytes of the constants folded for it.
    pub constants: u64,
    /// Nothing but operands, symbols and buffers decided what it is.
    pub renames: bool,
}

/// Approximate bytes of a pass.
const PASS: u64 = 1 << 10;

impl PreparedKernel {
    /// Whether passes read and write the same, as far as can be seen.
    pub fn is_like(&self, other: &PreparedKernel) -> bool {
        let reads = |k: &PreparedKernel| k.passes.iter().flat_map(|p| p.inputs.clone()).collect();
        let writes = |k: &PreparedKernel| k.passes.iter().flat_map(|p| p.outputs.clone()).collect();
        let (own, others): (Vec<Location>, Vec<Location>) = (reads(self), reads(other));
        let (to, to_others): (Vec<BufferId>, Vec<BufferId>) = (writes(self), writes(other));
        own == others
            && to == to_others
            && self.passes.iter().map(|p| p.node).eq(other.passes.iter().map(|p| p.node))
            && (&self.workspace, &self.places) == (&other.workspace, &other.places)
    }

    /// Approximate bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.constants.saturating_add(PASS * self.passes.len() as u64)
    }
}

/// What a kernel is prepared for: the cache's key.
pub struct KernelKeyRef<'a> {
    /// The values of the symbols that occur in it.
    pub symbols: &'a [Option<i64>],
    /// The locations of its operands.
    pub reads: &'a [&'a Location],
    /// The buffers that it has.
    pub planned: &'a [PlannedBuffer],
}

/// An owned [`KernelKeyRef`].
pub struct KernelKey {
    fingerprint: u64,
    pub symbols: Vec<Option<i64>>,
    pub reads: Vec<Location>,
    pub planned: Vec<(Value, u64)>,
}

/// What a kernel depends on of a buffer: not its address.
fn of_buffer(b: &PlannedBuffer) -> (Value, u64) {
    (b.value, b.bytes)
}

impl KernelKeyRef<'_> {
    /// Whether a kernel was prepared for the same.
    fn matches(&self, key: &KernelKey) -> bool {
        self.symbols == key.symbols
            && self.planned.iter().map(of_buffer).eq(key.planned.iter().copied())
            && self.reads.iter().copied().eq(key.reads.iter())
    }

    /// A hash. It covers locations, since inputs that are fed back move at every step while symbols stay.
    fn fingerprint(&self) -> u64 {
        let mut state = FxHasher::default();
        (self.symbols, self.reads).hash(&mut state);
        self.planned.iter().for_each(|b| of_buffer(b).hash(&mut state));
        state.finish()
    }

    /// An owned copy.
    pub fn key(&self) -> KernelKey {
        KernelKey {
            fingerprint: self.fingerprint(),
            symbols: self.symbols.to_vec(),
            reads: self.reads.iter().map(|l| (*l).clone()).collect(),
            planned: self.planned.iter().map(of_buffer).collect(),
        }
    }
}

/// A program's prepared kernels: those in use, and those that are the same in all runs.
#[derive(Default)]
pub struct KernelCache(Mutex<Vec<KernelVariants>>);

/// The variants of one kernel by fingerprint.
#[derive(Default)]
struct KernelVariants {
    known: FxHashMap<u64, Vec<CachedKernel>>,
    /// How many there are, and at how many the unused ones are dropped.
    count: usize,
    most: usize,
}

struct CachedKernel {
    key: Arc<KernelKey>,
    prepared: Weak<PreparedKernel>,
    /// The same, if it is kept even when unused.
    _kept: Option<Arc<PreparedKernel>>,
}

/// Fewer variants are not worth a sweep.
const FEW: usize = 8;

impl KernelCache {
    /// The kernel that was prepared for the same.
    pub fn find(&self, kernel: usize, key_ref: &KernelKeyRef<'_>) -> Option<Arc<PreparedKernel>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.get(kernel)?.known.get(&key_ref.fingerprint())?.iter().rev();
        own.filter(|known| key_ref.matches(&known.key)).find_map(|known| known.prepared.upgrade())
    }

    /// Adds a kernel, weakly unless it `lasts`.
    pub fn add(&self, prepared: &Arc<PreparedKernel>, key: Arc<KernelKey>, lasts: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() <= prepared.kernel {
            all.resize_with(prepared.kernel + 1, KernelVariants::default);
        }
        let own = &mut all[prepared.kernel];
        if own.count >= own.most.max(FEW) {
            own.drop_unused();
        }
        own.count += 1;
        own.known.entry(key.fingerprint).or_default().push(CachedKernel {
            key,
            prepared: Arc::downgrade(prepared),
            _kept: lasts.then(|| prepared.clone()),
        });
    }
}

impl KernelVariants {
    fn drop_unused(&mut self) {
        self.known.retain(|_, known| {
            known.retain(|known| known.prepared.strong_count() > 0);
            !known.is_empty()
        });
        self.count = self.known.values().map(Vec::len).sum();
        self.most = 2 * self.count;
    }
}
