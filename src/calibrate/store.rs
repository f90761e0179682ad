//! The store of times: an embedded database, keyed by hardware, kernel and shape.
//!
//! What is written stays: every time is its own transaction.

use super::timing::Times;
use anyhow::{Context, anyhow};
use mlc_extract::Work;
use redb::{Database, DatabaseError, ReadableDatabase, TableDefinition, TableError};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Times by hardware, kernel and shape.
const TIMES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("times");
/// Parts of a key.
const GAP: char = '\u{1f}';

/// Times of one program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The kernel.
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

/// An open store.
pub struct Store {
    db: Database,
    path: PathBuf,
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
    Ok(data.join("mlc-rewrite").join("times.redb"))
}

impl Store {
    /// Opens the store, or begins one.
    pub fn create(path: &Path) -> anyhow::Result<Store> {
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let db = Database::create(path).map_err(|e| unusable(path, &e))?;
        Ok(Store { db, path: path.to_path_buf() })
    }

    /// Opens a store that is there.
    pub fn open(path: &Path) -> anyhow::Result<Store> {
        anyhow::ensure!(
            path.exists(),
            "there are no times in {}\nhelp: `mlc-rewrite calibrate` takes them",
            path.display()
        );
        let db = Database::open(path).map_err(|e| unusable(path, &e))?;
        Ok(Store { db, path: path.to_path_buf() })
    }

    /// True if the store has times of this program on this hardware.
    pub fn has(&self, hardware: &str, kernel: &str, signature: &str) -> anyhow::Result<bool> {
        let read = || -> Result<bool, redb::Error> {
            let table = match self.db.begin_read()?.open_table(TIMES) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(false),
                other => other?,
            };
            Ok(table.get(key(hardware, kernel, signature).as_str())?.is_some())
        };
        read().map_err(|e| self.failed(&e))
    }

    /// Adds times.
    pub fn add(&self, hardware: &str, entry: &Entry) -> anyhow::Result<()> {
        let value = serde_json::to_vec(entry)?;
        let write = || -> Result<(), redb::Error> {
            let transaction = self.db.begin_write()?;
            let key = key(hardware, &entry.kernel, &entry.signature);
            transaction.open_table(TIMES)?.insert(key.as_str(), value.as_slice())?;
            transaction.commit()?;
            Ok(())
        };
        write().map_err(|e| self.failed(&e))
    }

    /// All times of some hardware, in the order of their keys.
    pub fn entries(&self, hardware: &str) -> anyhow::Result<Vec<Entry>> {
        let start = format!("{hardware}{GAP}");
        let read = || -> Result<Vec<Vec<u8>>, redb::Error> {
            let table = match self.db.begin_read()?.open_table(TIMES) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(vec![]),
                other => other?,
            };
            let mut out = Vec::new();
            for pair in table.range(start.as_str()..)? {
                let (k, v) = pair?;
                if !k.value().starts_with(&start) {
                    break;
                }
                out.push(v.value().to_vec());
            }
            Ok(out)
        };
        let values = read().map_err(|e| self.failed(&e))?;
        let parse = |v: &Vec<u8>| serde_json::from_slice(v).map_err(|e| damaged(&self.path, &e));
        values.iter().map(parse).collect()
    }

    fn failed(&self, e: &dyn std::fmt::Display) -> anyhow::Error {
        damaged(&self.path, e)
    }
}

fn key(hardware: &str, kernel: &str, signature: &str) -> String {
    format!("{hardware}{GAP}{kernel}{GAP}{signature}")
}

fn damaged(path: &Path, e: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow!(
        "{} is no store of times, or is damaged: {e}\nhelp: remove it and calibrate again, or name another with --store FILE",
        path.display()
    )
}

fn unusable(path: &Path, e: &DatabaseError) -> anyhow::Error {
    match e {
        DatabaseError::DatabaseAlreadyOpen => anyhow!(
            "{} is in use by another process\nhelp: wait for it, or name another with --store FILE",
            path.display()
        ),
        other => damaged(path, other),
    }
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
        launches: f64,
    }

    pub fn serialize<S: Serializer>(work: &Work, to: S) -> Result<S::Ok, S::Error> {
        Fields::serialize(work, to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Work, D::Error> {
        Fields::deserialize(from)
    }
}
