//! Files of images: the pixels that Pillow and libjpeg-turbo decode, and files that are none.

use super::support::*;
use mlc_onnx::to_bytes;
use mlc_rewrite::{AnyArray, Device, Model};

const WIDTH: usize = 11;
const HEIGHT: usize = 9;

macro_rules! images {
    ($($name:literal $kind:literal),* $(,)?) => {
        [$((
            concat!($name, ".", $kind),
            include_bytes!(concat!("images/", $name, ".", $kind)).as_slice(),
            include_bytes!(concat!("images/", $name, "_", $kind, ".rgb")).as_slice(),
        )),*]
    };
}

/// The pixels of a file by both backends.
fn decoded(file: &[u8], format: &str) -> Vec<Tensor> {
    let file: Vec<i64> = file.iter().map(|&b| b.into()).collect();
    let file = Tensor::from_i64(DType::U8, vec![file.len()], &file);
    let attrs = [("pixel_format", RawAttr::Str(format.as_bytes().to_vec().into()))];
    let (raw, feeds) = single(20, "ImageDecoder", &[In(file)], &attrs, 1);
    let model = Model::from_bytes(to_bytes(&raw).expect("written")).expect("it loads");
    let run = |device: Device| {
        let session = model.session_on(&device).expect("runs decide its size");
        let outputs = session.run([("x0", AnyArray::from(feeds[0].clone()))]).expect("it runs");
        outputs["y0"].tensor().clone()
    };
    vec![run(Device::reference()), run(Device::cpu().threads(1))]
}

#[test]
fn pixels_are_those_of_other_decoders() {
    let images = images!(
        "color" "bmp", "color" "png", "gray" "png", "palette" "png", "opacity" "png", "color" "ppm",
        "gray" "pgm", "color" "tiff", "packed" "tiff", "color" "webp", "exact" "webp", "half" "jpeg",
        "half_columns" "jpeg", "full" "jpeg", "gray" "jpeg",
    );
    for (name, file, wanted) in images {
        for y in decoded(file, "RGB") {
            assert_eq!((y.dtype(), y.shape()), (DType::U8, &[HEIGHT, WIDTH, 3][..]), "{name}");
            assert_eq!(&y.bytes()[..], wanted, "{name}");
        }
    }
}

#[test]
fn colours_are_put_in_order_or_weighed() {
    let [(_, file, rgb)] = images!("color" "png");
    let bgr: Vec<u8> = rgb.chunks(3).flat_map(|p| [p[2], p[1], p[0]]).collect();
    let gray = |p: &[u8]| {
        let weighed = 0.299 * f64::from(p[0]) + 0.587 * f64::from(p[1]) + 0.114 * f64::from(p[2]);
        weighed.round() as u8
    };
    let gray: Vec<u8> = rgb.chunks(3).map(gray).collect();
    for (format, channels, wanted) in [("BGR", 3, bgr), ("Grayscale", 1, gray)] {
        for y in decoded(file, format) {
            assert_eq!(y.shape(), [HEIGHT, WIDTH, channels], "{format}");
            let near = y
                .bytes()
                .iter()
                .zip(&wanted)
                .all(|(a, b)| a.abs_diff(*b) <= u8::from(channels == 1));
            assert!(near, "{format}: {y:?}");
        }
    }
}

#[test]
fn what_is_no_image_has_no_pixels() {
    let [(_, whole, _)] = images!("full" "jpeg");
    for file in [&b""[..], b"text", b"\xff\xd8\xff", &whole[..40], b"BM\x01", b"\x89PNG\r\n\x1a\n"]
    {
        for y in decoded(file, "RGB") {
            assert_eq!(y.shape(), [0, 0, 3], "{file:?}");
        }
    }
}

/// Damage yields some image or none.
#[test]
fn damage_never_panics() {
    let images = images!("half" "jpeg", "half_columns" "jpeg", "full" "jpeg", "packed" "tiff", "color" "ppm");
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % below.max(1) as u64) as usize
    };
    for round in 0..200 {
        let mut file = images[round % images.len()].1.to_vec();
        for _ in 0..=random(4) {
            let at = random(file.len());
            file[at] = random(256) as u8;
        }
        let _ = decoded(&file, "RGB");
    }
}
