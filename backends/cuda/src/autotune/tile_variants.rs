//! Autotuning of generated products: other tile sizes, and `wgmma` where the device has it.
//!
//! A variant runs once on the same inputs and is rejected if its results differ: its instructions could not be tested where the code was
//! generated. It is then timed against the fastest so far, and the device keeps the choice. A choice is a note of the session, and so is
//! the reason why `wgmma` is not used.

use super::comparison::{self, Comparison, TestInputs};
use crate::bound_launch::{BoundLaunch, Sequence};
use crate::launch::{Launch, Variant};
use crate::session::{LaunchedPlan, Start};
use mlc_backends::BackendError;
use mlc_backends::device::DriverError;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

/// Records of a choice that a device keeps.
const TAKEN: &str = "taken";
const LEFT: &str = "left";

/// Whether a variant is used, and the note.
type Decision = (bool, Option<String>);

impl LaunchedPlan {
    /// Chooses among the variants of launches, which are loaded.
    pub(crate) fn choose_variants(&mut self) -> Result<(), BackendError> {
        // Equal launches are computed in one way.
        let mut decided: HashMap<String, bool> = HashMap::new();
        let mut at = 0;
        while let Some(first) = self.launches.variants.get(at) {
            let launches = first.launches.clone();
            let alike = self.launches.variants[at..].iter().take_while(|v| v.launches == launches);
            let end = at + alike.count();
            let (best, notes) = self.best_of(&self.launches.variants[at..end], &mut decided)?;
            self.variants.extend(notes);
            if let Some(best) = best {
                let best = self.launches.variants[at + best].clone();
                self.launches.replace(&best);
                self.each = Sequence::new(&self.launches.each, &self.buffers)?;
            }
            at = end;
        }
        if self.megakernel.is_none() && self.calls().len() > 1 {
            self.running = Mutex::new(Start::First);
        }
        Ok(())
    }

    /// The fastest variant of the same launches, if one is faster than these, and notes.
    fn best_of(
        &self,
        variants: &[Variant],
        decided: &mut HashMap<String, bool>,
    ) -> Result<(Option<usize>, Vec<String>), BackendError> {
        let launches = variants.first().map_or(0..0, |v| v.launches.clone());
        let own = &self.launches.each[launches];
        let (mut best, mut notes, mut expected) = (None, vec![], None);
        for (at, variant) in variants.iter().enumerate() {
            let fastest = best.map_or(own, |b: usize| &variants[b].replacement);
            let what = what_runs(fastest, variant);
            let is_taken = match decided.get(&what) {
                Some(&is_taken) => is_taken,
                None => {
                    let (is_taken, note) =
                        match self.decide_variant(own, fastest, variant, &what, &mut expected) {
                            Err(BackendError::Device(e @ DriverError::Call { .. })) => {
                                (false, Some(format!("not {}: {e}", variant.description)))
                            }
                            other => other?,
                        };
                    notes.extend(note.map(|n| format!("`{}` {n}", name(own))));
                    is_taken
                }
            };
            decided.insert(what, is_taken);
            if is_taken {
                best = Some(at);
            }
        }
        Ok((best, notes))
    }

    /// Whether a variant of `own` is used in place of the fastest so far; `expected` are the results of `own` once they are known.
    fn decide_variant<'a>(
        &'a self,
        own: &[Launch],
        fastest: &[Launch],
        variant: &Variant,
        what: &str,
        expected: &mut Option<(Comparison<'a>, Vec<f64>)>,
    ) -> Result<Decision, BackendError> {
        let told = |is_taken: bool, why: String| {
            let not = if is_taken { "" } else { "not " };
            let is_told = is_taken || variant.by_warpgroups;
            Ok((is_taken, is_told.then(|| format!("{not}{}, {why}", variant.description))))
        };
        match self.driver.chosen_run(what).as_deref() {
            Some(TAKEN) => return told(true, "as chosen before".into()),
            Some(LEFT) => return told(false, "as chosen before".into()),
            _ => {}
        }
        let calls = |all: &[Launch]| Sequence::new(all, &self.buffers).map(|s| s.calls);
        let start = |all: &[BoundLaunch]| all.iter().try_for_each(|call| self.launch(call, false));
        let micro = |seconds: f64| format!("{:.2} µs", seconds * 1e6);
        if expected.is_none() {
            let Some(comparison) = Comparison::new(self, own, TestInputs::Small)? else {
                return Ok((false, None));
            };
            start(&calls(own)?)?;
            let results = comparison.read()?;
            *expected = Some((comparison, results));
        }
        let Some((comparison, results)) = expected else { return Ok((false, None)) };
        let (own, other) = (calls(fastest)?, calls(&variant.replacement)?);
        comparison.clear()?;
        start(&other)?;
        if let Some(error) = comparison.disagreement(results)? {
            self.driver.choose_run(what, LEFT);
            // Whatever it is, one that is wrong is told.
            let why = format!("not {}, whose results differ by {error:.1e}", variant.description);
            return Ok((false, Some(why)));
        }
        let times = comparison::times_recorded(self, 2, &|way| start([&own, &other][way]))?;
        let Some(times) = times else { return Ok((false, None)) };
        let (least, most) = (times[0].min(times[1]), times[0].max(times[1]));
        let is_taken = times[1] < times[0];
        self.driver.choose_run(what, if is_taken { TAKEN } else { LEFT });
        told(is_taken, format!("{} against {}", micro(least), micro(most)))
    }
}

/// The launch that a note names.
fn name(own: &[Launch]) -> String {
    own.first().map_or_else(String::new, |l| l.function.clone())
}

/// The key of a choice, in a line: both codes and their grids.
fn what_runs(own: &[Launch], variant: &Variant) -> String {
    let mut hasher = DefaultHasher::new();
    own.len().hash(&mut hasher);
    for l in own.iter().chain(&variant.replacement) {
        let text = l.source.replace(&l.function, "f");
        (text, l.grid, l.block).hash(&mut hasher);
    }
    crate::PRELUDE.hash(&mut hasher);
    format!("tiles of products, {:016x}", hasher.finish())
}
