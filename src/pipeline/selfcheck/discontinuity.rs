//! Detects outputs that jump by themselves: where a program compares, sorts or rounds, elements that are nearly equal change
//! places when any sum is regrouped. Such an output differs from the model's in some elements, and tells nothing there.

use super::verdict::{FACTOR, PART, Rule, Runs, Verdict, Wrong, verdict};
use super::{One, beside_by, with_constants_moved_by};
use crate::error::Error;
use mlc_dsl::ir::Tensor;

/// Runs of the model on moved inputs and constants.
const RUNS: u64 = 4;
/// The result may have so many times as many jumps as the model on moved inputs: one element that goes moves all behind it.
const AS_MANY: usize = 4;

impl One<'_> {
    /// Drops findings that are jumps where the model jumps as often when its inputs and constants move by as many
    /// roundings as a result's error may be of the model's.
    pub(super) fn drop_jumps(&self, verdicts: &mut [Verdict], rule: &Rule) -> Result<(), Error> {
        let wrong: Vec<usize> =
            (0..verdicts.len()).filter(|&i| jumps(&verdicts[i], &self.s[i]) > 0).collect();
        if wrong.is_empty() || rule.tolerance.is_some() {
            return Ok(());
        }
        let mut most = vec![0; verdicts.len()];
        for run in 0..RUNS {
            let seed = self.check.seed.wrapping_add(0x1a3b * (run + 1));
            let inputs = beside_by(&self.set.inputs, seed, FACTOR);
            let plan = self.check.plan(&with_constants_moved_by(self.source, seed, FACTOR));
            let Ok(moved) = self.check.runs(&plan, &[&inputs])?.swap_remove(0) else { continue };
            for &i in &wrong {
                let (source, result) = (&self.s[i], &moved[i]);
                if source.shape() != result.shape() {
                    continue;
                }
                let runs = Runs { truth: None, source, moved: None, disturbed: None, result };
                most[i] = jumps(&verdict(&runs, rule), source).max(most[i]);
            }
        }
        for i in wrong {
            if jumps(&verdicts[i], &self.s[i]) <= AS_MANY * most[i] {
                verdicts[i].keep(|w| w.wrong == Wrong::Kind || !is_jump(w.error, &self.s[i]));
            }
        }
        Ok(())
    }
}

fn jumps(v: &Verdict, of: &Tensor) -> usize {
    v.wrong.iter().filter(|w| w.wrong == Wrong::Far && is_jump(w.error, of)).count()
}

/// True for an error that no regrouped sum explains.
fn is_jump(error: f64, of: &Tensor) -> bool {
    !of.dtype().is_float() || error > PART
}
