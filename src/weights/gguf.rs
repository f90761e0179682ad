//! GGUF, versions 2 and 3, little-endian.
//!
//! No length is believed before the bytes are there: memory is bounded by the file's size.

use crate::{Metadata, StoredKind, StoredTensor, WeightFile, WeightsError};
use bytes::Bytes;
use mlc_dsl::ir::{DType, FileRange};
use mlc_dsl::shown;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8] = b"GGUF";
/// Where tensors begin is a multiple of this unless the file says otherwise.
const ALIGNMENT: u64 = 32;
/// Most axes of a tensor.
const AXES: u32 = 8;

/// True if these are the first bytes of a GGUF file.
pub fn is_gguf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Reads a GGUF file; `path` is for messages and for finding the weights again.
///
/// # Errors
/// The bytes are no GGUF file of a version that is known.
pub fn read_gguf(bytes: &Bytes, path: &Path) -> Result<WeightFile, WeightsError> {
    let mut reader = GgufReader { bytes, at: 0, path };
    if !is_gguf(reader.take(4, "the first bytes")?) {
        return Err(reader.error("it does not begin with `GGUF`"));
    }
    let version = reader.u32("the version")?;
    if !(2..=3).contains(&version) {
        let reason = match version.swap_bytes() {
            2 | 3 => "the file is big-endian".to_string(),
            _ => format!("version {version} is not known"),
        };
        return Err(reader.error(&reason).help("versions 2 and 3, little-endian, are read"));
    }
    let (tensors, keys) = (reader.u64("the number of tensors")?, reader.u64("the number of keys")?);
    let metadata = reader.metadata(keys)?;
    let alignment = match metadata.get("general.alignment") {
        None => ALIGNMENT,
        Some(Metadata::Int(n)) if *n > 0 && *n % 8 == 0 => *n as u64,
        Some(_) => {
            return Err(WeightsError::new(
                path,
                "key `general.alignment`",
                "it is no multiple of 8",
            ));
        }
    };
    let tensors = reader.tensors(tensors, alignment)?;
    let architectures = match metadata.get("general.architecture") {
        Some(Metadata::Text(name)) => vec![name.clone()],
        _ => {
            let reason = "the file does not say what its architecture is";
            return Err(WeightsError::new(path, "key `general.architecture`", reason)
                .help("it names the architecture, as `llama`: convert the model again"));
        }
    };
    Ok(WeightFile { format: "gguf", path: path.into(), architectures, metadata, tensors })
}

struct GgufReader<'a> {
    bytes: &'a Bytes,
    at: usize,
    path: &'a Path,
}

impl<'a> GgufReader<'a> {
    fn error(&self, reason: &str) -> WeightsError {
        WeightsError::new(self.path, format!("byte {}", self.at), reason)
    }

