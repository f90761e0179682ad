//! Kernels on the emulator: their values, and the errors that it reports.

mod arithmetic;
mod async_copies;
mod errors;
mod last_block_reduction;
mod mma;
mod races;
mod values;
mod wgmma;

use mlc_cuda_emulator::{EmulatorError, Region, Unit, available};

/// Whether kernels can be compiled; says so where they cannot.
fn compiles() -> bool {
    if !available() {
        println!("skipped: there is no C++ compiler");
    }
    available()
}

/// Elements in memory that is aligned as a device's.
struct Buffer<T> {
    /// Sixteen bytes each.
    words: Vec<u128>,
    count: usize,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy> Buffer<T> {
    fn new(elements: &[T]) -> Buffer<T> {
        let words = vec![0; size_of_val(elements).div_ceil(16)];
        let mut buffer = Buffer { words, count: elements.len(), of: std::marker::PhantomData };
        // SAFETY: there are as many bytes, and they are aligned to 16.
        unsafe {
            let to = buffer.words.as_mut_ptr().cast::<T>();
            to.copy_from_nonoverlapping(elements.as_ptr(), elements.len());
        }
        buffer
    }

    fn region(&mut self) -> Region {
        Region { pointer: self.words.as_mut_ptr().cast(), bytes: self.count * size_of::<T>() }
    }

    fn elements(&self) -> &[T] {
        // SAFETY: `new` has written as many elements, and kernels write numbers of the same type.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.count) }
    }
}

/// Compiles the source and launches its kernel `f`.
fn launch(
    source: &str,
    grid: [u32; 3],
    block: u32,
    regions: &[Region],
) -> Result<(), EmulatorError> {
    let unit = Unit::compile(source)?;
    // SAFETY: the regions are buffers of the test, and the kernels keep to the contract.
    unsafe { unit.launch("f", grid, block, regions) }
}

/// The message of the error with which a launch of `f` ends.
fn error(source: &str, grid: [u32; 3], block: u32, regions: &[Region]) -> String {
    match launch(source, grid, block, regions) {
        Err(EmulatorError::Launch(message)) => message,
        other => panic!("expected an error of the launch, not {other:?}"),
    }
}
