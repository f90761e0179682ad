//! The store of timings: rows of text, keyed by hardware, kernel and shape.
//!
//! The first line holds a checksum of the others, so that a file which was damaged or is none of ours is recognised before a
//! row of it is used. Every timing replaces the whole file by a complete one, so nothing that was written is lost, and
//! it can be read while others write it. Writers wait for each other.

use super::timing::Times;
use crate::pipeline::costing::Verdict;
use anyhow::{Context, anyhow};
use mlc_extract::Work;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Rows of times, by hardware, kernel and shape.
const TIMES: &str = "times";
/// Rows of pairs of plans that were timed, by hardware and both plans.
const VERDICTS: &str = "plans";
/// What a store begins with: its name, and the version of its rows.
const HEAD: &str = "mlc-rewrite times 1 ";
/// Most bytes of a store.
const LARGEST: u64 = 1 << 28;
/// How long to wait for another process to be done with the store.
const PATIENCE: Duration = Duration::from_secs(2);

/// Times of one program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimingRecord {
    pub kernel: String,
    /// What it computed.
    pub signature: String,
    /// How much that was.
    #[serde(with = "work")]
    pub work: Work,
    /// Everything in the caches.
    pub warm: Times,
    /// Constants from memory, where that differs.
    pub cold: Option<Times>,
}

/// The kind of a row, and what it is of.
type Key = Vec<String>;

/// An open store.
pub struct Store {
    path: PathBuf,
    writes: bool,
    content: Mutex<Content>,
}

/// What was read of a store, and how its file looked then.
#[derive(Default)]
struct Content {
    /// JSON by key.
    rows: BTreeMap<Key, String>,
    seen: Option<(u64, SystemTime)>,
}

/// Where the store is unless one is named: the user's folder for data.
pub fn usual_path() -> anyhow::Result<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let data = folder("XDG_DATA_HOME")
        .or_else(|| Some(folder("HOME")?.join(".local/share")))
        .or_else(|| folder("LOCALAPPDATA"))
        .context(
            "no folder for data is known (XDG_DATA_HOME, HOME)\nhelp: name one with --store FILE",
        )?;
    Ok(data.join("mlc-rewrite").join("times.rows"))
}

impl Store {
    /// Opens the store, or begins one.
    pub fn create(path: &Path) -> anyhow::Result<Store> {
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        regular(path)?;
        let path = plain(path);
        let _alone = alone(&path)?;
        let mut content = Content::default();
        match path.exists() {
            true => content.read(&path)?,
            false => content.write(&path)?,
        }
        Ok(Store { path, writes: true, content: Mutex::new(content) })
    }

    /// Opens a store that is there, for reading.
    pub fn open(path: &Path) -> anyhow::Result<Store> {
        anyhow::ensure!(
            path.exists(),
            "there are no times in {}\nhelp: `mlc-rewrite calibrate` takes them",
            path.display()
        );
        regular(path)?;
        let path = plain(path);
        let mut content = Content::default();
        content.read(&path)?;
        Ok(Store { path, writes: false, content: Mutex::new(content) })
    }

    /// True if the store has times of this program on this hardware.
    pub fn has(&self, hardware: &str, kernel: &str, signature: &str) -> bool {
        self.content().rows.contains_key(&key(&[TIMES, hardware, kernel, signature]))
    }

    /// True if the store has times of some hardware.
    pub fn knows(&self, hardware: &str) -> bool {
        self.content().of(&[TIMES, hardware]).next().is_some()
    }

    /// What was said of two plans on some hardware before.
    pub fn verdict(&self, hardware: &str, plans: &str) -> anyhow::Result<Option<Verdict>> {
        let content = self.content();
        let row = content.rows.get(&key(&[VERDICTS, hardware, plans]));
        row.map(|row| serde_json::from_str(row).map_err(|e| damaged(&self.path, &e))).transpose()
    }

    /// Keeps what was said of two plans.
    pub fn decide(&self, hardware: &str, plans: &str, verdict: &Verdict) -> anyhow::Result<()> {
        self.put(key(&[VERDICTS, hardware, plans]), serde_json::to_string(verdict)?)
    }

    /// Adds times.
    pub fn add(&self, hardware: &str, entry: &TimingRecord) -> anyhow::Result<()> {
        let key = key(&[TIMES, hardware, &entry.kernel, &entry.signature]);
        self.put(key, serde_json::to_string(entry)?)
    }

