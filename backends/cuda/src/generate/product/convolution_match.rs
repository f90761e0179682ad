//! Recognises contractions that are convolutions as libraries take them: an image in memory, possibly zero-padded, weights in memory, and
//! windows with a constant stride. Matched in the meaning, as GEMMs are.

use super::super::emit::{Emitter, offset_of};
use super::super::kernel::{KernelProgram, known_type};
use super::epilogue::Epilogue;
use super::strided_read::{StridedRead, in_memory};
use super::{Product, Term, size};
use crate::convolution::{ChannelOrder, Convolution, ConvolutionTensor, WindowAxis};
use crate::matrix_product::Activation;
use mlc_backends::reference::code::{Affine, Slot};
use mlc_dsl::ir::{DType, Value};

/// Least multiplications for which a library is asked.
const LEAST: i64 = 1 << 20;
/// Spatial axes at most.
const MOST: usize = 3;
/// Image axes from which on a 1x1 convolution of stride 1 is not taken as a GEMM.
const PIXELS: usize = 4;

/// A convolution of a kernel, and the values that it reads.
pub struct ConvolutionMatch {
    pub work: Convolution,
    pub image: Value,
    pub weights: Value,
    /// The residual and the bias.
    pub added: [Option<Value>; 2],
    /// The axes of the weights as a library takes them: extents and strides in memory.
    pub axes: Vec<(u64, u64)>,
    /// Whether the stage's value is the result; otherwise the sums are, in their own type.
    pub is_whole: bool,
}

/// A variable of an index, its extent and its stride.
#[derive(Clone, Copy)]
struct IndexTerm {
    slot: Slot,
    extent: i64,
    by: i64,
}

/// An axis of the image as it is in memory, and the variables in its index.
struct ImageAxis {
    extent: i64,
    /// Zeros before it.
    low: i64,
    /// Whether reads are checked to be inside.
    is_bounded: bool,
    /// Variables of the result that weights do not depend on, those that they do, and those of the sum.
    places: Vec<IndexTerm>,
    groups: Vec<IndexTerm>,
    deep: Vec<IndexTerm>,
}

/// The image, with its axes from the outermost one on that have more than one element.
struct ImageAccess {
    axes: Vec<(usize, ImageAxis)>,
    rank: usize,
}

/// A convolution without its epilogue.
struct ConvolutionShape {
    count: i64,
    groups: Option<IndexTerm>,
    channels: Option<IndexTerm>,
    outside: Option<IndexTerm>,
    windows: Vec<WindowAxis>,
    /// The variables of images, of windows' places and of their elements.
    images: Option<IndexTerm>,
    places: Vec<Option<Slot>>,
    elements: Vec<Option<Slot>>,
    /// How the image may lie: where it has one channel, both orders are the same.
    orders: Vec<ChannelOrder>,
}

/// Variables of more than one place.
fn open(axes: &[(Slot, i64)]) -> impl Iterator<Item = (Slot, i64)> + '_ {
    axes.iter().copied().filter(|a| a.1 != 1)
}

impl ImageAccess {
    /// Which axis of a value each variable is in, for a factor of a product.
    fn new(shape: &[usize], x: &StridedRead, p: &Product, weights: &Affine) -> Option<ImageAccess> {
        let mut strides = vec![1i64; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis].checked_mul(shape[axis] as i64)?;
        }
        let mut axes: Vec<ImageAxis> = shape
            .iter()
            .map(|&n| ImageAxis {
                extent: n as i64,
                low: 0,
                is_bounded: false,
                places: vec![],
                groups: vec![],
                deep: vec![],
            })
            .collect();
        // What is checked tells the axis, and the zeros before it.
        let mut checked: Vec<(usize, &Affine)> = vec![];
        for (position, extent) in &x.inside {
            let is_axis = |&axis: &usize| {
                axes[axis].extent == *extent
                    && position.terms.iter().all(|t| x.offset.factor(t.0) == t.1 * strides[axis])
            };
            let axis = (0..axes.len()).find(is_axis)?;
            if axes[axis].is_bounded || position.terms.is_empty() {
                return None;
            }
            (axes[axis].is_bounded, axes[axis].low) = (true, -position.constant);
            checked.push((axis, position));
        }
        let of_result = [&p.batch, &p.rows, &p.columns].into_iter().flat_map(|a| open(a));
        let all = of_result.map(|a| (a, false)).chain(open(&p.deep).map(|a| (a, true)));
        for ((slot, extent), is_deep) in all {
            let factor = x.offset.factor(slot);
            if factor == 0 {
                continue;
            }
            let known = checked.iter().find(|c| c.1.factor(slot) != 0).map(|c| c.0);
            let fits = |&axis: &usize| {
                factor % strides[axis] == 0
                    && factor > 0
                    && factor / strides[axis] * (extent - 1) < axes[axis].extent
            };
            let axis = known.or_else(|| (0..axes.len()).find(fits))?;
            let step = IndexTerm { slot, extent, by: factor / strides[axis] };
            let list = match (is_deep, weights.factor(slot) != 0) {
                (true, true) => &mut axes[axis].deep,
                (true, false) => return None,
                (false, true) => &mut axes[axis].groups,
                (false, false) => &mut axes[axis].places,
            };
            list.push(step);
        }
        let constant: i64 = axes.iter().zip(&strides).map(|(a, s)| -a.low * s).sum();
        let axes = axes.into_iter().enumerate().filter(|a| a.1.extent != 1).collect();
        (constant == x.offset.constant).then_some(ImageAccess { axes, rank: shape.len() })
    }
}

