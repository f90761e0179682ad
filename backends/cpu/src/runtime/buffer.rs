//! Aligned memory for tensors, and the pools that keep it between runs.
//!
//! A buffer never shrinks while it is pooled, so a program with static shapes allocates in its first run only.

use bytemuck::{Pod, Zeroable};
use bytes::Bytes;
use memmap2::MmapMut;
use mlc_dsl::ir::Tensor;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: all bit patterns, zero among them, are valid for an array of bytes.
unsafe impl Zeroable for Line {}
// SAFETY: as above; the alignment equals the size, so there is no padding.
unsafe impl Pod for Line {}

/// From so many bytes on, memory is mapped from the system.
const LARGE: usize = 2 << 20;

/// Memory for elements of any type; zeros at first.
enum Memory {
    Lines(Vec<Line>),
    /// In huge pages where the system has them: the first writes then take few faults, and all reads few look-ups of addresses.
    Pages(MmapMut),
}

impl Memory {
    fn of(len: usize) -> Memory {
        let pages = if len < LARGE { None } else { MmapMut::map_anon(len).ok() };
        let Some(pages) = pages else {
            return Memory::Lines(bytemuck::zeroed_vec(len.div_ceil(size_of::<Line>())));
        };
        #[cfg(target_os = "linux")]
        // Systems without huge pages refuse, which changes no value.
        let _ = pages.advise(memmap2::Advice::HugePage);
        Memory::Pages(pages)
    }
}

/// Bytes aligned to a cache line.
pub struct Buffer {
    memory: Memory,
    len: usize,
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer { memory: Memory::Lines(Vec::new()), len: 0 }
    }
}

impl Buffer {
    /// A buffer of `len` bytes, zeros.
    pub fn new(len: usize) -> Buffer {
        Buffer { memory: Memory::of(len), len }
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Buffer {
        let mut out = Buffer::new(bytes.len());
        out.bytes_mut().copy_from_slice(bytes);
        out
    }

    /// Sets the length; the contents are arbitrary. Allocates only beyond the largest length so far.
    pub fn resize(&mut self, len: usize) {
        if len > self.capacity() {
            self.memory = Memory::of(len);
        }
        self.len = len;
    }

    /// The same; memory that has become too small is replaced by a quarter more than it was, so that lengths that grow step by step seldom
    /// allocate.
    pub fn grow(&mut self, len: usize) {
        let held = self.capacity();
        if len > held && held > 0 {
            self.resize(len.max(held + held / 4));
        }
        self.resize(len);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.all()[..self.len]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let all = match &mut self.memory {
            Memory::Lines(lines) => bytemuck::cast_slice_mut(lines),
            Memory::Pages(pages) => &mut pages[..],
        };
        &mut all[..self.len]
    }

    fn all(&self) -> &[u8] {
        match &self.memory {
            Memory::Lines(lines) => bytemuck::cast_slice(lines),
            Memory::Pages(pages) => pages,
        }
    }

    /// Bytes held, used or not.
    pub fn capacity(&self) -> usize {
        self.all().len()
    }
}

/// True if a tensor's bytes can be read as its elements.
pub fn is_aligned(t: &Tensor) -> bool {
    (t.bytes().as_ptr() as usize).is_multiple_of(t.dtype().size())
}

/// The tensor, copied if its elements are not aligned.
pub fn aligned(t: Tensor) -> Tensor {
    if is_aligned(&t) {
        return t;
    }
    let bytes = Bytes::from_owner(Buffer::copy_of(t.bytes()));
    Tensor::new(t.dtype(), t.shape().to_vec(), bytes).unwrap_or(t)
}

/// Numbers that vectors are loaded from: no vector lies across two cache lines.
pub struct Floats(Buffer);

impl Floats {
    /// So many zeros.
    pub fn zeros(len: usize) -> Floats {
        Floats(Buffer::new(len * size_of::<f32>()))
    }
}

impl Deref for Floats {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(self.0.bytes())
    }
}

