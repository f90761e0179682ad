//! Images with their channels last: convolutions, pooling, and copies from and to the other order. f32.
//!
//! A window is a pointer for each of its taps to the channels of one position; what lies outside the image points to a
//! row of its own. So padding, strides and dilation need no copy of the image, and vectors run along channels whatever the image's size. Only groups
//! of a convolution that vectors do not take as they lie read a copy of their channels.

mod conv;
mod copy;
mod depthwise;
mod frames;
mod grouped;
mod pointwise;
mod pool;
mod transposed;
mod windows;
pub mod winograd;

pub use conv::{as_pointers, make as conv};
pub use copy::{FIRST, LAST};
pub use pool::{MAX, SUM, each_window};
pub use transposed::make as conv_transpose;
pub use windows::Windows;

/// Channels, in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channels {
    pub groups: usize,
    /// Those of a group that are read, and written.
    pub q: usize,
    pub o: usize,
}

impl Channels {
    /// Those of an image.
    pub fn read(self) -> usize {
        self.groups * self.q
    }

    /// Those of its results.
    pub fn written(self) -> usize {
        self.groups * self.o
    }
}
