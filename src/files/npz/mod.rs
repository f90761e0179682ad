//! NumPy arrays and archives of them: `.npy` and `.npz`.
//!
//! Every element type of [`Tensor`] is read in either byte order and either memory order, and written
//! little-endian and row-major; `bf16`, which NumPy lacks, is `V2`, as in its extension package. Texts are NumPy's type `U`.
//! No file makes this panic, or allocate more than its declared shape accounts for.

use crate::{AtomicFile, help, map};
use bytes::Bytes;
use indexmap::IndexMap;
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::{shown, told};
use std::fmt::Display;
use std::io::{Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

mod header;
mod text;
use header::Header;

/// Most bytes of a header; NumPy writes some hundred.
const HEADER: u64 = 1 << 20;
/// Most bytes that the arrays of an archive may take decompressed, unless the file itself is so large
/// that [`RATIO`] times its size is more.
const DECOMPRESSED: u64 = 1 << 30;
/// How much smaller than its content an archive may be beyond [`DECOMPRESSED`].
const RATIO: u64 = 20;

/// Why an array or archive was not read or written.
#[derive(Debug, Error)]
#[error("{}: {}", told(&file.display().to_string()), told(reason))]
pub struct NpzError {
    file: PathBuf,
    reason: String,
    help: &'static str,
}

impl NpzError {
    /// The file that could not be read or written.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What is wrong with it.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What the user can do about it.
    pub fn help(&self) -> Option<String> {
        Some(self.help.to_string())
    }
}

/// A reason and a help, before the file is known.
type Wrong = (String, &'static str);

fn wrong(reason: impl Display, help: &'static str) -> Wrong {
    (reason.to_string(), help)
}

fn io(e: std::io::Error) -> Wrong {
    (e.to_string(), help(&e).unwrap_or(DISK))
}

fn within(path: &Path) -> impl FnOnce(Wrong) -> NpzError {
    move |(reason, help)| NpzError { file: path.to_path_buf(), reason, help }
}

const DISK: &str = "check that the file and its disk can be read and written by other programs";

const DAMAGED: &str =
    "the file is damaged or no NumPy file: save it again with `np.save` or `np.savez`";

/// Reads the array in a `.npy` file; the elements stay in the mapped file where they can.
pub fn read_npy(path: impl AsRef<Path>) -> Result<Tensor, NpzError> {
    let path = path.as_ref();
    open(path).and_then(|bytes| parse_npy(&bytes)).map_err(within(path))
}

/// Reads the arrays of an `.npz` file, by their names without `.npy`.
pub fn read_npz(path: impl AsRef<Path>) -> Result<IndexMap<String, Tensor>, NpzError> {
    let path = path.as_ref();
    open(path).and_then(parse_npz).map_err(within(path))
}

/// Writes `tensor` as a `.npy` file.
pub fn write_npy(path: impl AsRef<Path>, tensor: &Tensor) -> Result<(), NpzError> {
    let path = path.as_ref();
    let write = || {
        let mut file = AtomicFile::create(path)?;
        file.write_all(&header::write(tensor))?;
        file.write_all(&body(tensor))?;
        file.commit()
    };
    write().map_err(io).map_err(within(path))
}

/// Writes an `.npz` file, stored, not compressed. Equal arrays make equal bytes.
///
/// A name may be any text that fits a ZIP entry (65,531 bytes); names may not repeat.
pub fn write_npz(path: impl AsRef<Path>, arrays: &[(String, Tensor)]) -> Result<(), NpzError> {
    let path = path.as_ref();
    let file = AtomicFile::create(path).map_err(io).map_err(within(path))?;
    let file = archive(file, arrays).map_err(within(path))?;
    file.commit().map_err(io).map_err(within(path))
}

fn archive<W: Write + Seek>(out: W, arrays: &[(String, Tensor)]) -> Result<W, Wrong> {
    let mut zip = ZipWriter::new(out);
    for (name, tensor) in arrays {
        let failed = |e: &dyn Display| {
            wrong(
                format!("array `{}` cannot be added: {e}", shown(name)),
                "give each array a name of its own, of at most 65,531 bytes",
            )
        };
        let (head, body) = (header::write(tensor), body(tensor));
        let size = (head.len() + body.len()) as u64;
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(zip::DateTime::DEFAULT)
            .large_file(size >= u64::from(u32::MAX));
        zip.start_file(format!("{name}.npy"), options).map_err(|e| match e {
            ZipError::Io(e) => io(e),
            other => failed(&other),
        })?;
        zip.write_all(&head).map_err(io)?;
        zip.write_all(&body).map_err(io)?;
    }
    zip.finish().map_err(|e| match e {
        ZipError::Io(e) => io(e),
        other => wrong(other, DISK),
    })
}

/// The elements of a tensor as a file holds them.
fn body(t: &Tensor) -> Bytes {
    if t.dtype() == DType::Str { text::written(t) } else { t.bytes().clone() }
}

fn open(path: &Path) -> Result<Bytes, Wrong> {
    map(path).map_err(io)
}

/// The array in the bytes of a `.npy` file.
fn parse_npy(bytes: &Bytes) -> Result<Tensor, Wrong> {
    if bytes.starts_with(b"PK") {
        return Err(wrong("it is an archive, not a single array", "name the file .npz"));
    }
    let mut rest = &bytes[..];
    let header = Header::read(&mut rest)?;
    let start = bytes.len() - rest.len();
    let size = header.bytes();
    if rest.len() < size {
        let reason = format!("{size} bytes of elements are declared, {} are there", rest.len());
        return Err(wrong(reason, DAMAGED));
    }
    if rest.len() > size {
        let reason = format!("{} bytes follow the array", rest.len() - size);
        return Err(wrong(reason, "save one array per file"));
    }
    header.tensor(bytes.slice(start..))
}

/// The arrays in the bytes of an `.npz` file.
fn parse_npz(bytes: Bytes) -> Result<IndexMap<String, Tensor>, Wrong> {
    if bytes.starts_with(header::MAGIC) {
        return Err(wrong("it is a single array, not an archive", "name the file .npy"));
    }
    let mut budget = DECOMPRESSED.max((bytes.len() as u64).saturating_mul(RATIO));
    let damaged = |e: ZipError| wrong(e, DAMAGED);
    let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
    if zip.has_duplicate_names() {
        return Err(wrong("two arrays have one name", "give each array a name of its own"));
    }
    let mut out = IndexMap::new();
    for i in 0..zip.len() {
        let entry = zip.by_index(i).map_err(damaged)?;
        let name = entry.name().map_err(damaged)?.into_owned();
        let array = name.strip_suffix(".npy").unwrap_or(&name).to_string();
        let tensor = member(entry, &mut budget)
            .map_err(|(e, help)| (format!("array `{}`: {e}", shown(&array)), help))?;
        if out.contains_key(&array) {
            let reason = format!("two arrays have the name `{}`", shown(&array));
            return Err(wrong(reason, "give each array a name of its own"));
        }
        out.insert(array, tensor);
    }
    Ok(out)
}

/// Reads one array; never takes more than its header declares.
fn member(mut entry: impl Read, budget: &mut u64) -> Result<Tensor, Wrong> {
    let header = Header::read(&mut entry)?;
    let size = header.bytes() as u64;
    let Some(rest) = budget.checked_sub(size) else {
        let reason = format!("{size} bytes are declared in a small compressed archive");
        return Err(wrong(
            reason,
            "save it uncompressed, with `np.savez`, if it is meant to be so",
        ));
    };
    *budget = rest;
    // Grows with what is really there, however much is declared.
    let mut data = Vec::with_capacity(size.min(1 << 20) as usize);
    // One byte more than declared also makes the checksum be compared at the end.
    let read = entry.by_ref().take(size + 1).read_to_end(&mut data);
    read.map_err(|e| wrong(e, DAMAGED))?;
    if data.len() as u64 != size {
        let there = if data.len() as u64 > size { "more" } else { "fewer" };
        return Err(wrong(format!("{size} bytes are declared, {there} are there"), DAMAGED));
    }
    header.tensor(Bytes::from(data))
}
