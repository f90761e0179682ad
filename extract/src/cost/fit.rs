//! Fits the seconds of a kernel to its timings: a linear combination of features of its work with non-negative coefficients.
//!
//! Each feature counts an operation or a transfer, and its coefficient is the seconds that one of them takes. The
//! relative error is minimised; cross-validation estimates the error of predictions for
//! work that was not timed. Uses no clock and no randomness.

use super::Work;
use std::collections::BTreeMap;

/// What the coefficients belong to, in order.
pub const FEATURES: [&str; 18] = [
    "launches",
    "products",
    "flops",
    "thin",
    "windowed",
    "idle",
    "fetched",
    "slow",
    "rare",
    "points",
    "rows",
    "moved",
    "parts",
    "read",
    "fixed",
    "written",
    "beyond_near_cache",
    "from_memory",
];

/// Number of features.
pub const N: usize = FEATURES.len();

/// Values of the features.
pub type Row = [f64; N];

/// Bytes of the machine's caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caches {
    /// What the cores have for themselves.
    pub near: f64,
    /// The last level.
    pub far: f64,
}

impl Default for Caches {
    fn default() -> Caches {
        Caches { near: (2 << 20) as f64, far: (32 << 20) as f64 }
    }
}

/// The features of a kernel's work. `is_cold`: constants come from memory in every run.
pub fn features(work: &Work, caches: &Caches, is_cold: bool) -> Row {
    let bytes = work.read + work.written;
    let variable = bytes - work.fixed;
    let cold = if is_cold { work.fixed } else { 0.0 };
    [
        work.launches,
        work.products,
        work.flops - work.products,
        work.thin,
        work.windowed,
        work.idle,
        work.fetched,
        work.slow - work.rare,
        work.rare,
        work.points,
        work.rows,
        work.moved,
        work.parts,
        work.read - work.fixed,
        work.fixed,
        work.written,
        (bytes - caches.near).max(0.0),
        (variable - caches.far).max(0.0) + cold,
    ]
}

/// Problems of a contraction from which they are many.
const MANY: f64 = 4.0;

/// What kernels tell apart by the shapes of what they are given: each class has loops, and times, of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelClass {
    /// A contraction meets its operands in windows.
    pub windowed: bool,
    /// Most operations of a contraction are on operands that are used few times.
    pub thin: bool,
    /// The results of a contraction end in an axis that is shorter than a vector.
    pub narrow: bool,
    /// A contraction consists of many problems.
    pub many: bool,
    /// Elements are visited in another order than they lie in.
    pub across: bool,
}

impl KernelClass {
    /// Names of what holds, in order.
    const NAMES: [&str; 5] = ["windowed", "thin", "narrow", "many", "across"];

    /// The class of some work.
    pub fn of(work: &Work) -> KernelClass {
        KernelClass {
            windowed: work.windowed > 0.0,
            thin: work.thin > 0.5 * work.products,
            narrow: work.idle > work.products,
            many: work.products > 0.0 && work.parts >= MANY,
            across: work.products == 0.0 && work.moved > 0.0,
        }
    }

    fn flags(self) -> [bool; 5] {
        [self.windowed, self.thin, self.narrow, self.many, self.across]
    }

    /// True if all that holds of the other holds of this.
    pub fn includes(self, other: KernelClass) -> bool {
        self.flags().into_iter().zip(other.flags()).all(|(own, of)| own || !of)
    }

    /// The class of a name as [`Display`](std::fmt::Display) writes it.
    pub fn named(name: &str) -> Option<KernelClass> {
        let known = |w: &str| w == "plain" || Self::NAMES.contains(&w);
        let words: Vec<&str> = name.split(' ').collect();
        let has = |n: &str| words.contains(&n);
        let [windowed, thin, narrow, many, across] = Self::NAMES.map(has);
        words.iter().all(|w| known(w)).then_some(KernelClass {
            windowed,
            thin,
            narrow,
            many,
            across,
        })
    }
}

impl std::fmt::Display for KernelClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = Self::NAMES.iter().zip(self.flags()).filter(|(_, h)| *h);
        let words: Vec<&str> = held.map(|(n, _)| *n).collect();
        f.write_str(&if words.is_empty() { "plain".to_string() } else { words.join(" ") })
    }
}

/// One kernel, timed.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The class of its work.
    pub class: KernelClass,
    /// Features of its work.
    pub row: Row,
    /// Seconds it took.
    pub seconds: f64,
}

/// What was fitted to the times of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Seconds per unit of each feature.
    pub coefficients: Row,
    /// The largest value of each feature among the samples.
    pub most: Row,
    /// Four of five measured times of work that was not timed lie between `low` and `high` times the
    /// prediction.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Median relative error of predictions of samples that were left out.
    pub error: f64,
    /// Number of samples.
    pub samples: usize,
    /// Fits of the classes that have enough samples of their own.
    pub classes: BTreeMap<KernelClass, Fit>,
}

/// Samples below which nothing is fitted.
pub const FEWEST: usize = 8;
/// Samples below which a class has no fit of its own.
const FEWEST_OF_CLASS: usize = 12;
/// Parts of the samples, each left out once.
const PARTS: usize = 10;
/// Relative error from which a sample counts less.
const OUTLIER: f64 = 0.3;
/// Repetitions with weights from the errors of the one before.
const REWEIGHTINGS: usize = 12;

