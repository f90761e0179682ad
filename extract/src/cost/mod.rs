//! The cost of a kernel: seconds from its name, its element type and its work.
//!
//! By default the roofline model of S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual
//! performance model for multicore architectures", Communications of the ACM 52(4), 2009: a kernel takes a launch and then the longer
//! of its arithmetic and its memory traffic. Kernels that were timed on the machine
//! use the costs fitted to their timings instead.

pub mod fit;
pub(crate) mod size;
pub mod target;
pub mod work;

use std::collections::BTreeMap;
use std::ops::{Add, AddAssign};

use mlc_dsl::ir::DType;
use mlc_dsl::library::{TargetItem, TargetKernel};

use crate::egraph_view::Cost;
use fit::{Caches, FEATURES, Fit, KernelClass, N, features};
use target::{MEANING, REFERENCE};

/// What a kernel, or several kernels together, must do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Quick operations; a fused multiply-add is two.
    pub flops: f64,
    /// Of `flops`, those of contractions.
    pub products: f64,
    /// Operations that take many instructions: exponentials, roots, trigonometry.
    pub slow: f64,
    /// Of `slow`, those that vector units are seldom given: trigonometry, powers.
    pub rare: f64,
    /// Of `flops`, those on operands that are used few times once fetched.
    pub thin: f64,
    /// Of `flops`, those of contractions that meet their operands in windows.
    pub windowed: f64,
    /// Operations that vector units do in vain, as the results end in short axes.
    pub idle: f64,
    /// Elements that a contraction brings to its units beyond those of its operands: of a convolution the
    /// windows written out.
    pub fetched: f64,
    /// Elements of results, those that never leave the kernel among them.
    pub points: f64,
    /// Runs of neighbouring elements: of every operator the larger number of its operands and results.
    pub rows: f64,
    /// Elements that are visited in another order than they lie in.
    pub moved: f64,
    /// Problems that a contraction consists of, which share nothing; addresses that are looked up.
    pub parts: f64,
    /// Bytes read from memory.
    pub read: f64,
    /// Of `read`, bytes of constants, which no kernel before this one left in a cache.
    pub fixed: f64,
    /// Bytes written to memory.
    pub written: f64,
    /// Bytes read that lie in another layout than the kernel takes.
    pub relaid: f64,
    /// Kernel launches.
    pub launches: f64,
}

impl Work {
    /// The same kernel with so many times the work; it is launched as often.
    #[must_use]
    pub fn scaled(&self, by: f64) -> Work {
        Work {
            flops: self.flops * by,
            products: self.products * by,
            slow: self.slow * by,
            rare: self.rare * by,
            thin: self.thin * by,
            windowed: self.windowed * by,
            idle: self.idle * by,
            fetched: self.fetched * by,
            points: self.points * by,
            rows: self.rows * by,
            moved: self.moved * by,
            parts: self.parts * by,
            read: self.read * by,
            fixed: self.fixed * by,
            written: self.written * by,
            relaid: self.relaid * by,
            launches: self.launches,
        }
    }
}

impl Add for Work {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            flops: self.flops + other.flops,
            products: self.products + other.products,
            slow: self.slow + other.slow,
            rare: self.rare + other.rare,
            thin: self.thin + other.thin,
            windowed: self.windowed + other.windowed,
            idle: self.idle + other.idle,
            fetched: self.fetched + other.fetched,
            points: self.points + other.points,
            rows: self.rows + other.rows,
            moved: self.moved + other.moved,
            parts: self.parts + other.parts,
            read: self.read + other.read,
            fixed: self.fixed + other.fixed,
            written: self.written + other.written,
            relaid: self.relaid + other.relaid,
            launches: self.launches + other.launches,
        }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Quick operations in the time of a slow one, unless a target says otherwise.
const SLOWNESS: f64 = 16.0;

/// Operations per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Sustained quick operations per second.
    pub flops_per_s: f64,
    /// Sustained slow operations per second.
    pub slow_per_s: f64,
}

/// A level of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryLevel {
    /// What it holds.
    pub bytes: f64,
    /// Sustained bytes per second to and from it.
    pub bytes_per_s: f64,
}

