//! Aligned memory for tensors, and the pools that keep it between runs.
//!
//! A buffer never shrinks while it is pooled, so a program with static shapes allocates in its first run only.

use bytemuck::{Pod, Zeroable};
use std::cell::RefCell;
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

/// Bytes aligned to a cache line.
#[derive(Default)]
pub struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

impl Buffer {
    /// A buffer of `len` bytes.
    pub fn new(len: usize) -> Buffer {
        let mut out = Buffer::default();
        out.resize(len);
        out
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Buffer {
        let mut out = Buffer::new(bytes.len());
        out.bytes_mut().copy_from_slice(bytes);
        out
    }

    /// Sets the length; the contents are arbitrary. Allocates only beyond the largest length so far.
    pub fn resize(&mut self, len: usize) {
        let lines = len.div_ceil(64);
        if lines > self.lines.len() {
            self.lines = bytemuck::zeroed_vec(lines);
        }
        self.len = len;
    }

    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

impl Buffer {
    /// Bytes held, used or not.
    pub fn capacity(&self) -> usize {
        self.lines.len() * 64
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
}

/// Most buffers that a pool keeps.
const POOLED: usize = 32;

impl BufferPool {
    /// A buffer of `len` bytes with arbitrary contents.
    pub fn take(self: &Arc<BufferPool>, len: usize) -> Lease {
        let mut free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        // Capacities are whole lines: a result of a few bytes fits a line.
        let most = 2 * len.next_multiple_of(size_of::<Line>());
        let fits = free.iter().position(|b| b.capacity() >= len && b.capacity() <= most);
        let mut buffer = fits.map_or_else(Buffer::default, |i| free.swap_remove(i));
        drop(free);
        let before = buffer.capacity();
        buffer.resize(len);
        self.bytes.fetch_add(buffer.capacity() - before, Ordering::Relaxed);
        Lease { buffer, home: Arc::downgrade(self) }
    }

    /// Bytes of all its buffers, lent or not.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A buffer that returns to its pool.
pub struct Lease {
    buffer: Buffer,
    home: Weak<BufferPool>,
}

impl Lease {
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
            let mut free = home.free.lock().unwrap_or_else(|e| e.into_inner());
            if free.len() < POOLED {
                free.push(std::mem::take(&mut self.buffer));
            } else {
                home.bytes.fetch_sub(self.buffer.capacity(), Ordering::Relaxed);
            }
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
        buffer.resize(len * size_of::<T>());
    }
    let out = f(held.each_mut().map(|b| bytemuck::cast_slice_mut(b.bytes_mut())));
    SCRATCH.with_borrow_mut(|s| s.extend(held.into_iter().rev()));
    out
}
