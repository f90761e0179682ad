//! The store of timings: an embedded database, keyed by hardware, kernel and shape.
//!
//! Every timing is its own transaction, so nothing that was written is lost.

use super::timing::Times;
use crate::pipeline::confirm::Verdict;
use anyhow::{Context, anyhow};
use mlc_extract::Work;
use redb::{
    Database, DatabaseError, ReadOnlyDatabase, ReadTransaction, ReadableDatabase, TableDefinition,
    TableError, TransactionError,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A table of JSON by parts of a key.
type Table = TableDefinition<'static, &'static str, &'static [u8]>;
/// Times by hardware, kernel and shape.
const TIMES: Table = TableDefinition::new("times");
/// Pairs of plans that were timed, by hardware and both plans.
const VERDICTS: Table = TableDefinition::new("plans");
/// How long to wait for another process to be done with the store.
const PATIENCE: Duration = Duration::from_secs(2);
/// Parts of a key.
const GAP: char = '\u{1f}';

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

/// An open store.
pub struct Store {
    db: Db,
    path: PathBuf,
}

/// Readers share a database, a writer has it alone.
enum Db {
    Shared(ReadOnlyDatabase),
    Alone(Database),
}

impl Db {
    fn begin_read(&self) -> Result<ReadTransaction, TransactionError> {
        match self {
            Db::Shared(db) => db.begin_read(),
            Db::Alone(db) => db.begin_read(),
        }
    }

    /// Opens a database that is there for reading.
    fn shared(path: &Path) -> Result<Db, DatabaseError> {
        match ReadOnlyDatabase::open(path) {
            // A process ended while it wrote: opening it for writing repairs it.
            Err(DatabaseError::RepairAborted) => {
                drop(Database::open(path)?);
                ReadOnlyDatabase::open(path).map(Db::Shared)
            }
            other => other.map(Db::Shared),
        }
    }
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
        regular(path)?;
        let db = patiently(|| Database::create(path)).map_err(|e| unusable(path, &e))?;
        Ok(Store { db: Db::Alone(db), path: path.to_path_buf() })
    }

    /// Opens a store that is there, for reading.
    pub fn open(path: &Path) -> anyhow::Result<Store> {
        anyhow::ensure!(
            path.exists(),
            "there are no times in {}\nhelp: `mlc-rewrite calibrate` takes them",
            path.display()
        );
        regular(path)?;
        let db = patiently(|| Db::shared(path)).map_err(|e| unusable(path, &e))?;
        Ok(Store { db, path: path.to_path_buf() })
    }

    /// True if the store has times of this program on this hardware.
    pub fn has(&self, hardware: &str, kernel: &str, signature: &str) -> anyhow::Result<bool> {
        Ok(self.get(TIMES, &key(&[hardware, kernel, signature]))?.is_some())
    }

    /// True if the store has times of some hardware.
    pub fn knows(&self, hardware: &str) -> anyhow::Result<bool> {
        let start = format!("{hardware}{GAP}");
        let read = || -> Result<bool, redb::Error> {
            let table = match self.db.begin_read()?.open_table(TIMES) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(false),
                other => other?,
            };
            let first = table.range(start.as_str()..)?.next().transpose()?;
            Ok(first.is_some_and(|(k, _)| k.value().starts_with(&start)))
        };
        read().map_err(|e| self.failed(&e))
    }

    /// What was said of two plans on some hardware before.
    pub fn verdict(&self, hardware: &str, plans: &str) -> anyhow::Result<Option<Verdict>> {
        let found = self.get(VERDICTS, &key(&[hardware, plans]))?;
        let parse = |v: Vec<u8>| serde_json::from_slice(&v).map_err(|e| self.failed(&e));
        found.map(parse).transpose()
    }

    /// Keeps what was said of two plans.
    pub fn decide(&self, hardware: &str, plans: &str, verdict: &Verdict) -> anyhow::Result<()> {
        self.put(VERDICTS, &key(&[hardware, plans]), &serde_json::to_vec(verdict)?)
    }

    fn get(&self, table: Table, key: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let read = || -> Result<Option<Vec<u8>>, redb::Error> {
            let table = match self.db.begin_read()?.open_table(table) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(None),
                other => other?,
            };
            Ok(table.get(key)?.map(|v| v.value().to_vec()))
        };
        read().map_err(|e| self.failed(&e))
    }

    fn put(&self, table: Table, key: &str, value: &[u8]) -> anyhow::Result<()> {
        let Db::Alone(db) = &self.db else {
            anyhow::bail!("{} was opened for reading", self.path.display());
        };
        let write = || -> Result<(), redb::Error> {
            let transaction = db.begin_write()?;
            transaction.open_table(table)?.insert(key, value)?;
            transaction.commit()?;
            Ok(())
        };
        write().map_err(|e| self.failed(&e))
    }

    /// Adds times.
    pub fn add(&self, hardware: &str, entry: &TimingRecord) -> anyhow::Result<()> {
        let key = key(&[hardware, &entry.kernel, &entry.signature]);
        self.put(TIMES, &key, &serde_json::to_vec(entry)?)
    }

    /// All times of some hardware, in the order of their keys.
    pub fn entries(&self, hardware: &str) -> anyhow::Result<Vec<TimingRecord>> {
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

/// Refuses what is there and cannot be a database: a pipe would be waited for, a device read without end.
fn regular(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        std::fs::metadata(path).map_or(true, |m| m.is_file()),
        "{} is not a regular file, so it is no store of times\nhelp: name another with --store FILE",
        path.display()
    );
    Ok(())
}

fn key(parts: &[&str]) -> String {
    parts.join(&GAP.to_string())
}

/// Opens a database once no other process has it.
fn patiently<T>(open: impl Fn() -> Result<T, DatabaseError>) -> Result<T, DatabaseError> {
    let began = Instant::now();
    loop {
        match open() {
            Err(DatabaseError::DatabaseAlreadyOpen) if began.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
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
