//! Convolutions that a device's library may compute in place of generated code: plain data.

use mlc_dsl::ir::DType;
use std::fmt;

/// An axis that windows move along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowAxis {
    /// Elements of the image, of a window and of the result.
    pub extents: [u64; 3],
    /// From one window to the next.
    pub stride: u64,
    /// From one element of a window to the next.
    pub dilation: u64,
    /// Zeros before the image and behind it.
    pub padding: [u64; 2],
}

/// In which order the axes of a tensor lie in memory, without gaps: the images one after another, or the channels of the result for weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelOrder {
    /// Channels before what windows move along.
    First,
    /// Channels behind it.
    Last,
}

/// `result = image * weights` without turning the weights, plus a tensor like the result, plus a number for each channel, and no less than 0,
/// as far as each is said; accumulated in `f32`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// The type of all elements.
    pub dtype: DType,
    /// Images.
    pub count: u64,
    /// Groups of channels, each of which is convolved by itself.
    pub groups: u64,
    /// Channels of the image and of the result in a group.
    pub channels: [u64; 2],
    /// From the outermost axis on: up to three.
    pub windows: Vec<WindowAxis>,
    /// How image, result and what is added lie.
    pub order: ChannelOrder,
    /// How weights lie: channels of the result, channels of a group of the image, windows, or windows before the latter.
    pub weights: ChannelOrder,
    /// Whether a tensor like the result is added.
    pub is_added: bool,
    /// Whether a number is added to each channel of the result.
    pub has_bias: bool,
    /// Whether what is less than 0 becomes 0.
    pub is_rectified: bool,
    /// Whether factors of 32 bits may be rounded to the 11 bits of `tf32`.
    pub in_tf32: bool,
}

/// What a tensor of a convolution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvolutionTensor {
    /// What windows move over.
    Image,
    /// What is in a window.
    Weights,
    /// The sums, or what is added to them.
    Result,
    /// A number for each channel of the result.
    Bias,
}

impl Convolution {
    /// Extents of a tensor: images or channels of the result, channels, then what windows move along.
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

    /// Elements from one place along each of these axes to the next.
    pub fn strides(&self, of: ConvolutionTensor) -> Vec<u64> {
        let order = if of == ConvolutionTensor::Weights { self.weights } else { self.order };
        order.strides(&self.extents(of))
    }
}

impl ChannelOrder {
    /// Elements from one place to the next along axes of these extents, of which the second one has the channels.
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
    /// All that tells convolutions apart, in one line.
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
