//! What cuDNN is asked for, by a library on the host, and by the library itself where there is one.

mod host;

use super::*;
use crate::convolution::ChannelOrder;
use host::{PRECISE, REAL, STATE, State, table};
use mlc_dsl::ir::Tensor;

/// Along one axis: elements of the image and of a window, stride, dilation, padding.
fn window(n: u64, taps: u64, stride: u64, dilation: u64, padding: [u64; 2]) -> WindowAxis {
    let places = (n + padding[0] + padding[1] - dilation * (taps - 1) - 1) / stride + 1;
    WindowAxis { extents: [n, taps, places], stride, dilation, padding }
}

fn plain(windows: Vec<WindowAxis>) -> Convolution {
    Convolution {
        dtype: DType::F32,
        count: 2,
        groups: 1,
        channels: [3, 4],
        windows,
        order: ChannelOrder::First,
        weights: ChannelOrder::First,
        is_added: false,
        has_bias: false,
        is_rectified: false,
        in_tf32: false,
    }
}

/// Strides, dilations, paddings, numbers of axes, groups, orders, types, and what follows.
fn examples() -> Vec<Convolution> {
    let square = |w: WindowAxis| vec![w, w];
    let mut all = vec![
        plain(square(window(6, 3, 1, 1, [1, 1]))),
        plain(vec![window(6, 3, 1, 1, [1, 1]), window(7, 2, 1, 1, [0, 1])]),
        plain(square(window(7, 3, 2, 1, [1, 1]))),
        plain(square(window(8, 3, 1, 2, [2, 2]))),
        plain(square(window(9, 3, 3, 2, [1, 0]))),
        plain(square(window(5, 1, 1, 1, [0, 0]))),
        plain(square(window(6, 1, 2, 1, [0, 0]))),
        plain(vec![window(9, 3, 2, 1, [1, 1])]),
        plain(vec![
            window(4, 2, 1, 1, [0, 0]),
            window(5, 3, 2, 1, [1, 1]),
            window(3, 1, 1, 1, [0, 0]),
        ]),
        Convolution { groups: 3, channels: [2, 2], ..plain(square(window(5, 3, 1, 1, [1, 1]))) },
        Convolution { groups: 4, channels: [1, 1], ..plain(square(window(5, 3, 1, 1, [1, 1]))) },
    ];
    let orders =
        [(ChannelOrder::Last, ChannelOrder::Last), (ChannelOrder::Last, ChannelOrder::First)];
    let first = all.clone();
    all.extend(orders.into_iter().flat_map(|(order, weights)| {
        first.iter().map(move |c| Convolution { order, weights, ..c.clone() })
    }));
    let first = all.clone();
    let follows =
        [(false, true, false), (false, true, true), (true, true, false), (true, true, true)];
    all.extend(follows.into_iter().flat_map(|(is_added, has_bias, is_rectified)| {
        first.iter().map(move |c| Convolution { is_added, has_bias, is_rectified, ..c.clone() })
    }));
    let some: Vec<Convolution> = all.iter().step_by(7).cloned().collect();
    all.extend(
        [DType::F16, DType::BF16]
            .into_iter()
            .flat_map(|dtype| some.iter().map(move |c| Convolution { dtype, ..c.clone() })),
    );
    all
}

/// Sixteenths, which all types have.
fn values(dtype: DType, count: u64, first: u32) -> Tensor {
    let one = |i: u32| f64::from((i * 7 + first) % 11) / 16.0 - 0.25;
    Tensor::from_f64(dtype, vec![count as usize], &(0..count as u32).map(one).collect::<Vec<_>>())
}

fn tensor_of(c: &Convolution, part: ConvolutionTensor, first: u32) -> Tensor {
    values(c.dtype, c.extents(part).iter().product(), first)
}