    /// All times of some hardware, in the order of their keys.
    pub fn entries(&self, hardware: &str) -> anyhow::Result<Vec<TimingRecord>> {
        let parse = |row: &String| serde_json::from_str(row).map_err(|e| damaged(&self.path, &e));
        self.content().of(&[TIMES, hardware]).map(parse).collect()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, key: Key, row: String) -> anyhow::Result<()> {
        anyhow::ensure!(self.writes, "{} was opened for reading", self.path.display());
        let _alone = alone(&self.path)?;
        let mut content = self.content();
        if content.seen != state(&self.path) {
            content.read(&self.path)?;
        }
        content.rows.insert(key, row);
        content.write(&self.path)
    }
}

impl Content {
    /// The rows whose keys begin so, in order.
    fn of<'c>(&'c self, start: &[&str]) -> impl Iterator<Item = &'c String> {
        let start = key(start);
        let rows = self.rows.range(start.clone()..);
        rows.take_while(move |(k, _)| k.starts_with(&start)).map(|(_, row)| row)
    }

    fn read(&mut self, path: &Path) -> anyhow::Result<()> {
        let seen = state(path);
        let text = match mlc_files::bytes(path, LARGEST) {
            // Somebody removed it: the next row begins another.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                *self = Content::default();
                return Ok(());
            }
            other => other.map_err(|e| mlc_files::error("read", path, e))?,
        };
        let rows = rows(&text).ok_or_else(|| damaged(path, &"its checksum is wrong"))?;
        *self = Content { rows, seen };
        Ok(())
    }

    fn write(&mut self, path: &Path) -> anyhow::Result<()> {
        let mut rows = String::new();
        for (key, row) in &self.rows {
            let _ = writeln!(rows, "{}\t{row}", serde_json::to_string(key)?);
        }
        let text = format!("{HEAD}{:08x}\n{rows}", checksum(rows.as_bytes()));
        // What is not written is not known to be there: it is read again before the next row.
        self.seen = None;
        mlc_files::write(path, text.as_bytes())?;
        self.seen = state(path);
        Ok(())
    }
}

/// The rows of a file; `None` if it is no store, or not as it was written.
fn rows(text: &[u8]) -> Option<BTreeMap<Key, String>> {
    let rest = std::str::from_utf8(text).ok()?.strip_prefix(HEAD)?;
    let (sum, rows) = rest.split_once('\n')?;
    if sum != format!("{:08x}", checksum(rows.as_bytes())) {
        return None;
    }
    let row = |line: &str| {
        let (key, row) = line.split_once('\t')?;
        Some((serde_json::from_str(key).ok()?, row.to_string()))
    };
    rows.lines().map(row).collect()
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum()
}

/// What tells a file from the one that replaces it.
fn state(path: &Path) -> Option<(u64, SystemTime)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.len(), meta.modified().ok()?))
}

/// Refuses what is there and cannot be a store: a pipe would be waited for, a device read without end.
fn regular(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        std::fs::metadata(path).map_or(true, |m| m.is_file()),
        "{} is not a regular file, so it is no store of times\nhelp: name another with --store FILE",
        path.display()
    );
    Ok(())
}

/// The same file, whose name is never that of a stream.
fn plain(path: &Path) -> PathBuf {
    let is_stream = mlc_files::is_input_stream(path) || mlc_files::is_output_stream(path);
    if is_stream { Path::new(".").join(path) } else { path.to_path_buf() }
}

fn key(parts: &[&str]) -> Key {
    parts.iter().map(|p| (*p).to_string()).collect()
}

/// A lock on the folder of a store, which no replacement of the file takes away; `None` where folders have no locks.
fn alone(path: &Path) -> anyhow::Result<Option<File>> {
    let Ok(folder) = File::open(mlc_files::folder(path)) else { return Ok(None) };
    let began = Instant::now();
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(Some(folder)),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) => {}
        }
        anyhow::ensure!(
            began.elapsed() < PATIENCE,
            "{} is in use by another process\nhelp: wait for it, or name another with --store FILE",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn damaged(path: &Path, e: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow!(
        "{} is no store of times, or is damaged: {e}\nhelp: remove it and calibrate again, or name another with --store FILE",
        path.display()
    )
}
/// Work as JSON.
mod work {
    use mlc_extract::Work;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// The fields of [`Work`].
    #[derive(Serialize, Deserialize)]
    #[serde(remote = "Work")]
    struct Fields {
        flops: f64,
        products: f64,
        slow: f64,
        rare: f64,
        thin: f64,
        windowed: f64,
        idle: f64,
        fetched: f64,
        points: f64,
        rows: f64,
        moved: f64,
        parts: f64,
        read: f64,
        fixed: f64,
        written: f64,
        #[serde(default)]
        relaid: f64,
        launches: f64,
    }

    pub fn serialize<S: Serializer>(work: &Work, to: S) -> Result<S::Ok, S::Error> {
        Fields::serialize(work, to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Work, D::Error> {
        Fields::deserialize(from)
    }
}