/// The speed of a place to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// How people call it.
    pub name: String,
    /// Operations on element types that `dtypes` does not list.
    pub rate: Rate,
    /// Operations on these element types.
    pub dtypes: BTreeMap<DType, Rate>,
    /// Elements that contractions over windows bring in beyond those of their operands, per second; infinite if that takes no time.
    pub fetched_per_s: f64,
    /// From the nearest to the one that holds everything; never empty.
    pub levels: Vec<MemoryLevel>,
    /// Seconds from asking for a kernel until it starts.
    pub launch_s: f64,
}

impl Profile {
    /// The speed of a target, from its figures `flops`, `slow`, `fetched`, `bytes` and `launch`, and those of element types.
    pub fn of(target: &TargetItem) -> Profile {
        let figure = |key: &str, default: f64| target.figures.get(key).copied().unwrap_or(default);
        let flops_per_s = figure("flops", 1e11);
        let rate = Rate { flops_per_s, slow_per_s: figure("slow", flops_per_s / SLOWNESS) };
        let typed = |dtype: &DType| {
            let own =
                ["flops", "slow"].map(|f| target.figures.get(&format!("{f}_{dtype}")).copied());
            let [flops, slow] = own;
            flops.or(slow)?;
            let flops_per_s = flops.unwrap_or(rate.flops_per_s);
            Some((*dtype, Rate { flops_per_s, slow_per_s: slow.unwrap_or(rate.slow_per_s) }))
        };
        Profile {
            name: target.name.to_string(),
            rate,
            dtypes: DType::ALL.iter().filter_map(typed).collect(),
            fetched_per_s: figure("fetched", f64::INFINITY),
            levels: vec![MemoryLevel { bytes: f64::INFINITY, bytes_per_s: figure("bytes", 1e10) }],
            launch_s: figure("launch", 1e-6),
        }
    }

    /// Seconds this work takes here: `max(flops / flops_per_s + slow / slow_per_s, bytes / bytes_per_s + fetched / fetched_per_s) +
    /// launches * launch_s`, the bytes at the speed of the nearest level that holds them.
    ///
    /// The maximum is taken over all of `work`, so price each kernel by itself and add the seconds.
    #[must_use]
    pub fn seconds(&self, dtype: DType, work: &Work) -> f64 {
        let rate = self.dtypes.get(&dtype).unwrap_or(&self.rate);
        let compute = work.flops / rate.flops_per_s + work.slow / rate.slow_per_s;
        let bytes = work.read + work.written;
        let level = self.levels.iter().find(|l| bytes <= l.bytes).or(self.levels.last());
        let memory =
            level.map_or(0.0, |l| bytes / l.bytes_per_s) + work.fetched / self.fetched_per_s;
        compute.max(memory) + work.launches * self.launch_s
    }
}

/// Fits of a machine's kernels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fits {
    /// The caches that they were made with.
    pub caches: Caches,
    /// By kernel.
    pub kernels: BTreeMap<String, Fit>,
}

/// A multiple of the roofline, and those of classes of work, of which the first that holds counts.
#[derive(Clone, Debug)]
struct Factor {
    plain: f64,
    classes: Vec<(KernelClass, f64)>,
}

impl Factor {
    fn of(kernel: &TargetKernel) -> Factor {
        let class = |(name, f): &(String, f64)| Some((KernelClass::named(name)?, *f));
        Factor {
            plain: kernel.factor,
            classes: kernel.class_factors.iter().filter_map(class).collect(),
        }
    }

    fn on(&self, work: &Work) -> f64 {
        let class = KernelClass::of(work);
        let own = self.classes.iter().find(|(c, _)| class.includes(*c));
        own.map_or(self.plain, |(_, factor)| *factor)
    }
}

impl From<f64> for Factor {
    fn from(plain: f64) -> Factor {
        Factor { plain, classes: vec![] }
    }
}

/// Seconds of kernels.
#[derive(Clone, Debug)]
pub struct CostModel {
    /// Where its figures are from, for people.
    pub source: String,
    profile: Profile,
    factors: BTreeMap<String, Factor>,
    fits: Fits,
    /// Bytes of all constants of the program that is priced.
    weights: f64,
}

