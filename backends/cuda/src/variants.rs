//! Launches of a run that others may take the place of: products by warpgroups, on a device that has their instructions.
//!
//! Both are run once on the same numbers, and a variant whose results differ is not used: its instructions could not be tried where it was
//! written. Then both are timed, and the device keeps what is chosen. Every choice is a note of the session.

use super::DriverError;
use super::calls::{Call, Sequence};
use super::comparison::{self, Comparison};
use super::launch::{Launch, Variant};
use super::session::{LaunchedPlan, Start};
use mlc_backends::BackendError;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

/// What a device keeps of a choice.
const TAKEN: &str = "warpgroups";
const LEFT: &str = "others";

impl LaunchedPlan {
    /// Decides about the variants of launches, which are loaded.
    pub(super) fn choose_variants(&mut self) -> Result<(), BackendError> {
        // Equal launches are computed in one way.
        let mut decided: HashMap<String, bool> = HashMap::new();
        for at in 0..self.launches.variants.len() {
            let variant = self.launches.variants[at].clone();
            let own = &self.launches.each[variant.launches.clone()];
            let (what, name) = (what_runs(own, &variant), name(own));
            let is_taken = match decided.get(&what) {
                Some(&is_taken) => is_taken,
                None => {
                    let (is_taken, note) = match self.decided(&variant, &what) {
                        Err(BackendError::Device(e @ DriverError::Call { .. })) => {
                            (false, Some(format!("not by warpgroups: {e}")))
                        }
                        other => other?,
                    };
                    self.variants.extend(note.map(|n| format!("`{name}` {n}")));
                    is_taken
                }
            };
            decided.insert(what, is_taken);
            if is_taken {
                self.launches.replace(&variant);
                self.each = Sequence::new(&self.launches.each, &self.buffers)?;
            }
        }
        if self.merged.is_none() && self.calls().len() > 1 {
            self.running = Mutex::new(Start::First);
        }
        Ok(())
    }

    /// Whether a variant is used, and what is told of it.
    fn decided(
        &self,
        variant: &Variant,
        what: &str,
    ) -> Result<(bool, Option<String>), BackendError> {
        let told = |is_taken: bool, why: String| {
            let not = if is_taken { "" } else { "not " };
            Ok((is_taken, Some(format!("{not}by warpgroups, {why}"))))
        };
        match self.driver.chosen_run(what).as_deref() {
            Some(TAKEN) => return told(true, "as chosen before".into()),
            Some(LEFT) => return told(false, "as chosen before".into()),
            _ => {}
        }
        let launches = &self.launches.each[variant.launches.clone()];
        let calls = |all: &[Launch]| Sequence::new(all, &self.buffers).map(|s| s.calls);
        let (own, other) = (calls(launches)?, calls(&variant.instead)?);
        let start = |all: &[Call]| all.iter().try_for_each(|call| self.launch(call, false));
        let micro = |seconds: f64| format!("{:.2} µs", seconds * 1e6);
        let Some(comparison) = Comparison::of(self, launches)? else { return Ok((false, None)) };
        start(&own)?;
        let expected = comparison.read()?;
        comparison.clear()?;
        start(&other)?;
        let (is_taken, why) = if let Some(error) = comparison.disagreement(&expected)? {
            (false, format!("whose results differ by {error:.1e}"))
        } else {
            let times = comparison::times(self, 2, &|way| start([&own, &other][way]))?;
            let Some(times) = times else { return Ok((false, None)) };
            let least = times[0].min(times[1]);
            let most = times[0].max(times[1]);
            (times[1] < times[0], format!("{} against {}", micro(least), micro(most)))
        };
        self.driver.choose_run(what, if is_taken { TAKEN } else { LEFT });
        told(is_taken, why)
    }
}

/// The launch that a note names.
fn name(own: &[Launch]) -> String {
    own.first().map_or_else(String::new, |l| l.function.clone())
}

/// What tells a choice apart from all others, in a line: both codes and their grids.
fn what_runs(own: &[Launch], variant: &Variant) -> String {
    let mut hasher = DefaultHasher::new();
    for l in own.iter().chain(&variant.instead) {
        let text = l.source.replace(&l.function, "f");
        (text, l.grid, l.block).hash(&mut hasher);
    }
    super::PRELUDE.hash(&mut hasher);
    format!("products by warpgroups, {:016x}", hasher.finish())
}
