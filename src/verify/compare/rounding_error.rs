//! Rounding errors over the samples of a law: is the error of the right side larger than that of the left?
//!
//! Compared by deciles, not by the worst sample: a single ill-conditioned sample proves nothing.

use super::working_precision::{FACTOR, UNITS};
use super::{Sample, SampleError};
use crate::WorstRoundingError;
use mlc_dsl::ir::DType;
use mlc_dsl::library::ErrorClass;

/// Fewer samples of a type show nothing.
const LEAST: usize = 6;

/// The rounding errors of all samples.
pub(crate) struct RoundingErrors {
    class: ErrorClass,
    all: Vec<SampleError>,
    worst: Option<(f64, Sample)>,
}

impl RoundingErrors {
    /// None yet.
    pub(crate) fn new(class: ErrorClass) -> RoundingErrors {
        RoundingErrors { class, all: Vec::new(), worst: None }
    }

    /// Notes a sample.
    pub(crate) fn note(&mut self, sample: &Sample, errors: Vec<SampleError>) {
        for d in errors {
            let ratio = d.right / (d.left + d.dtype.unit_roundoff());
            if self.worst.as_ref().is_none_or(|(w, _)| ratio > *w) {
                self.worst = Some((ratio, sample.clone()));
            }
            self.all.push(d);
        }
    }

    /// The ordinary samples by type.
    fn dtypes(&self) -> impl Iterator<Item = (DType, Vec<SampleError>)> + '_ {
        [DType::F32, DType::F16, DType::BF16].into_iter().filter_map(|dtype| {
            let own = self.all.iter().filter(|d| d.dtype == dtype && d.ordinary);
            let of: Vec<SampleError> = own.copied().collect();
            (!of.is_empty()).then_some((dtype, of))
        })
    }

    /// The sample that shows that the right side strays too far as a rule.
    pub(crate) fn excess(&mut self) -> Option<(Sample, String)> {
        let too_far = self.dtypes().any(|(dtype, of)| {
            let u = dtype.unit_roundoff();
            let beyond = |q: f64| {
                let (left, right) = deciles(&of, q);
                right > FACTOR * left + UNITS * u
            };
            of.len() >= LEAST && beyond(0.9) && beyond(0.5)
        });
        if !too_far {
            return None;
        }
        let class = self.class.to_string();
        let figures: Vec<String> = self
            .dtypes()
            .map(|(dtype, of)| {
                let (left, right) = deciles(&of, 0.9);
                format!("{dtype}: {left:.1e} on the left, {right:.1e} on the right")
            })
            .collect();
        let message = format!(
            "in the working type the right side strays further than `{class}` allows ({})",
            figures.join("; ")
        );
        let (_, sample) = self.worst.take()?;
        Some((sample, message))
    }

    /// Overflow on the right alone.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let of = self.dtypes().filter_map(|(dtype, of)| {
            let n = of.iter().filter(|d| d.overflow).count();
            (n * 4 > of.len()).then(|| {
                format!(
                    "in {dtype} the right side overflows where the left does not, on {n} of {} ordinary samples",
                    of.len()
                )
            })
        });
        of.collect()
    }

    /// Per working type, the sample whose right side strays furthest beside the left.
    pub(crate) fn summary(&self) -> Vec<WorstRoundingError> {
        let of = [DType::F32, DType::F16, DType::BF16].into_iter().filter_map(|dtype| {
            let growth = |d: &SampleError| d.right / (d.left + dtype.unit_roundoff());
            let own = self.all.iter().filter(|d| d.dtype == dtype);
            let worst = own.max_by(|a, b| growth(a).total_cmp(&growth(b)))?;
            Some(WorstRoundingError {
                dtype: dtype.to_string(),
                left: worst.left,
                right: worst.right,
                growth: growth(worst),
            })
        });
        of.collect()
    }
}

fn deciles(of: &[SampleError], q: f64) -> (f64, f64) {
    let at = |f: &dyn Fn(&SampleError) -> f64| {
        let mut v: Vec<f64> = of.iter().map(f).collect();
        v.sort_by(f64::total_cmp);
        v.get(((v.len() as f64 - 1.0) * q).round() as usize).copied().unwrap_or(0.0)
    };
    (at(&|d| d.left), at(&|d| d.right))
}