impl CostModel {
    /// The figures of a target's text.
    pub fn of(target: &TargetItem) -> CostModel {
        let source = format!("the figures of target `{}`", target.name);
        let model = CostModel::new(target, Profile::of(target), source);
        CostModel { fits: stated(target), ..model }
    }

    /// A target's kernels at other figures than those of its text, what it says of single kernels among them.
    pub fn new(target: &TargetItem, profile: Profile, source: String) -> CostModel {
        let rest = [("interpreter", REFERENCE), ("meaning", MEANING)];
        let stated = |(figure, kernel): (&str, &str)| {
            target.figures.get(figure).map(|f| (kernel.to_string(), Factor::from(*f)))
        };
        let kernels = target.kernels.iter().rev().map(|k| (k.name.clone(), Factor::of(k)));
        let factors = kernels.chain(rest.into_iter().filter_map(stated)).collect();
        CostModel { source, profile, factors, fits: Fits::default(), weights: 0.0 }
    }

    /// The same, with kernels that were timed.
    #[must_use]
    pub fn with_fits(self, fits: Fits, source: String) -> CostModel {
        let mut kernels = self.fits.kernels.clone();
        kernels.extend(fits.kernels);
        CostModel { fits: Fits { kernels, ..fits }, source, ..self }
    }

    /// The same for a program whose constants have so many bytes: whether they stay in a cache from one
    /// run to the next decides what reading them takes.
    #[must_use]
    pub fn with_weights(self, bytes: f64) -> CostModel {
        CostModel { weights: bytes, ..self }
    }

    /// The same, all kernels of this name at such a multiple of the roofline.
    #[must_use]
    pub fn with_factor(mut self, kernel: &str, factor: f64) -> CostModel {
        self.fits.kernels.remove(kernel);
        self.factors.insert(kernel.to_string(), factor.into());
        self
    }

    /// Seconds of a kernel.
    #[must_use]
    pub fn seconds(&self, kernel: &str, dtype: DType, work: &Work) -> f64 {
        if let Some(s) = self.fitted(kernel, work) {
            return s;
        }
        let factor = match kernel {
            target::VIEW => 0.0,
            _ => self.factors.get(kernel).map_or(1.0, |f| f.on(work)),
        };
        self.profile.seconds(dtype, work) * factor
    }

    /// Seconds by the roofline alone, whatever the kernel.
    #[must_use]
    pub fn roofline(&self, dtype: DType, work: &Work) -> f64 {
        self.profile.seconds(dtype, work)
    }

    /// [`roofline`](Self::roofline) as the cost of a node.
    #[must_use]
    pub fn cost(&self, dtype: DType, work: &Work) -> Cost {
        Cost::new(self.roofline(dtype, work))
    }

    /// Seconds of a kernel that was timed. Work beyond what was sampled is priced as the largest of its kind
    /// within, times what the roofline says the rest adds.
    #[must_use]
    pub fn fitted(&self, kernel: &str, work: &Work) -> Option<f64> {
        let fit = self.fits.kernels.get(kernel)?.of(KernelClass::of(work));
        let caches = &self.fits.caches;
        let is_cold = self.weights > caches.far;
        let row = features(work, caches, is_cold);
        let beyond = fit.beyond(&row);
        if beyond <= 1.0 {
            return Some(fit.seconds(&row));
        }
        let inside = work.scaled(1.0 / beyond);
        let known = fit.seconds(&features(&inside, caches, is_cold));
        Some(
            known * self.profile.seconds(DType::F32, work)
                / self.profile.seconds(DType::F32, &inside),
        )
    }

    /// The fits of kernels that were timed.
    pub fn fits(&self) -> &Fits {
        &self.fits
    }
}