impl Fit {
    /// Fits a kernel; `None` if there are too few samples.
    pub fn new(samples: &[Sample]) -> Option<Fit> {
        let samples: Vec<&Sample> =
            samples.iter().filter(|s| s.seconds > 0.0 && s.seconds.is_finite()).collect();
        if samples.len() < FEWEST {
            return None;
        }
        let mut by_class: BTreeMap<KernelClass, Vec<&Sample>> = BTreeMap::new();
        for s in &samples {
            by_class.entry(s.class).or_default().push(s);
        }
        by_class.retain(|_, own| own.len() >= FEWEST_OF_CLASS);
        let classes = by_class.iter().map(|(c, own)| (*c, Fit::single(own))).collect();
        Some(Fit { classes, ..Fit::single(&samples) })
    }

    /// One fit to all samples.
    fn single(samples: &[&Sample]) -> Fit {
        let coefficients = solve(samples);
        let mut ratios = left_out(samples);
        ratios.sort_by(f64::total_cmp);
        let at = |q: f64| ratios[((ratios.len() - 1) as f64 * q).round() as usize];
        let mut errors: Vec<f64> = ratios.iter().map(|r| (1.0 / r - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let mut most = [0.0f64; N];
        for s in samples {
            most.iter_mut().zip(&s.row).for_each(|(m, v)| *m = m.max(*v));
        }
        Fit {
            coefficients,
            most,
            low: at(0.1),
            high: at(0.9),
            error: errors[errors.len() / 2],
            samples: samples.len(),
            classes: BTreeMap::new(),
        }
    }

    /// The fit for a class of work: its own, or that of all.
    pub fn of(&self, class: KernelClass) -> &Fit {
        self.classes.get(&class).unwrap_or(self)
    }

    /// How many times the largest sampled value a feature has, the most of all; at most 1 inside.
    pub fn beyond(&self, row: &Row) -> f64 {
        // The first feature counts launches: several kernels are no larger kernel.
        let sampled = row.iter().zip(&self.most).skip(1).filter(|(_, m)| **m > 0.0);
        sampled.map(|(v, m)| v / m).fold(0.0, f64::max)
    }

    /// Predicted seconds.
    pub fn seconds(&self, row: &Row) -> f64 {
        dot(&self.coefficients, row)
    }

    /// Where four of five measured times lie.
    pub fn interval(&self, row: &Row) -> (f64, f64) {
        let s = self.seconds(row);
        (s * self.low, s * self.high)
    }
}

fn dot(a: &Row, b: &Row) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Measured over predicted, each sample predicted from the parts that it is not in.
fn left_out(samples: &[&Sample]) -> Vec<f64> {
    let parts = PARTS.min(samples.len());
    let mut out = Vec::with_capacity(samples.len());
    for part in 0..parts {
        let kept: Vec<&Sample> =
            (0..samples.len()).filter(|i| i % parts != part).map(|i| samples[i]).collect();
        let coefficients = solve(&kept);
        for s in samples.iter().skip(part).step_by(parts) {
            let predicted = dot(&coefficients, &s.row);
            out.push(if predicted > 0.0 { s.seconds / predicted } else { f64::MAX });
        }
    }
    out
}

/// Non-negative coefficients of least relative error, outliers weighing less.
fn solve(samples: &[&Sample]) -> Row {
    let mut predicted: Vec<f64> = samples.iter().map(|s| s.seconds).collect();
    let mut coefficients = [0.0; N];
    for _ in 0..REWEIGHTINGS {
        let weights = samples.iter().zip(&predicted).map(|(s, &p)| {
            // Too high and too low by one factor are equally wrong.
            let scale = (s.seconds * p).max(s.seconds * s.seconds * 1e-2);
            let off = (p / s.seconds).ln().abs();
            (OUTLIER / off.max(OUTLIER)) / scale
        });
        coefficients = nonnegative(samples, &weights.collect::<Vec<_>>());
        for (p, s) in predicted.iter_mut().zip(samples) {
            *p = dot(&coefficients, &s.row).max(s.seconds * 1e-2);
        }
    }
    coefficients
}

/// Passes over the coefficients at most.
const PASSES: usize = 20_000;

/// Weighted least squares with non-negative coefficients, by coordinate descent.
fn nonnegative(samples: &[&Sample], weights: &[f64]) -> Row {
    let mut gram = [[0.0f64; N]; N];
    let mut right = [0.0f64; N];
    for (s, &w) in samples.iter().zip(weights) {
        for (i, line) in gram.iter_mut().enumerate() {
            right[i] += w * s.row[i] * s.seconds;
            line.iter_mut().zip(&s.row).for_each(|(g, v)| *g += w * s.row[i] * v);
        }
    }
    // Columns of length one: features differ by ten orders of magnitude.
    let scale: Row = std::array::from_fn(|i| match gram[i][i] {
        d if d > 0.0 => 1.0 / d.sqrt(),
        _ => 0.0,
    });
    let mut x = [0.0f64; N];
    for _ in 0..PASSES {
        let mut moved = 0.0f64;
        for i in (0..N).filter(|&i| scale[i] > 0.0) {
            let others: f64 = (0..N).map(|j| gram[i][j] * scale[j] * x[j]).sum();
            let new = (x[i] + right[i] * scale[i] - others * scale[i]).max(0.0);
            moved = moved.max((new - x[i]).abs());
            x[i] = new;
        }
        if moved <= 1e-12 * x.iter().fold(0.0, |m: f64, v| m.max(*v)) {
            break;
        }
    }
    std::array::from_fn(|i| x[i] * scale[i])
}
