//! Convolutions that a device's library may compute in place of generated code: plain data.

use mlc_dsl::ir::DType;
use std::fmt;

/// A spatial axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowAxis {
    /// Extents of the image, the kernel and the result.
    pub extents: [u64; 3],
    /// Elements from one window to the next.
    pub stride: u64,
    /// Elements from one tap of a window to the next.
    pub dilation: u64,
    /// Zeros before the image and behind it.
    pub padding: [u64; 2],
}

/// The memory layout of a contiguous tensor, whose first axis is the batch, or the output channels for weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelOrder {
    /// Channels first (NCHW).
    First,
    /// Channels last (NHWC).
    Last,
}

/// Cross-correlation `image * weights`, plus a residual, plus a bias, then ReLU, as far as each is said; accumulated in `f32`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// The type of all elements.
    pub dtype: DType,
    /// Batch size.
    pub count: u64,
    /// Groups of channels.
    pub groups: u64,
    /// Input and output channels of a group.
    pub channels: [u64; 2],
    /// Spatial axes from the outermost one on: up to three.
    pub windows: Vec<WindowAxis>,
    /// The layout of image, result and residual.
    pub order: ChannelOrder,
    /// The layout of the weights: output channels, then input channels of a group and taps in this order.
    pub weights: ChannelOrder,
    /// Whether a residual of the result's shape is added.
    pub is_added: bool,
    /// Whether a bias is added to each output channel.
    pub has_bias: bool,
    /// Whether ReLU follows.
    pub is_rectified: bool,
    /// Whether `f32` factors may be rounded to the 11 bits of `tf32`.
    pub in_tf32: bool,
}

/// A tensor of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvolutionTensor {
    /// The input.
    Image,
    /// The filters.
    Weights,
    /// The result, or the residual.
    Result,
    /// A number for each output channel.
    Bias,
}

impl Convolution {
    /// Extents of a tensor: batch or output channels, channels, then spatial axes.
    pub fn extents(&self, of: ConvolutionTensor) -> Vec<u64> {
        let [inside, outside] = self.channels;
        let along = |i: usize| self.windows.iter().map(move |w| w.extents[i]);
        match of {
            ConvolutionTensor::Image => {
                [self.count, self.groups * inside].into_iter().chain(along(0)).collect()
            }
            ConvolutionTensor::Weights => {
                [self.groups * outside, inside].into_iter().chain(along(1)).collect()
            }
            ConvolutionTensor::Result => {
                [self.count, self.groups * outside].into_iter().chain(along(2)).collect()
            }
            ConvolutionTensor::Bias => {
                [1, self.groups * outside].into_iter().chain(along(2).map(|_| 1)).collect()
            }
        }
    }

    /// Strides of a tensor, in the order of [`extents`](Self::extents).
    pub fn strides(&self, of: ConvolutionTensor) -> Vec<u64> {
        let order = if of == ConvolutionTensor::Weights { self.weights } else { self.order };
        order.strides(&self.extents(of))
    }
}

impl ChannelOrder {
    /// Strides of axes of these extents, the second one the channels.
    pub fn strides(self, extents: &[u64]) -> Vec<u64> {
        let mut out = vec![1; extents.len()];
        let inner = (2..extents.len()).rev();
        let places: Vec<usize> = match self {
            ChannelOrder::First => inner.chain([1, 0]).collect(),
            ChannelOrder::Last => std::iter::once(1).chain(inner).chain([0]).collect(),
        };
        let mut next = 1;
        for place in places {
            out[place] = next;
            next *= extents[place];
        }
        out
    }

    fn name(self) -> &'static str {
        match self {
            ChannelOrder::First => "first",
            ChannelOrder::Last => "last",
        }
    }
}

/// Numbers with a sign between them.
fn joined(numbers: impl Iterator<Item = u64>) -> String {
    numbers.map(|n| n.to_string()).collect::<Vec<_>>().join("x")
}

impl fmt::Display for Convolution {
    /// A key that tells convolutions apart, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Convolution { dtype, count, groups, channels: [inside, outside], windows, .. } = self;
        let along = |i: usize| joined(windows.iter().map(|w| w.extents[i]));
        write!(f, "{count} x {dtype}[{inside}, {}] * [{outside}, {}]", along(0), along(1))?;
        write!(f, " to {}", along(2))?;
        if *groups > 1 {
            write!(f, ", {groups} groups")?;
        }
        if windows.iter().any(|w| w.stride > 1) {
            write!(f, ", stride {}", joined(windows.iter().map(|w| w.stride)))?;
        }
        if windows.iter().any(|w| w.dilation > 1) {
            write!(f, ", dilation {}", joined(windows.iter().map(|w| w.dilation)))?;
        }
        if windows.iter().any(|w| w.padding != [0, 0]) {
            let of = |i: usize| joined(windows.iter().map(|w| w.padding[i]));
            write!(f, ", padding {} and {}", of(0), of(1))?;
        }
        write!(f, ", channels {}", self.order.name())?;
        if self.weights != self.order {
            write!(f, " and {} in weights", self.weights.name())?;
        }
        let said = [
            (self.is_added, ", plus a tensor"),
            (self.has_bias, ", plus a bias"),
            (self.is_rectified, ", at least 0"),
            (self.in_tf32, ", in tf32"),
        ];
        said.iter().filter(|s| s.0).try_for_each(|s| f.write_str(s.1))
    }
}
