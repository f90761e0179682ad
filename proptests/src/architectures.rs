//! The architectures on which TENSAT was measured (Yang et al., "Equality Saturation for Tensor Graph
//! Superoptimization", MLSys 2021, section 6), in inference form, after the papers that proposed them.
//!
//! BERT and NasRNN are exported models and not here.

use crate::spellings::build::{Build, Value, int, ints};
use crate::spellings::choices::Choices;
use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::RawModel;

/// An architecture.
pub struct Architecture {
    /// As in the publication.
    pub name: &'static str,
    /// Seconds that TENSAT took to optimise it, as published in table 1 (none: not among them).
    pub tensat: Option<f64>,
    build: fn(&mut Net, Tensor4) -> Tensor4,
    image: usize,
}

/// All of them.
pub const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "ResNet-50", tensat: None, build: resnet50, image: 224 },
    Architecture { name: "ResNeXt-50", tensat: Some(0.7), build: resnext50, image: 224 },
    Architecture { name: "NasNet-A", tensat: Some(10.6), build: nasnet_a, image: 224 },
    Architecture { name: "SqueezeNet", tensat: Some(0.3), build: squeezenet, image: 224 },
    Architecture { name: "Inception-v3", tensat: Some(5.1), build: inception_v3, image: 299 },
    Architecture { name: "VGG-19", tensat: Some(0.4), build: vgg19, image: 224 },
];

impl Architecture {
    /// The model for one image, with seeded weights.
    pub fn model(&self) -> RawModel {
        let mut net = Net { b: Build::new(17, DType::F32, false, Choices::default()), drawn: 0 };
        let side = self.image as i64;
        let at = net.b.input(&[1, 3, side, side]);
        let out = (self.build)(&mut net, Tensor4 { at, channels: 3 });
        net.b.finish(&[out.at], DType::F32).0
    }
}

/// A value of four axes and its channels.
#[derive(Clone, Copy)]
struct Tensor4 {
    at: Value,
    channels: usize,
}

/// How a window moves: its extents, stride, padding and groups.
#[derive(Clone, Copy)]
struct Window {
    size: (usize, usize),
    stride: usize,
    pad: (usize, usize),
    groups: usize,
}

/// A square window that keeps the extents if its stride is one.
const fn square(size: usize, stride: usize) -> Window {
    Window { size: (size, size), stride, pad: (size / 2, size / 2), groups: 1 }
}

/// A square window without padding.
const fn valid(size: usize, stride: usize) -> Window {
    Window { size: (size, size), stride, pad: (0, 0), groups: 1 }
}

/// A window that keeps the extents.
const fn same(height: usize, width: usize) -> Window {
    Window { size: (height, width), stride: 1, pad: (height / 2, width / 2), groups: 1 }
}

struct Net {
    b: Build,
    drawn: u64,
}

impl Net {
    fn weight(&mut self, shape: &[usize], fan: usize) -> Value {
        self.drawn += 1;
        let mut random = mlc_dsl::random::Random::from_state(self.drawn);
        let spread = (3.0 / fan as f64).sqrt();
        let n = shape.iter().product();
        let values = (0..n).map(|_| ((random.unit() * 2.0 - 1.0) * spread) as f32).collect();
        self.b.constant(Tensor::from_f32(shape.to_vec(), values))
    }

    fn window(w: Window) -> Vec<(&'static str, mlc_onnx::RawAttr)> {
        let (s, (h, v)) = (w.stride as i64, (w.pad.0 as i64, w.pad.1 as i64));
        vec![
            ("kernel_shape", ints(&[w.size.0 as i64, w.size.1 as i64])),
            ("strides", ints(&[s, s])),
            ("pads", ints(&[h, v, h, v])),
        ]
    }

    fn conv(&mut self, x: Tensor4, channels: usize, w: Window) -> Tensor4 {
        let within = x.channels / w.groups;
        let fan = within * w.size.0 * w.size.1;
        let filters = self.weight(&[channels, within, w.size.0, w.size.1], fan);
        let mut attrs = Net::window(w);
        attrs.push(("group", int(w.groups as i64)));
        Tensor4 { at: self.b.node("Conv", &[x.at, filters], &attrs), channels }
    }

    fn relu(&mut self, x: Tensor4) -> Tensor4 {
        Tensor4 { at: self.b.op("Relu", [x.at]), ..x }
    }

    fn conv_relu(&mut self, x: Tensor4, channels: usize, w: Window) -> Tensor4 {
        let y = self.conv(x, channels, w);
        self.relu(y)
    }

    fn pool(&mut self, kind: &str, x: Tensor4, w: Window) -> Tensor4 {
        Tensor4 { at: self.b.node(kind, &[x.at], &Net::window(w)), ..x }
    }

    fn add(&mut self, x: Tensor4, y: Tensor4) -> Tensor4 {
        Tensor4 { at: self.b.op("Add", [x.at, y.at]), ..x }
    }