impl ImageAxis {
    /// What windows do along this axis.
    fn window(&self) -> Option<WindowAxis> {
        let [place] = self.places[..] else { return None };
        let element = match self.deep[..] {
            [] => IndexTerm { slot: place.slot, extent: 1, by: 1 },
            [one] => one,
            _ => return None,
        };
        if !self.groups.is_empty() || place.by < 1 || element.by < 1 || self.low < 0 {
            return None;
        }
        let reach = element.by * (element.extent - 1) + 1;
        // What the last window reaches beyond the image.
        let behind = place.by * (place.extent - 1) + reach - self.low - self.extent;
        let (high, places) = (behind.max(0), |high: i64| {
            (self.extent + self.low + high - reach).div_euclid(place.by) + 1
        });
        let is_inside = self.is_bounded || high == 0;
        (is_inside && places(high) == place.extent).then(|| WindowAxis {
            extents: [self.extent, element.extent, place.extent].map(|n| n as u64),
            stride: place.by as u64,
            dilation: element.by as u64,
            padding: [self.low as u64, high as u64],
        })
    }

    /// Whether each image has one place of it.
    fn is_count(&self) -> bool {
        let is_one = matches!(self.places[..], [one] if one.by == 1 && one.extent == self.extent);
        is_one && !self.is_bounded && self.groups.is_empty() && self.deep.is_empty()
    }
}

/// The step of a list that has one at most.
fn single(list: &[IndexTerm]) -> Option<Option<IndexTerm>> {
    match list {
        [] => Some(None),
        [one] => Some(Some(*one)),
        _ => None,
    }
}

impl ConvolutionShape {
    fn recognise(image: &ImageAccess, p: &Product, weights: &Affine) -> Option<ConvolutionShape> {
        let is_read = |slot: Slot| {
            let lists = |a: &ImageAxis| [&a.places, &a.groups, &a.deep].map(Vec::clone).concat();
            image.axes.iter().any(|a| lists(&a.1).iter().any(|s| s.slot == slot))
        };
        let mut shape = ConvolutionShape {
            count: 1,
            groups: None,
            channels: None,
            outside: None,
            windows: vec![],
            images: None,
            places: vec![],
            elements: vec![],
            orders: vec![ChannelOrder::Last, ChannelOrder::First],
        };
        let mut has_channels = false;
        for (at, axis) in &image.axes {
            if axis.places.is_empty() {
                // Channels, of one axis alone, all of which are read.
                if std::mem::replace(&mut has_channels, true) || axis.is_bounded {
                    return None;
                }
                (shape.groups, shape.channels) = (single(&axis.groups)?, single(&axis.deep)?);
                shape.orders.retain(|o| (*o == ChannelOrder::First) == shape.windows.is_empty());
                let inside = shape.channels.map_or(1, |c| c.extent);
                let all = inside * shape.groups.map_or(1, |g| g.extent);
                let is_whole = shape.channels.is_none_or(|c| c.by == 1)
                    && shape.groups.is_none_or(|g| g.by == inside);
                if all != axis.extent || !is_whole {
                    return None;
                }
            } else if *at == 0 && axis.is_count() {
                (shape.count, shape.images) = (axis.extent, Some(axis.places[0]));
            } else {
                if has_channels && shape.orders == [ChannelOrder::Last] {
                    return None;
                }
                shape.windows.push(axis.window()?);
                shape.places.push(axis.places.first().map(|s| s.slot));
                shape.elements.push(axis.deep.first().map(|s| s.slot));
            }
        }
        let others = [&p.batch, &p.rows, &p.columns].into_iter().flat_map(|a| open(a));
        let others: Vec<IndexTerm> = others
            .filter(|a| !is_read(a.0))
            .map(|(slot, extent)| IndexTerm { slot, extent, by: weights.factor(slot) })
            .collect();
        shape.outside = single(&others)?;
        let has_windows = (1..=MOST).contains(&shape.windows.len());
        // A sum runs over what is read of both.
        let is_whole = open(&p.deep).all(|a| is_read(a.0))
            && shape.outside.is_none_or(|s| s.by > 0)
            && shape.groups.is_none_or(|s| weights.factor(s.slot) > 0);
        (has_windows && is_whole).then_some(shape)
    }