impl DerefMut for Floats {
    fn deref_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(self.0.bytes_mut())
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// Buffers of results that callers have dropped, kept for the next run.
#[derive(Default)]
pub struct BufferPool {
    free: Mutex<Vec<Buffer>>,
    bytes: AtomicUsize,
    /// Bytes that free buffers may have: the results of the largest run so far, and as many again.
    most: AtomicUsize,
    /// Results may be of other sizes in the next run.
    varies: bool,
}

/// The capacity of a buffer of so many bytes.
pub fn whole_lines(len: usize) -> usize {
    len.checked_next_multiple_of(size_of::<Line>()).unwrap_or(len)
}

/// The capacity of a new buffer: an eighth more than is asked for at most, so that it holds the results of the next run, too, if these grow
/// step by step.
fn roomy(len: usize) -> usize {
    let step = 1 << len.max(1).ilog2().saturating_sub(3);
    len.checked_next_multiple_of(step).unwrap_or(len)
}

impl BufferPool {
    /// Of a plan whose results are always of the same sizes, or `varies`.
    pub fn new(varies: bool) -> BufferPool {
        BufferPool { varies, ..BufferPool::default() }
    }

    /// A run whose results have so many bytes.
    pub fn expect(&self, bytes: usize) {
        self.most.fetch_max(roomy(bytes).saturating_mul(2), Ordering::Relaxed);
    }

    /// A buffer of `len` bytes with arbitrary contents.
    pub fn take(self: &Arc<BufferPool>, len: usize) -> Lease {
        let mut free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        // Capacities are whole lines: a result of a few bytes fits a line.
        let most = whole_lines(len).saturating_mul(2);
        let fits = free.iter().position(|b| b.capacity() >= len && b.capacity() <= most);
        let known = fits.map(|i| free.remove(i));
        drop(free);
        let mut buffer = known.unwrap_or_else(|| {
            let new = Buffer::new(if self.varies { roomy(len) } else { len });
            self.bytes.fetch_add(new.capacity(), Ordering::Relaxed);
            new
        });
        buffer.resize(len);
        Lease { buffer, home: Arc::downgrade(self) }
    }

    /// Bytes of all its buffers, lent or not.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Keeps a buffer; the oldest go where they have too many bytes together, as the next runs may be of other extents.
    fn put(&self, buffer: Buffer) {
        let mut free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        free.push(buffer);
        let mut held: usize = free.iter().map(Buffer::capacity).sum();
        let most = self.most.load(Ordering::Relaxed);
        while held > most && free.len() > 1 {
            let oldest = free.remove(0).capacity();
            self.bytes.fetch_sub(oldest, Ordering::Relaxed);
            held -= oldest;
        }
    }
}

/// A buffer that returns to its pool.
pub struct Lease {
    buffer: Buffer,
    home: Weak<BufferPool>,
}

impl Lease {
    /// A buffer that returns to no pool.
    pub fn of(buffer: Buffer) -> Lease {
        Lease { buffer, home: Weak::new() }
    }

    /// The buffer, which does not return.
    pub fn into_buffer(mut self) -> Buffer {
        self.home = Weak::new();
        std::mem::take(&mut self.buffer)
    }

    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut()
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self.buffer.bytes()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.put(std::mem::take(&mut self.buffer));
        }
    }
}

/// Calls `f` with `N` scratch slices of at least the given lengths that belong to this thread and are kept for the next call.
/// Their contents are arbitrary. Nested calls get fresh memory.
pub fn with_scratch<T: Pod, const N: usize, R>(
    lens: [usize; N],
    f: impl FnOnce([&mut [T]; N]) -> R,
) -> R {
    thread_local! {
        static SCRATCH: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
    }
    let mut held: [Buffer; N] =
        SCRATCH.with_borrow_mut(|s| std::array::from_fn(|_| s.pop().unwrap_or_default()));
    for (buffer, len) in held.iter_mut().zip(lens) {
        buffer.grow(len * size_of::<T>());
    }
    let out = f(held.each_mut().map(|b| bytemuck::cast_slice_mut(b.bytes_mut())));
    SCRATCH.with_borrow_mut(|s| s.extend(held.into_iter().rev()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_small_and_large_are_zeros_aligned_and_kept() {
        for len in [0, 1, 63, 64, 65, LARGE - 1, LARGE, LARGE + 13] {
            let mut buffer = Buffer::new(len);
            assert_eq!(buffer.bytes().len(), len);
            assert!(buffer.bytes().iter().all(|&b| b == 0), "{len}");
            assert!((buffer.bytes().as_ptr() as usize).is_multiple_of(size_of::<Line>()), "{len}");
            buffer.bytes_mut().fill(7);
            buffer.resize(len / 2);
            buffer.resize(len);
            assert!(buffer.bytes().iter().all(|&b| b == 7), "{len}: nothing is allocated anew");
            buffer.resize(2 * len + 100);
            assert_eq!(buffer.bytes().len(), 2 * len + 100);
        }
    }
}