    fn concat(&mut self, parts: &[Tensor4]) -> Tensor4 {
        let values: Vec<Value> = parts.iter().map(|p| p.at).collect();
        let channels = parts.iter().map(|p| p.channels).sum();
        Tensor4 { at: self.b.node("Concat", &values, &[("axis", int(1))]), channels }
    }

    /// The mean over each channel, and a product on it.
    fn classify(&mut self, x: Tensor4) -> Tensor4 {
        let at = self.b.op("GlobalAveragePool", [x.at]);
        self.dense(Tensor4 { at, ..x }, x.channels, 1000)
    }

    fn dense(&mut self, x: Tensor4, from: usize, to: usize) -> Tensor4 {
        let flat = self.b.node("Flatten", &[x.at], &[("axis", int(1))]);
        let w = self.weight(&[from, to], from);
        Tensor4 { at: self.b.op("MatMul", [flat, w]), channels: to }
    }
}

/// Bottlenecks in four stages (He et al., 2015, table 1; Xie et al., 2017, table 1).
fn residual(net: &mut Net, x: Tensor4, width: usize, groups: usize) -> Tensor4 {
    let mut x = net.conv_relu(x, 64, square(7, 2));
    x = net.pool("MaxPool", x, square(3, 2));
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let (inner, outer) = (width << stage, 256 << stage);
        for block in 0..blocks {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            let y = net.conv_relu(x, inner, square(1, 1));
            let y = net.conv_relu(y, inner, Window { groups, ..square(3, stride) });
            let y = net.conv(y, outer, square(1, 1));
            let by = match block {
                0 => net.conv(x, outer, Window { pad: (0, 0), ..square(1, stride) }),
                _ => x,
            };
            let sum = net.add(y, by);
            x = net.relu(sum);
        }
    }
    net.classify(x)
}

fn resnet50(net: &mut Net, x: Tensor4) -> Tensor4 {
    residual(net, x, 64, 1)
}

fn resnext50(net: &mut Net, x: Tensor4) -> Tensor4 {
    residual(net, x, 128, 32)
}

/// Fire modules (Iandola et al., 2016, version 1.1).
fn squeezenet(net: &mut Net, x: Tensor4) -> Tensor4 {
    let mut x = net.conv_relu(x, 64, valid(3, 2));
    for (i, (squeeze, expand)) in
        [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)]
            .into_iter()
            .enumerate()
    {
        if matches!(i, 0 | 2 | 4) {
            x = net.pool("MaxPool", x, valid(3, 2));
        }
        let s = net.conv_relu(x, squeeze, square(1, 1));
        let (a, b) =
            (net.conv_relu(s, expand, square(1, 1)), net.conv_relu(s, expand, square(3, 1)));
        x = net.concat(&[a, b]);
    }
    let x = net.conv_relu(x, 1000, square(1, 1));
    Tensor4 { at: net.b.op("GlobalAveragePool", [x.at]), ..x }
}

/// Nineteen layers with weights (Simonyan and Zisserman, 2014, configuration E).
fn vgg19(net: &mut Net, x: Tensor4) -> Tensor4 {
    let mut x = x;
    for (layers, channels) in [(2, 64), (2, 128), (4, 256), (4, 512), (4, 512)] {
        for _ in 0..layers {
            x = net.conv_relu(x, channels, square(3, 1));
        }
        x = net.pool("MaxPool", x, valid(2, 2));
    }
    for (from, to) in [(512 * 49, 4096), (4096, 4096)] {
        let y = net.dense(x, from, to);
        x = net.relu(y);
    }
    net.dense(x, 4096, 1000)
}

/// Towers of factorised convolutions (Szegedy et al., 2015, "Rethinking the Inception Architecture").
fn inception_v3(net: &mut Net, x: Tensor4) -> Tensor4 {
    let mut x = net.conv_relu(x, 32, valid(3, 2));
    x = net.conv_relu(x, 32, valid(3, 1));
    x = net.conv_relu(x, 64, square(3, 1));
    x = net.pool("MaxPool", x, valid(3, 2));
    x = net.conv_relu(x, 80, valid(1, 1));
    x = net.conv_relu(x, 192, valid(3, 1));
    x = net.pool("MaxPool", x, valid(3, 2));
    for pooled in [32, 64, 64] {
        let a = net.conv_relu(x, 64, square(1, 1));
        let b = tower(net, x, &[(48, square(1, 1)), (64, square(5, 1))]);
        let c = tower(net, x, &[(64, square(1, 1)), (96, square(3, 1)), (96, square(3, 1))]);
        let d = pooled_tower(net, x, pooled);
        x = net.concat(&[a, b, c, d]);
    }
    let a = net.conv_relu(x, 384, valid(3, 2));
    let b = tower(net, x, &[(64, square(1, 1)), (96, square(3, 1)), (96, valid(3, 2))]);
    let c = net.pool("MaxPool", x, valid(3, 2));
    x = net.concat(&[a, b, c]);
    for n in [128, 160, 160, 192] {
        let a = net.conv_relu(x, 192, square(1, 1));
        let b = tower(net, x, &[(n, square(1, 1)), (n, same(1, 7)), (192, same(7, 1))]);
        let c = [(n, same(7, 1)), (n, same(1, 7)), (n, same(7, 1)), (192, same(1, 7))];
        let c = tower(net, x, &[&[(n, square(1, 1))], &c[..]].concat());
        let d = pooled_tower(net, x, 192);
        x = net.concat(&[a, b, c, d]);
    }
    let a = tower(net, x, &[(192, square(1, 1)), (320, valid(3, 2))]);
    let b = [(192, square(1, 1)), (192, same(1, 7)), (192, same(7, 1)), (192, valid(3, 2))];
    let b = tower(net, x, &b);
    let c = net.pool("MaxPool", x, valid(3, 2));
    x = net.concat(&[a, b, c]);
    for _ in 0..2 {
        let a = net.conv_relu(x, 320, square(1, 1));
        let b = net.conv_relu(x, 384, square(1, 1));
        let b = forked(net, b);
        let c = tower(net, x, &[(448, square(1, 1)), (384, square(3, 1))]);
        let c = forked(net, c);
        let d = pooled_tower(net, x, 192);
        x = net.concat(&[a, b, c, d]);
    }
    net.classify(x)
}