    /// Whether it does more than a product of matrices.
    fn is_more(&self, rank: usize) -> bool {
        let moves = |w: &WindowAxis| w.extents[1] > 1 || w.stride > 1 || w.padding != [0, 0];
        rank >= PIXELS || self.windows.iter().any(moves)
    }

    fn groups(&self) -> u64 {
        self.groups.map_or(1, |g| g.extent as u64)
    }

    fn channels(&self) -> [u64; 2] {
        [self.channels, self.outside].map(|s| s.map_or(1, |s| s.extent as u64))
    }

    /// The factors of an offset: along images, channels of the result (a group's, and one's), places.
    fn is_packed(&self, offset: &Affine, extents: &[u64], order: ChannelOrder) -> bool {
        let strides: Vec<i64> = order.strides(extents).into_iter().map(|s| s as i64).collect();
        let outside = self.channels()[1] as i64;
        let mut wanted: Vec<(Option<Slot>, i64)> = vec![
            (self.images.map(|s| s.slot), strides[0]),
            (self.groups.map(|s| s.slot), strides[1] * outside),
            (self.outside.map(|s| s.slot), strides[1]),
        ];
        wanted.extend(self.places.iter().copied().zip(strides[2..].iter().copied()));
        let is_so = |w: &(Option<Slot>, i64)| w.0.is_none_or(|slot| offset.factor(slot) == w.1);
        offset.constant == 0
            && wanted.iter().all(is_so)
            && offset.terms.iter().all(|t| wanted.iter().any(|w| w.0 == Some(t.0)))
    }

    /// The axes of weights in a layout: extents and strides in memory.
    fn weights(&self, weights: &Affine, order: ChannelOrder) -> Option<Vec<(u64, u64)>> {
        let along = |s: Option<Slot>, extent: u64| {
            let by = s.map_or(0, |slot| weights.factor(slot));
            Some((extent, u64::try_from(by).ok()?))
        };
        let [inside, outside] = self.channels();
        let channels = along(self.channels.map(|s| s.slot), inside)?;
        let mut axes = vec![
            along(self.groups.map(|s| s.slot), self.groups())?,
            along(self.outside.map(|s| s.slot), outside)?,
        ];
        let mut windows = vec![];
        for (window, slot) in self.windows.iter().zip(&self.elements) {
            windows.push(along(*slot, window.extents[1])?);
        }
        axes.extend(match order {
            ChannelOrder::First => [vec![channels], windows].concat(),
            ChannelOrder::Last => [windows, vec![channels]].concat(),
        });
        Some(axes)
    }
}

/// Whether axes lie in memory as they are said.
fn is_in_order(axes: &[(u64, u64)]) -> bool {
    let mut next = 1;
    axes.iter().rev().all(|&(extent, by)| {
        let fits = extent == 1 || by == next;
        next *= extent;
        fits
    })
}

impl ConvolutionMatch {
    /// The stage of `v`, a product and its epilogue, as a convolution. Constant weights may have any layout.
    pub fn recognise(
        e: &mut Emitter<'_>,
        kernel: &KernelProgram,
        v: Value,
        product: Value,
        is_fixed: &dyn Fn(Value) -> bool,
    ) -> Option<ConvolutionMatch> {
        let p = Product::recognise(e, kernel, product)?;
        let sizes = [&p.batch, &p.rows, &p.columns, &p.deep].map(|a| size(a));
        let work = sizes.iter().fold(1i64, |n, d| n.saturating_mul(*d));
        let Term::Real(left) = &p.factors[0] else { return None };
        let Term::Real(right) = &p.factors[1] else { return None };
        let dtype = kernel.program.ty(product).dtype;
        if work < LEAST || !matches!(dtype, DType::F16 | DType::BF16 | DType::F32) {
            return None;
        }
        let factors = [in_memory(e, product, left)?, in_memory(e, product, right)?];
        if factors.iter().any(|f| kernel.program.ty(f.value).dtype != dtype) {
            return None;
        }
        [(0, 1), (1, 0)].into_iter().find_map(|(image, weights)| {
            let (x, w) = (&factors[image], &factors[weights]);
            ConvolutionMatch::of_factors(e, kernel, v, &p, x, w, is_fixed)
        })
    }

