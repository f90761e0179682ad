//! Rust references of image decoders. Formats but JPEG are left to libraries; their output is converted to 8-bit RGB here.

use super::super::array::{Array, Elements};
use super::jpeg;
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{Attr, DType, Type};
use std::io::Cursor;
use zune_core::bytestream::ZCursor;
use zune_core::options::DecoderOptions;

/// Most rows and columns.
const SIDE: usize = 1 << 14;
/// Bytes that a library may take for one image.
const BYTES: usize = 1 << 30;

/// Samples of 8 bits, row by row.
struct Image {
    width: usize,
    height: usize,
    /// Of every pixel: gray, gray and opacity, the colours, or the colours and opacity.
    channels: usize,
    samples: Vec<u8>,
}

/// Height and width of the image in a file, zeros if it cannot be decoded.
pub(crate) fn size(_: &Env, args: &[Array], _: &[Type]) -> Result<Vec<Array>, String> {
    let image = decoded(args)?;
    let size = image.map_or([0, 0], |i| [i.height as i64, i.width as i64]);
    let y = Array::from_i64(DType::I64, vec![2], size.to_vec());
    Ok(vec![y.ok_or("two numbers")?])
}

/// The first rows and columns of the image in a file, as `RGB`, `BGR` or `Grayscale`; zeros outside of it. Opacity is left out.
pub(crate) fn pixels(env: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let format = match env.attr("pixel_format") {
        Some(Attr::Str(s)) => s.as_str(),
        _ => "RGB",
    };
    let shape = types.first().and_then(Type::known_shape);
    let Some(&[height, width, channels]) = shape.as_deref() else {
        return Err("the size of the result is known".into());
    };
    let mut out = vec![0; height * width * channels];
    if let Some(image) = decoded(args)? {
        for y in 0..height.min(image.height) {
            for x in 0..width.min(image.width) {
                let pixel = &image.samples[(y * image.width + x) * image.channels..];
                let values = converted(&pixel[..image.channels], format);
                let at = (y * width + x) * channels;
                out[at..at + channels].copy_from_slice(&values[..channels]);
            }
        }
    }
    let y = Array::from_i64(DType::U8, vec![height, width, channels], out);
    Ok(vec![y.ok_or("the declared type does not fit")?])
}

/// The channels of a pixel in a format; of `Grayscale` the first one.
fn converted(pixel: &[u8], format: &str) -> [i64; 3] {
    let [r, g, b] = match *pixel {
        [r, g, b, ..] => [r, g, b].map(i64::from),
        [gray, ..] => [i64::from(gray); 3],
        [] => [0; 3],
    };
    match format {
        "BGR" => [b, g, r],
        // The weights of ITU-R BT.601 in sixteen bits of fraction.
        "Grayscale" => [(r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16; 3],
        _ => [r, g, b],
    }
}

/// The image in a file; none if its format is unknown or it is damaged.
fn decoded(args: &[Array]) -> Result<Option<Image>, String> {
    let Some(Elements::Int(bytes)) = args.first().map(Array::elements) else {
        return Err("the argument is bytes".into());
    };
    let file: Vec<u8> = bytes.iter().map(|&b| b as u8).collect();
    let read = match file.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => png,
        [0xff, 0xd8, ..] => jpeg,
        [b'B', b'M', ..] => bmp,
        [b'P', b'1'..=b'7', ..] => pnm,
        [b'I', b'I', ..] | [b'M', b'M', ..] => tiff,
        [b'R', b'I', b'F', b'F', ..] => webp,
        _ => return Ok(None),
    };
    let sound = |i: &Image| {
        let count = i.width.checked_mul(i.height).and_then(|n| n.checked_mul(i.channels));
        i.channels > 0 && count == Some(i.samples.len())
    };
    Ok(read(file).filter(sound))
}

fn options() -> DecoderOptions {
    DecoderOptions::default().set_max_width(SIDE).set_max_height(SIDE)
}

fn png(file: Vec<u8>) -> Option<Image> {
    let limits = png::Limits { bytes: BYTES };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(file), limits);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().ok()?;
    let bytes = reader.output_buffer_size().filter(|&n| n <= BYTES)?;
    let mut samples = vec![0; bytes];
    let info = reader.next_frame(&mut samples).ok()?;
    samples.truncate(info.buffer_size());
    let (width, height) = (info.width as usize, info.height as usize);
    Some(Image { width, height, channels: info.color_type.samples(), samples })
}

fn jpeg(file: Vec<u8>) -> Option<Image> {
    let jpeg::Decoded { width, height, channels, samples } = jpeg::decode(&file)?;
    Some(Image { width, height, channels, samples })
}

fn bmp(file: Vec<u8>) -> Option<Image> {
    let mut decoder = zune_bmp::BmpDecoder::new_with_options(ZCursor::new(file), options());
    let samples = decoder.decode().ok()?;
    let (width, height) = decoder.dimensions()?;
    let channels = decoder.colorspace()?.num_components();
    Some(Image { width, height, channels, samples })
}

fn pnm(file: Vec<u8>) -> Option<Image> {
    let mut decoder = zune_ppm::PPMDecoder::new_with_options(ZCursor::new(file), options());
    let samples = decoder.decode().ok()?.u8()?;
    let (width, height) = decoder.dimensions()?;
    let channels = decoder.colorspace()?.num_components();
    Some(Image { width, height, channels, samples })
}

fn tiff(file: Vec<u8>) -> Option<Image> {
    use tiff::ColorType::{Gray, GrayA, RGB, RGBA};
    use tiff::decoder::{Decoder, DecodingResult, Limits};
    let mut limits = Limits::default();
    limits.decoding_buffer_size = BYTES;
    let mut decoder = Decoder::new(Cursor::new(file)).ok()?.with_limits(limits);
    let (width, height) = decoder.dimensions().ok()?;
    let channels = match decoder.colortype().ok()? {
        Gray(8) => 1,
        GrayA(8) => 2,
        RGB(8) => 3,
        RGBA(8) => 4,
        _ => return None,
    };
    let DecodingResult::U8(samples) = decoder.read_image().ok()? else { return None };
    Some(Image { width: width as usize, height: height as usize, channels, samples })
}

fn webp(file: Vec<u8>) -> Option<Image> {
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(file)).ok()?;
    decoder.set_memory_limit(BYTES);
    let mut samples = vec![0; decoder.output_buffer_size().filter(|&n| n <= BYTES)?];
    decoder.read_image(&mut samples).ok()?;
    let (width, height) = decoder.dimensions();
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    Some(Image { width: width as usize, height: height as usize, channels, samples })
}