fn tower(net: &mut Net, x: Tensor4, layers: &[(usize, Window)]) -> Tensor4 {
    layers.iter().fold(x, |x, (channels, w)| net.conv_relu(x, *channels, *w))
}

fn pooled_tower(net: &mut Net, x: Tensor4, channels: usize) -> Tensor4 {
    let y = net.pool("AveragePool", x, square(3, 1));
    net.conv_relu(y, channels, square(1, 1))
}

fn forked(net: &mut Net, x: Tensor4) -> Tensor4 {
    let (a, b) = (net.conv_relu(x, 384, same(1, 3)), net.conv_relu(x, 384, same(3, 1)));
    net.concat(&[a, b])
}

/// Searched cells (Zoph et al., 2017, figure 4), four normal ones to a stage.
fn nasnet_a(net: &mut Net, x: Tensor4) -> Tensor4 {
    let stem = net.conv(x, 32, square(3, 2));
    let (mut before, mut now) = (stem, stem);
    let mut channels = 44;
    for stage in 0..3 {
        if stage > 0 {
            channels *= 2;
        }
        let next = reduction(net, before, now, channels);
        (before, now) = (now, next);
        // What comes from before the reduction is twice as large.
        let mut halved = true;
        for _ in 0..4 {
            let next = normal(net, before, now, channels, halved);
            (before, now, halved) = (now, next, false);
        }
    }
    let x = net.relu(now);
    net.classify(x)
}

/// A depthwise and a pointwise convolution, twice.
fn separable(net: &mut Net, x: Tensor4, channels: usize, size: usize, stride: usize) -> Tensor4 {
    let mut y = x;
    for stride in [stride, 1] {
        y = net.relu(y);
        y = net.conv(y, y.channels, Window { groups: y.channels, ..square(size, stride) });
        y = net.conv(y, channels, square(1, 1));
    }
    y
}

fn fit(net: &mut Net, x: Tensor4, channels: usize, stride: usize) -> Tensor4 {
    let y = net.relu(x);
    net.conv(y, channels, Window { pad: (0, 0), ..square(1, stride) })
}

fn normal(net: &mut Net, before: Tensor4, now: Tensor4, n: usize, halved: bool) -> Tensor4 {
    let p = fit(net, before, n, if halved { 2 } else { 1 });
    let h = fit(net, now, n, 1);
    let average = |net: &mut Net, x| net.pool("AveragePool", x, square(3, 1));
    let pairs = [
        (separable(net, h, n, 3, 1), h),
        (separable(net, p, n, 3, 1), separable(net, h, n, 5, 1)),
        (average(net, h), p),
        (average(net, p), average(net, p)),
        (separable(net, p, n, 5, 1), separable(net, p, n, 3, 1)),
    ];
    let sums: Vec<Tensor4> = pairs.into_iter().map(|(a, b)| net.add(a, b)).collect();
    net.concat(&[&[p], sums.as_slice()].concat())
}

fn reduction(net: &mut Net, before: Tensor4, now: Tensor4, n: usize) -> Tensor4 {
    let (p, h) = (fit(net, before, n, 1), fit(net, now, n, 1));
    let (a, b) = (separable(net, p, n, 7, 2), separable(net, h, n, 5, 2));
    let first = net.add(a, b);
    let (a, b) = (net.pool("MaxPool", h, square(3, 2)), separable(net, p, n, 7, 2));
    let second = net.add(a, b);
    let (a, b) = (net.pool("AveragePool", h, square(3, 2)), separable(net, p, n, 5, 2));
    let third = net.add(a, b);
    let (a, b) = (net.pool("MaxPool", h, square(3, 2)), separable(net, first, n, 3, 1));
    let fourth = net.add(a, b);
    let a = net.pool("AveragePool", first, square(3, 1));
    let fifth = net.add(a, second);
    net.concat(&[second, third, fourth, fifth])
}
