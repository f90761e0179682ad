//! Costs of this machine's kernels, fitted from the store of timings, in the form that the pipeline takes.

use super::machine::Hardware;
use super::store::{Store, usual_path};
use super::stored;
use crate::error::{Error, ErrorKind};
use crate::pipeline::costing::Costing;
use crate::pipeline::costing::{Verdict, Verdicts};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a store says of some hardware; an error if it says nothing. The clock confirms plans.
pub fn of_store(path: &Path, hardware: &Hardware) -> anyhow::Result<Costing> {
    let (fits, samples) = stored(&Store::open(path)?, hardware)?;
    let confirm = OfMachine { store: path.into(), hardware: hardware.key.clone() };
    Ok(Costing {
        fits: Some(fits),
        source: format!("a fit to {samples} kernels timed on this machine"),
        confirm: Some(Arc::new(confirm)),
        ..Costing::default()
    })
}

/// What the usual store says of some hardware, if it was calibrated; else the figures of the target's text.
pub fn of_hardware(hardware: &Hardware) -> anyhow::Result<Costing> {
    let Some(path) = usual_path().ok().filter(|p| p.exists()) else {
        return Ok(Costing::default());
    };
    if !Store::open(&path)?.knows(&hardware.key) {
        return Ok(Costing::default());
    }
    of_store(&path, hardware)
}

/// Verdicts in a store of times.
#[derive(Debug)]
struct OfMachine {
    store: PathBuf,
    /// The key of this machine.
    hardware: String,
}

impl Verdicts for OfMachine {
    fn recall(&self, plans: &str) -> Result<Option<Verdict>, Error> {
        let store = Store::open(&self.store).and_then(|s| s.verdict(&self.hardware, plans));
        store.map_err(Error::of(ErrorKind::File))
    }

    fn remember(&self, plans: &str, verdict: &Verdict) -> Result<(), Error> {
        let store = Store::create(&self.store);
        let decided = store.and_then(|s| s.decide(&self.hardware, plans, verdict));
        decided.map_err(Error::of(ErrorKind::File))
    }
}