/// The operands, and the result of a convolution by the library, in one of its ways.
fn by_library(c: &Convolution, way: usize) -> Result<Option<Vec<f64>>, Failure> {
    let operands = [
        Some(tensor_of(c, ConvolutionTensor::Image, 1)),
        Some(tensor_of(c, ConvolutionTensor::Weights, 2)),
        c.is_added.then(|| tensor_of(c, ConvolutionTensor::Result, 3)),
        c.has_bias.then(|| tensor_of(c, ConvolutionTensor::Bias, 4)),
    ];
    let operands: Vec<Vec<u8>> =
        operands.into_iter().flatten().map(|t| t.bytes().to_vec()).collect();
    let count: u64 = c.extents(ConvolutionTensor::Result).iter().product();
    let mut out = vec![0xffu8; count as usize * c.dtype.size()];
    let result = Address(out.as_mut_ptr().expose_provenance() as u64);
    let at = operands.iter().map(|v| Address(v.as_ptr().expose_provenance() as u64));
    let at: Vec<Address> = at.chain([result]).collect();
    let dnn = Dnn::new(table())?;
    assert_eq!(dnn.name(), "cuDNN 92800");
    let Some(ready) = dnn.prepare(c, &at, (Address(4096), 64), way)? else { return Ok(None) };
    dnn.convolve(&ready, ptr::without_provenance_mut(5))?;
    let out = Tensor::new(c.dtype, vec![count as usize], out.into()).expect("bytes");
    Ok(Some(out.to_f64()))
}

/// The result of a convolution, written down once more: of numbers by their places along axes, however these lie.
fn expected(c: &Convolution) -> Vec<f64> {
    let place = |part: ConvolutionTensor, index: &[u64]| -> usize {
        let strides = c.strides(part);
        index.iter().zip(&strides).map(|(i, s)| i * s).sum::<u64>() as usize
    };
    let [x, w] = [(ConvolutionTensor::Image, 1), (ConvolutionTensor::Weights, 2)]
        .map(|(p, f)| tensor_of(c, p, f).to_f64());
    let (z, b) = (
        tensor_of(c, ConvolutionTensor::Result, 3).to_f64(),
        tensor_of(c, ConvolutionTensor::Bias, 4).to_f64(),
    );
    let [inside, outside] = c.channels;
    // Three axes, of which the first ones may have one element.
    let mut along = c.windows.clone();
    let still = WindowAxis { extents: [1; 3], stride: 1, dilation: 1, padding: [0; 2] };
    along.splice(0..0, vec![still; 3 - c.windows.len()]);
    let index =
        |a: u64, b: u64, last: [u64; 3]| [&[a, b][..], &last[3 - c.windows.len()..]].concat();
    let places = |i: usize| {
        let [d, h, w] = [0, 1, 2].map(|a| along[a].extents[i]);
        (0..d).flat_map(move |x| (0..h).flat_map(move |y| (0..w).map(move |z| [x, y, z])))
    };
    let mut out = vec![f64::NAN; z.len()];
    for (n, k) in (0..c.count).flat_map(|n| (0..c.groups * outside).map(move |k| (n, k))) {
        for o in places(2) {
            let mut sum = 0.0;
            for (q, t) in (0..inside).flat_map(|q| places(1).map(move |t| (q, t))) {
                let from = [0, 1, 2].map(|a| {
                    let window = &along[a];
                    let at = o[a] * window.stride + t[a] * window.dilation;
                    at.checked_sub(window.padding[0]).filter(|i| *i < window.extents[0])
                });
                if let [Some(d), Some(h), Some(v)] = from {
                    let channel = k / outside * inside + q;
                    sum += x[place(ConvolutionTensor::Image, &index(n, channel, [d, h, v]))]
                        * w[place(ConvolutionTensor::Weights, &index(k, q, t))];
                }
            }
            let at = place(ConvolutionTensor::Result, &index(n, k, o));
            sum += if c.is_added { z[at] } else { 0.0 };
            sum += if c.has_bias { b[k as usize] } else { 0.0 };
            out[at] = if c.is_rectified { sum.max(0.0) } else { sum };
        }
    }
    Tensor::from_f64(c.dtype, vec![out.len()], &out).to_f64()
}

fn is_all_given_back() -> bool {
    STATE.with_borrow(|s| s.things.is_empty())
}

