//! Reads regular files and standard input, up to a limit.

use super::{is_input_stream, mapped, refusal};
use bytes::Bytes;
use memmap2::Mmap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Most bytes that are taken from standard input as a model or an archive: what a protobuf message can have.
const STREAM: u64 = 2 << 30;

/// The content of a file, not copied; that of standard input for `-`.
pub fn map(path: &Path) -> io::Result<Bytes> {
    if is_input_stream(path) {
        return bytes(path, STREAM).map(Bytes::from);
    }
    let file = open(path)?;
    // SAFETY: the map is only read. Another process that truncates the file while it is mapped makes
    // reads fault; writers of this crate replace files by renaming, which leaves the map intact.
    let map = unsafe { Mmap::map(&file)? };
    Ok(mapped::bytes(map))
}

/// The bytes of a file or of standard input, if there are no more than `limit`.
pub fn bytes(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    // A file may grow while it is read, and those of the system have no length.
    if is_input_stream(path) {
        io::stdin().lock().take(limit + 1).read_to_end(&mut out)?;
    } else {
        let file = open(path)?;
        if file.metadata()?.len() > limit {
            return Err(too_long(limit));
        }
        file.take(limit + 1).read_to_end(&mut out)?;
    }
    match out.len() as u64 > limit {
        true => Err(too_long(limit)),
        false => Ok(out),
    }
}

/// The same as UTF-8 text.
pub fn text(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(bytes(path, limit)?)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, not_text(&e)))
}

/// What a file is that is no text, or where it ends to be one.
fn not_text(e: &std::string::FromUtf8Error) -> String {
    let bytes = e.as_bytes();
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return "it is not UTF-8 text but UTF-16".into();
    }
    let before = &bytes[..e.utf8_error().valid_up_to()];
    let line = 1 + before.iter().filter(|b| **b == b'\n').count();
    format!("it is not UTF-8 text: byte {:#04x} on line {line}", bytes[before.len()])
}

/// Refuses a name that nothing can be read from: no file, or a pipe or a device.
pub fn readable(path: &Path) -> io::Result<()> {
    let kind = match is_input_stream(path) {
        true => return Ok(()),
        false => fs::metadata(path)?.file_type(),
    };
    if kind.is_file() { Ok(()) } else { Err(refusal(kind)) }
}

fn too_long(limit: u64) -> io::Error {
    let text = match limit {
        small if small < 1 << 20 => format!("it is longer than {small} bytes"),
        large => format!("it is longer than {} MiB", large >> 20),
    };
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Opens a regular file.
fn open(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for its writer, and a device may do something when opened, so the kind is asked first.
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() {
        return Err(refusal(kind));
    }
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // In case it has become a pipe since.
        options.custom_flags(libc::O_NONBLOCK);
    }
    let file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() { Ok(file) } else { Err(refusal(kind)) }
}