    fn take(&mut self, n: u64, what: &str) -> Result<&'a [u8], WeightsError> {
        let have = self.bytes.len() - self.at;
        match usize::try_from(n).ok().filter(|n| *n <= have) {
            Some(n) => {
                let found = &self.bytes[self.at..self.at + n];
                self.at += n;
                Ok(found)
            }
            None => {
                Err(self.error(&format!("{what} takes {n} bytes, and the file has {have} more")))
            }
        }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], WeightsError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    fn u32(&mut self, what: &str) -> Result<u32, WeightsError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, WeightsError> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn text(&mut self, what: &str) -> Result<String, WeightsError> {
        let length = self.u64(what)?;
        let begin = self.at;
        let bytes = self.take(length, what)?;
        let not_text = |_| {
            WeightsError::new(self.path, format!("byte {begin}"), format!("{what} is not UTF-8"))
        };
        std::str::from_utf8(bytes).map(str::to_string).map_err(not_text)
    }

    fn metadata(&mut self, count: u64) -> Result<BTreeMap<String, Metadata>, WeightsError> {
        let mut found = BTreeMap::new();
        for i in 0..count {
            let begin = self.at;
            let key = self.text(&format!("the name of key {i}"))?;
            let kind = self.u32("the type of a value")?;
            let value = self.value(kind, &key)?;
            if found.insert(key.clone(), value).is_some() {
                let reason = format!("the key `{}` is there twice", shown(&key));
                return Err(WeightsError::new(self.path, format!("byte {begin}"), reason));
            }
        }
        Ok(found)
    }

    fn value(&mut self, kind: u32, key: &str) -> Result<Metadata, WeightsError> {
        let what = format!("the value of `{}`", shown(key));
        if kind == 9 {
            let of = self.u32(&what)?;
            let count = self.u64(&what)?;
            return self.list(of, count, &what);
        }
        self.scalar(kind, &what)
    }

    fn scalar(&mut self, kind: u32, what: &str) -> Result<Metadata, WeightsError> {
        Ok(match kind {
            0 => Metadata::Int(i64::from(self.array::<1>(what)?[0])),
            1 => Metadata::Int(i64::from(i8::from_le_bytes(self.array(what)?))),
            2 => Metadata::Int(i64::from(u16::from_le_bytes(self.array(what)?))),
            3 => Metadata::Int(i64::from(i16::from_le_bytes(self.array(what)?))),
            4 => Metadata::Int(i64::from(self.u32(what)?)),
            5 => Metadata::Int(i64::from(i32::from_le_bytes(self.array(what)?))),
            6 => Metadata::Float(f64::from(f32::from_le_bytes(self.array(what)?))),
            7 => Metadata::Bool(self.array::<1>(what)?[0] != 0),
            8 => Metadata::Text(self.text(what)?),
            10 => {
                let n = self.u64(what)?;
                let n = i64::try_from(n);
                Metadata::Int(n.map_err(|_| self.error(&format!("{what} is too large")))?)
            }
            11 => Metadata::Int(i64::from_le_bytes(self.array(what)?)),
            12 => Metadata::Float(f64::from_le_bytes(self.array(what)?)),
            other => return Err(self.error(&format!("{what} has the unknown type {other}"))),
        })
    }

    fn list(&mut self, kind: u32, count: u64, what: &str) -> Result<Metadata, WeightsError> {
        let mut list = match kind {
            0..=5 | 10 | 11 => Metadata::Ints(vec![]),
            6 | 12 => Metadata::Floats(vec![]),
            7 => Metadata::Bools(vec![]),
            8 => Metadata::Texts(vec![]),
            9 => return Err(self.error(&format!("{what} is a list of lists"))),
            other => return Err(self.error(&format!("{what} has the unknown type {other}"))),
        };
        // Every entry takes bytes of the file, so that a count that is too large ends with the file.
        for _ in 0..count {
            match (self.scalar(kind, what)?, &mut list) {
                (Metadata::Int(v), Metadata::Ints(all)) => all.push(v),
                (Metadata::Float(v), Metadata::Floats(all)) => all.push(v),
                (Metadata::Bool(v), Metadata::Bools(all)) => all.push(v),
                (Metadata::Text(v), Metadata::Texts(all)) => all.push(v),
                _ => return Err(self.error(&format!("{what} has entries of several types"))),
            }
        }
        Ok(list)
    }

    fn tensors(
        &mut self,
        count: u64,
        alignment: u64,
    ) -> Result<BTreeMap<String, StoredTensor>, WeightsError> {
        let mut described = BTreeMap::new();
        for i in 0..count {
            let begin = self.at;
            let name = self.text(&format!("the name of tensor {i}"))?;
            let (shape, number, offset) = self.described(&name)?;
            if described.insert(name.clone(), (shape, number, offset)).is_some() {
                let reason = format!("the tensor `{}` is there twice", shown(&name));
                return Err(WeightsError::new(self.path, format!("byte {begin}"), reason));
            }
        }
        let data = (self.at as u64).checked_next_multiple_of(alignment);
        let place = |(name, (shape, number, offset)): (String, (Vec<usize>, u32, u64))| {
            let start = data.and_then(|d| d.checked_add(offset));
            let within = start.and_then(|s| usize::try_from(s).ok());
            let Some(start) = within.filter(|s| *s <= self.bytes.len()) else {
                let reason = format!(
                    "it begins {offset} bytes behind the description, past the end of the file"
                );
                return Err(WeightsError::of_tensor(self.path, &name, reason)
                    .help("the file is cut off or damaged: fetch it again"));
            };
            let range = Arc::new(FileRange { path: self.path.into(), offset: start as u64 });
            let kind = elements(number).map_or(StoredKind::Number(number), StoredKind::Elements);
            let data = self.bytes.slice(start..);
            Ok((name, StoredTensor { kind, shape, data, range }))
        };
        described.into_iter().map(place).collect()
    }

    /// Shape, type and offset of a tensor.
    fn described(&mut self, name: &str) -> Result<(Vec<usize>, u32, u64), WeightsError> {
        let what = format!("the description of tensor `{}`", shown(name));
        let axes = self.u32(&what)?;
        if axes > AXES {
            return Err(self.error(&format!("{what} has {axes} axes; at most {AXES} are read")));
        }
        let mut shape = Vec::new();
        for _ in 0..axes {
            let n = self.u64(&what)?;
            let n = usize::try_from(n).ok().filter(|n| isize::try_from(*n).is_ok());
            shape.push(
                n.ok_or_else(|| self.error(&format!("{what} has an axis that is too long")))?,
            );
        }
        // The first axis varies fastest.
        shape.reverse();
        Ok((shape, self.u32(&what)?, self.u64(&what)?))
    }
}

/// The element type that a number stands for; of blocks the language says what they are.
fn elements(number: u32) -> Option<DType> {
    Some(match number {
        0 => DType::F32,
        1 => DType::F16,
        24 => DType::I8,
        25 => DType::I16,
        26 => DType::I32,
        27 => DType::I64,
        28 => DType::F64,
        30 => DType::BF16,
        _ => return None,
    })
}