#[test]
fn what_the_library_is_asked_for_is_the_convolution() {
    for c in examples() {
        let ways = if c.dtype == DType::F32 { &REAL[..] } else { &PRECISE[..] };
        for way in 0..=ways.len() {
            let out = by_library(&c, way).unwrap_or_else(|e| panic!("{c}: {e:?}"));
            assert_eq!(out.is_some(), way < ways.len(), "{c} has way {way}");
            assert!(out.is_none_or(|out| out == expected(&c)), "{c}");
            assert!(is_all_given_back());
        }
        assert_eq!(STATE.with_borrow_mut(|s| std::mem::take(&mut s.executed)), ways);
    }
    let c = Convolution { in_tf32: true, ..examples()[0].clone() };
    assert_eq!(by_library(&c, 0), Ok(Some(expected(&c))));
    assert_eq!(STATE.with_borrow(|s| s.executed.clone()), PRECISE[..1]);
}

#[test]
fn an_engine_that_is_always_there_is_asked_where_no_other_computes() {
    let c = &examples()[0];
    // The stream says to this library that it has no others.
    STATE.with_borrow_mut(|s| s.stream = usize::MAX);
    assert_eq!(by_library(c, 0), Ok(Some(expected(c))));
    assert_eq!(STATE.with_borrow(|s| s.executed.clone()), [-1]);
    assert!(is_all_given_back());
}

#[test]
fn a_call_that_fails_leaves_nothing_behind() {
    let c = Convolution {
        is_added: true,
        has_bias: true,
        is_rectified: true,
        ..plain(vec![window(4, 3, 1, 1, [1, 1])])
    };
    by_library(&c, 0).expect("works");
    let count = STATE.with_borrow(|s| s.calls.len());
    assert!(count > 100, "{count}");
    let mut others = 0;
    for at in 0..count {
        STATE.with_borrow_mut(|s| *s = State { fails: Some(at), ..State::default() });
        match by_library(&c, 0) {
            Err(failed) => assert_eq!(failed.reason, "not supported (by this one)"),
            // Where a plan cannot be had, the next one is taken.
            Ok(out) => {
                assert_eq!(out, Some(expected(&c)));
                others += 1;
            }
        }
        assert!(is_all_given_back(), "call {at}");
    }
    assert!((5..20).contains(&others), "{others}");
}

/// A device, as the library itself describes one.
const DEVICE: &str = r#"{"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
"regsPerBlock": 65536, "multiProcessorCount": 132, "smCountOrigin": 0, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
"maxSharedMemoryPerBlockOptin": 232448, "oversizedSharedMemoryPerBlock": 0, "reservedSharedMemoryPerBlock": 1024,
"maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0,
"isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "memoryBusWidth": 5120,
"l2CacheSize": 52428800, "deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900, "driverVer": 13000,
"totalGlobalMem": 85000000000, "cudaDeviceId": 0}"#;

/// Descriptions need no device: the library itself, if there is one, takes them, and refuses extents that do not fit. It also plans for a
/// device that it is told of.
#[test]
fn a_real_library_takes_every_description() {
    let real = match CudnnFunctions::open() {
        Ok(real) => real,
        Err(why) => return println!("skipped: {why}"),
    };
    let all = examples();
    if let Err(e) = graph(&real, &all[0], PlanTarget::None) {
        // A part of it needs the driver's library.
        assert!(e.reason.contains("SUBLIBRARY"), "{e:?}");
        return println!("skipped: {} {}", e.call, e.reason);
    }
    for c in &all {
        graph(&real, c, PlanTarget::None).unwrap_or_else(|e| panic!("{c}: {e:?}"));
        let mut wrong = c.clone();
        wrong.windows[0].extents[2] += 1;
        assert!(graph(&real, &wrong, PlanTarget::None).is_err(), "{wrong}");
    }
    let text = std::ffi::CString::new(DEVICE).expect("no NUL");
    let device = DescriptorBuilder::new(&real, 38).expect("is made").with(
        2702,
        24,
        text.as_bytes_with_nul(),
    );
    let device = match device.expect("is set").done() {
        Ok(device) => device,
        Err(e) => return println!("skipped plans: {} {}", e.call, e.reason),
    };
    for c in &all {
        // The library counts on channels of several elements where they lie side by side.
        let target = (PlanTarget::Device(device.handle), 128 << 20);
        let found = PlanSearch::new(&real, c, target.0, target.1);
        let found = found.and_then(|mut plans| plans.nth(&real, target.0, 0));
        assert!(found.unwrap_or_else(|e| panic!("{c}: {e:?}")).is_some(), "{c}");
    }
}
