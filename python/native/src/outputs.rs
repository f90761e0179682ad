//! Arrays of NumPy that outputs are written to.

use crate::dtypes;
use crate::numpy::NumPyArray;
use mlc_rewrite::{ArrayMut, DType, Error};

/// Where an array of NumPy has its elements.
pub struct Place {
    dtype: DType,
    shape: Vec<usize>,
    data: *mut u8,
}

// SAFETY: who makes a place sees to it that the array is there as long as the place is used, and that nobody else writes to it.
unsafe impl Send for Place {}
// SAFETY: as above; it is written to by who has it for itself alone.
unsafe impl Sync for Place {}

impl Place {
    /// The place of an array, if it may be written to, its elements are in row-major order, and their type is one that an output is written as.
    pub fn of(array: &NumPyArray<'_, '_>) -> Option<Place> {
        let dtype = dtypes::of_number(array.type_number())?;
        let fits = array.is_plain() && array.is_writeable();
        fits.then(|| Place { dtype, shape: array.shape(), data: array.data() })
    }

    fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    /// True if a byte of one is a byte of the other.
    pub fn overlaps(&self, other: &Place) -> bool {
        let (a, b) = (self.data as usize, other.data as usize);
        a < b + other.bytes() && b < a + self.bytes()
    }

    /// The array, to be written to.
    ///
    /// # Safety
    /// The array is there, and nobody else reads or writes it, as long as what this yields is used.
    pub unsafe fn lent(&mut self) -> Result<ArrayMut<'_>, Error> {
        let bytes = match self.bytes() {
            0 => &mut [],
            // SAFETY: the array has that many bytes there, which are the caller's alone.
            n => unsafe { std::slice::from_raw_parts_mut(self.data, n) },
        };
        Ok(ArrayMut::of_bytes(self.dtype, self.shape.clone(), bytes)?)
    }
}