    fn of_factors(
        e: &mut Emitter<'_>,
        kernel: &KernelProgram,
        v: Value,
        p: &Product,
        x: &StridedRead,
        w: &StridedRead,
        is_fixed: &dyn Fn(Value) -> bool,
    ) -> Option<ConvolutionMatch> {
        if !w.inside.is_empty() || w.offset.constant != 0 {
            return None;
        }
        let (dtype, extents) = known_type(&kernel.program, x.value).ok()?;
        let image = ImageAccess::new(&extents, x, p, &w.offset)?;
        let shape = ConvolutionShape::recognise(&image, p, &w.offset)?;
        if !shape.is_more(image.rank) {
            return None;
        }
        let result = offset_of(&p.shape, &p.index)?;
        let mut work = Convolution {
            dtype,
            count: shape.count as u64,
            groups: shape.groups(),
            channels: shape.channels(),
            windows: shape.windows.clone(),
            order: ChannelOrder::First,
            weights: ChannelOrder::First,
            is_added: false,
            has_bias: false,
            is_rectified: false,
            in_tf32: dtype == DType::F32 && kernel.tuning.tf32,
        };
        work.order = shape.orders.iter().copied().find(|&order| {
            let [of_image, of_result] = [ConvolutionTensor::Image, ConvolutionTensor::Result]
                .map(|part| work.extents(part));
            order_of(&extents, &of_image, order) && shape.is_packed(&result, &of_result, order)
        })?;
        let orders = [work.order, ChannelOrder::Last, ChannelOrder::First];
        let all = orders.map(|order| shape.weights(&w.offset, order).map(|axes| (order, axes)));
        let mut all = all.into_iter().flatten();
        let (order, axes) = match is_fixed(w.value) {
            true => all.next()?,
            false => all.find(|(_, axes)| is_in_order(axes))?,
        };
        work.weights = order;
        let follows = Epilogue::recognise(e, kernel, v, p, &|offset: &Affine| {
            let outside = shape.channels()[1] as i64;
            let factor = |s: Option<IndexTerm>| s.map_or(0, |s| offset.factor(s.slot));
            let is_other = |t: &(Slot, i64)| {
                [shape.groups, shape.outside].iter().flatten().all(|s| s.slot != t.0)
            };
            shape.outside.is_none_or(|_| factor(shape.outside) == 1)
                && shape.groups.is_none_or(|_| factor(shape.groups) == outside)
                && !offset.terms.iter().any(is_other)
        });
        // What is known of the library's graphs: engines for one without a bias are few.
        let is_known =
            |f: &Epilogue| f.bias.is_some() && f.activation != Some(Activation::GeluTanh);
        let follows = follows.filter(|f| v == p.value || is_known(f));
        if let Some(f) = &follows {
            (work.is_added, work.has_bias) = (f.added.is_some(), f.bias.is_some());
            work.is_rectified = f.activation == Some(Activation::Relu);
        }
        let added = follows.as_ref().map_or([None, None], |f| [f.added, f.bias]);
        let is_whole = follows.is_some();
        Some(ConvolutionMatch { work, image: x.value, weights: w.value, added, axes, is_whole })
    }
}

/// Whether a tensor of these extents lies in memory as one with images, channels and windows in this order does.
fn order_of(shape: &[usize], extents: &[u64], order: ChannelOrder) -> bool {
    let mut wanted: Vec<u64> = extents.to_vec();
    if order == ChannelOrder::Last {
        let channels = wanted.remove(1);
        wanted.push(channels);
    }
    let more = |n: &u64| *n != 1;
    shape.iter().map(|&n| n as u64).filter(more).eq(wanted.into_iter().filter(more))
}

impl ConvolutionMatch {
    /// Whether weights are read as they are in memory.
    pub fn is_as_stored(&self) -> bool {
        is_in_order(&self.axes)
    }
}
