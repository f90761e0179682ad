//! Calibration: times the kernels of this machine or of a device over a plan of shapes, stores the timings and fits costs to them.
//!
//! Never decides what is equal; without it, results are the same on every machine.

pub mod costs;
pub mod diverse_subset;
pub mod layers;
pub mod machine;
pub mod programs;
pub mod store;
pub mod timing;

use crate::device::Device;
use machine::Hardware;
use mlc_dsl::library::{Library, TargetItem};
use mlc_dsl::random::Random;
use mlc_extract::Fits;
use mlc_extract::cost::fit::{Caches, Fit, KernelClass, Sample, features};
use mlc_extract::cost::target::{MEANING, POINTWISE, VIEW};
use programs::{Point, ProgramDraw};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Store, TimingRecord};
use timing::Timer;

/// Programs per kernel drawn from signatures; kernels that take pointwise operators in, and those alone, have more to be
/// told apart.
const POINTS: usize = 30;
/// The same for those.
const MANY: usize = 90;
/// Programs per layer.
const PER_LAYER: usize = 11;

/// The programs to time: of every kernel the most telling first, kernels in turns.
pub fn planned(library: &Library, target: &TargetItem, seed: u64) -> Vec<Point> {
    let draw = ProgramDraw::new(library, target);
    let mut of_layers: BTreeMap<String, Vec<Point>> = BTreeMap::new();
    let mut rng = Random::of_name(seed, "layers");
    for layer in layers::layers(library) {
        for p in draw.layer(layer, PER_LAYER, &mut rng) {
            of_layers.entry(p.kernel.clone()).or_default().push(p);
        }
    }
    let mut lists: Vec<_> = draw
        .families()
        .iter()
        .map(|f| {
            let plain = [VIEW, MEANING].contains(&f.kernel.as_str());
            let many = f.takes_tail() || f.kernel == POINTWISE;
            let count = if many && !plain { MANY } else { POINTS };
            let drawn = diverse_subset::points(&draw, f, count, seed);
            mixed(drawn, of_layers.remove(&f.kernel).unwrap_or_default()).into_iter()
        })
        .collect();
    // Longer lists give more in each turn, so that all end together.
    let shares: Vec<usize> = lists.iter().map(|l| l.len().div_ceil(POINTS)).collect();
    let mut out = Vec::new();
    loop {
        let before = out.len();
        for (l, share) in lists.iter_mut().zip(&shares) {
            out.extend(l.by_ref().take(*share));
        }
        if out.len() == before {
            return out;
        }
    }
}

/// Two lists as one, each spread over all of it.
fn mixed(a: Vec<Point>, b: Vec<Point>) -> Vec<Point> {
    let (la, lb) = (a.len(), b.len());
    let (mut a, mut b) = (a.into_iter(), b.into_iter());
    let mut out = Vec::with_capacity(la + lb);
    for _ in 0..la + lb {
        let first = b.len() == 0 || a.len() > 0 && a.len() * lb >= b.len() * la;
        out.extend(if first { a.next() } else { b.next() });
    }
    out
}

/// What a calibration did.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Done {
    /// Programs of the plan.
    pub planned: usize,
    /// Timed now.
    pub timed: usize,
    /// In the store already.
    pub known: usize,
    /// That the backend does not run.
    pub refused: usize,
    /// Left for another time: the budget was spent.
    pub left: usize,
}

/// What is timed, where, for how long.
pub struct Calibration<'a> {
    pub library: &'a Arc<Library>,
    /// Whose kernels.
    pub target: &'a TargetItem,
    /// What runs them.
    pub device: &'a Device,
    /// No program is begun after this time.
    pub budget: Duration,
    /// Most programs that are timed now.
    pub most: usize,
    /// Seed of the plan.
    pub seed: u64,
}

impl Calibration<'_> {
    /// Times what the store lacks. `progress` gets the programs done and the programs planned.
    pub fn run(&self, store: &Store, progress: &dyn Fn(usize, usize)) -> anyhow::Result<Done> {
        let Hardware { key: hardware, caches } = Hardware::of(self.device)?;
        let points = planned(self.library, self.target, self.seed);
        let draw = ProgramDraw::new(self.library, self.target);
        let timer = Timer::new(self.library, self.target, self.device, caches.far)?;
        let mut done = Done { planned: points.len(), ..Done::default() };
        let began = Instant::now();
        for (i, p) in points.iter().enumerate() {
            progress(i, points.len());
            if store.has(&hardware, &p.kernel, &p.signature) {
                done.known += 1;
                continue;
            }
            if began.elapsed() >= self.budget || done.timed >= self.most {
                done.left += 1;
                continue;
            }
            let Ok(Some(timed)) = timer.time(&draw, p, self.seed) else {
                done.refused += 1;
                continue;
            };
            let entry = TimingRecord {
                kernel: p.kernel.clone(),
                signature: p.signature.clone(),
                work: p.work,
                warm: timed.warm,
                cold: timed.cold,
            };
            store.add(&hardware, &entry)?;
            done.timed += 1;
        }
        Ok(done)
    }
}

/// Fits of all kernels that there are times of. The fastest run counts: whatever else the machine does only
/// adds to a time.
pub fn fits(entries: &[TimingRecord], caches: Caches) -> Fits {
    let mut samples: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
    for e in entries {
        let list = samples.entry(&e.kernel).or_default();
        let class = KernelClass::of(&e.work);
        let row = |is_cold| features(&e.work, &caches, is_cold);
        list.push(Sample { class, row: row(false), seconds: e.warm.least });
        if let Some(cold) = e.cold {
            list.push(Sample { class, row: row(true), seconds: cold.least });
        }
    }
    let fitted = samples.into_iter().filter_map(|(k, s)| Some((k.to_string(), Fit::new(&s)?)));
    Fits { caches, kernels: fitted.collect() }
}

/// The fits of some hardware's times in a store; an error says what to do if there are none.
pub fn stored(store: &Store, of: &Hardware) -> anyhow::Result<(Fits, usize)> {
    let hardware = &of.key;
    let entries = store.entries(hardware)?;
    anyhow::ensure!(
        !entries.is_empty(),
        "the store has no times of this machine ({hardware})\nhelp: `mlc-rewrite calibrate` takes them"
    );
    Ok((fits(&entries, of.caches), entries.len()))
}