/// What a target's text says of its kernels.
fn stated(target: &TargetItem) -> Fits {
    let fit = |k: &TargetKernel| {
        let mut coefficients = [0.0; N];
        for (key, seconds) in &k.takes {
            let at = FEATURES.iter().position(|f| f == key);
            if let Some(i) = at {
                coefficients[i] = *seconds;
            }
        }
        Fit {
            coefficients,
            most: [f64::INFINITY; N],
            low: 1.0,
            high: 1.0,
            error: 0.0,
            samples: 0,
            classes: BTreeMap::new(),
        }
    };
    let stated = target.kernels.iter().filter(|k| !k.takes.is_empty());
    Fits { kernels: stated.map(|k| (k.name.clone(), fit(k))).collect(), ..Fits::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(flops: f64, read: f64, written: f64, launches: f64) -> Work {
        Work { flops, slow: flops / 4.0, points: 1.0, read, written, launches, ..Work::default() }
    }

    #[test]
    fn the_slower_side_sets_the_price() {
        let profile = Profile {
            name: "toy".into(),
            rate: Rate { flops_per_s: 100.0, slow_per_s: 50.0 },
            dtypes: BTreeMap::from([(DType::F16, Rate { flops_per_s: 1e3, slow_per_s: 1e3 })]),
            fetched_per_s: 20.0,
            levels: vec![
                MemoryLevel { bytes: 5.0, bytes_per_s: 100.0 },
                MemoryLevel { bytes: f64::INFINITY, bytes_per_s: 10.0 },
            ],
            launch_s: 0.5,
        };
        for (work, seconds) in [
            (work(0.0, 0.0, 0.0, 0.0), 0.0),
            (work(200.0, 5.0, 5.0, 0.0), 3.0),
            (work(100.0, 20.0, 10.0, 0.0), 3.0),
            (work(100.0, 10.0, 0.0, 2.0), 2.5),
            (work(0.0, 0.0, 0.0, 3.0), 1.5),
        ] {
            assert_eq!(profile.seconds(DType::F32, &work), seconds, "{work:?}");
        }
        assert_eq!(profile.seconds(DType::F32, &work(0.0, 2.0, 2.0, 0.0)), 0.04, "in a cache");
        for (fetched, seconds) in [(20.0, 3.0), (50.0, 3.5)] {
            let windows = Work { fetched, ..work(200.0, 5.0, 5.0, 0.0) };
            assert_eq!(profile.seconds(DType::F32, &windows), seconds, "windows");
        }
        assert_eq!(profile.seconds(DType::F16, &work(400.0, 0.0, 0.0, 0.0)), 0.5, "another type");
    }

    #[test]
    fn figures_of_element_types_are_rates_of_their_own() {
        let (library, _) = mlc_dsl::check::library(&[(
            "t.rules",
            "target t\n  flops = 100\n  slow = 10\n  flops_f16 = 400\n  slow_bf16 = 5\n",
        )]);
        let profile = Profile::of(library.target("t").expect("declared"));
        let rate = |flops_per_s, slow_per_s| Rate { flops_per_s, slow_per_s };
        assert_eq!(profile.rate, rate(100.0, 10.0));
        let typed = [(DType::F16, rate(400.0, 10.0)), (DType::BF16, rate(100.0, 5.0))];
        assert_eq!(profile.dtypes, BTreeMap::from(typed));
    }

    #[test]
    fn a_class_of_work_has_a_factor_of_its_own() {
        let (library, diags) = mlc_dsl::check::library(&[(
            "t.rules",
            "op f(x: F[..s]) -> y: F[..s]\n  y[..s] = x[..s]\n\ntarget t\n  flops = 1\n  bytes = 1\n  launch = 0\n  \
             kernel \"k\" covers f cost 2, many = 5, thin = 3\n",
        )]);
        assert!(diags.is_empty(), "{diags:?}");
        let model = CostModel::of(library.target("t").expect("declared"));
        let plain = Work { flops: 8.0, products: 8.0, ..Work::default() };
        let thin = Work { thin: 8.0, ..plain };
        for (work, seconds) in [(plain, 16.0), (thin, 24.0), (Work { parts: 9.0, ..thin }, 40.0)] {
            assert_eq!(model.seconds("k", DType::F32, &work), seconds, "{work:?}");
        }
    }

    #[test]
    fn work_adds_by_component() {
        let mut sum = work(1.0, 2.0, 3.0, 4.0) + work(10.0, 20.0, 30.0, 40.0);
        sum += work(0.5, 0.5, 0.5, 0.5);
        assert_eq!(sum, Work { points: 3.0, ..work(11.5, 22.5, 33.5, 44.5) });
    }
}
