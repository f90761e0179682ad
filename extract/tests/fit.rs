//! Fits to synthetic timings: coefficients are recovered, intervals have their coverage.

use mlc_dsl::ir::DType;
use mlc_dsl::library::TargetItem;
use mlc_extract::cost::fit::{Caches, FEATURES, Fit, KernelClass, N, Row, Sample, features};
use mlc_extract::{CostModel, Fits, Profile, Work};
use std::collections::BTreeMap;

/// A small generator (SplitMix64).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().max(1e-300).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

fn at(name: &str) -> usize {
    FEATURES.iter().position(|f| *f == name).expect("a feature")
}

/// Seconds per launch, per quick operation and per byte written.
const TRUTH: [(&str, f64); 3] = [("launches", 2e-6), ("flops", 8e-12), ("written", 3e-10)];

fn row(r: &mut Random) -> Row {
    let mut row = [0.0; N];
    row[at("launches")] = 1.0;
    row[at("flops")] = 10f64.powf(3.0 + 6.0 * r.unit());
    row[at("written")] = 10f64.powf(2.0 + 5.0 * r.unit());
    row[at("rows")] = 10f64.powf(4.0 * r.unit());
    row
}

fn truth(row: &Row) -> f64 {
    TRUTH.iter().map(|(n, c)| c * row[at(n)]).sum()
}

/// Times that are off by a factor whose logarithm has this spread.
fn samples(count: usize, spread: f64, seed: u64) -> Vec<Sample> {
    let mut r = Random(seed);
    let one = |r: &mut Random| {
        let row = row(r);
        Sample {
            class: KernelClass::default(),
            row,
            seconds: truth(&row) * (spread * r.normal()).exp(),
        }
    };
    (0..count).map(|_| one(&mut r)).collect()
}

#[test]
fn coefficients_are_found_again() {
    let fit = Fit::new(&samples(80, 0.0, 1)).expect("enough samples");
    for (name, c) in TRUTH {
        let found = fit.coefficients[at(name)];
        assert!((found / c - 1.0).abs() < 0.02, "{name}: {found:e} for {c:e}");
    }
    assert!(fit.error < 0.01, "{}", fit.error);
    assert!(fit.coefficients.iter().all(|c| *c >= 0.0));
}

#[test]
fn outliers_hardly_move_the_fit() {
    let mut all = samples(100, 0.05, 2);
    for s in all.iter_mut().step_by(10) {
        s.seconds *= 20.0;
    }
    let fit = Fit::new(&all).expect("enough samples");
    let mut r = Random(77);
    let mut errors: Vec<f64> = (0..200)
        .map(|_| row(&mut r))
        .map(|row| (fit.seconds(&row) / truth(&row) - 1.0).abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors[100] < 0.2, "{}", errors[100]);
}

#[test]
fn four_of_five_new_times_lie_in_the_interval() {
    let fit = Fit::new(&samples(150, 0.3, 3)).expect("enough samples");
    let new = samples(2000, 0.3, 4);
    let inside = new.iter().filter(|s| {
        let (low, high) = fit.interval(&s.row);
        (low..=high).contains(&s.seconds)
    });
    let share = inside.count() as f64 / 2000.0;
    assert!((0.74..0.86).contains(&share), "{share}");
}

#[test]
fn too_few_samples_yield_no_fit() {
    assert!(Fit::new(&samples(7, 0.1, 5)).is_none());
    assert!(Fit::new(&samples(8, 0.1, 5)).is_some());
}

fn target() -> TargetItem {
    let figures = BTreeMap::from([("flops".to_string(), 1e11), ("launch".to_string(), 1e-6)]);
    TargetItem {
        name: "toy".into(),
        doc: vec![],
        extends: None,
        devices: vec![],
        source: 0,
        figures,
        kernels: vec![],
        pointwise: None,
        types: Default::default(),
    }
}

#[test]
fn fitted_kernels_replace_the_roofline_and_others_keep_it() {
    let fit = Fit::new(&samples(80, 0.0, 6)).expect("enough samples");
    let fits = Fits { caches: Caches::default(), kernels: BTreeMap::from([("a".into(), fit)]) };
    let plain = CostModel::of(&target());
    let model = plain.clone().with_fits(fits, "a fit".into());
    let work = Work { flops: 1e8, written: 1e5, launches: 1.0, ..Work::default() };
    let expected = truth(&features(&work, &Caches::default(), false));
    let found = model.seconds("a", DType::F32, &work);
    assert!((found / expected - 1.0).abs() < 0.02, "{found} for {expected}");
    assert_eq!(model.seconds("b", DType::F32, &work), plain.seconds("b", DType::F32, &work));
}

#[test]
fn beyond_the_samples_the_roofline_goes_on() {
    let fit = Fit::new(&samples(80, 0.0, 7)).expect("enough samples");
    let most = fit.most[at("flops")];
    let fits = Fits { caches: Caches::default(), kernels: BTreeMap::from([("a".into(), fit)]) };
    let model = CostModel::of(&target()).with_fits(fits, "a fit".into());
    let work = |flops| Work { flops, launches: 1.0, ..Work::default() };
    let (edge, far) = (work(most), work(16.0 * most));
    let ratio = model.seconds("a", DType::F32, &far) / model.seconds("a", DType::F32, &edge);
    let profile = Profile::of(&target());
    let roofline = profile.seconds(DType::F32, &far) / profile.seconds(DType::F32, &edge);
    assert!((ratio / roofline - 1.0).abs() < 1e-9, "{ratio} for {roofline}");
}

#[test]
fn a_text_says_what_a_kernel_takes() {
    assert_eq!(mlc_dsl::check::WORK[..], FEATURES[..mlc_dsl::check::WORK.len()]);
    for class in mlc_dsl::check::CLASSES {
        let named = KernelClass::named(class).map(|c| c.to_string());
        assert_eq!(named.as_deref(), Some(class));
    }
    let text = "/// A place.\ntarget place\n  launch = 1\n  kernel \"k\" covers neg takes launches = 3, read = 0.5\n";
    let op = "/// Negation.\nop neg(x: F[..s]) -> y: F[..s]\n  y[..s] = -x[..s]\n";
    let texts = [("t.rules".to_string(), format!("{op}\n{text}"))];
    let (library, diags) = mlc_dsl::check::library(&texts);
    assert!(diags.is_empty());
    let model = CostModel::of(library.target("place").expect("declared"));
    let work = Work { launches: 1.0, read: 8.0, written: 8.0, ..Work::default() };
    assert_eq!(model.seconds("k", DType::F32, &work), 7.0);
    let own = Fits { kernels: BTreeMap::new(), ..Fits::default() };
    let other = model.with_fits(own, "elsewhere".into());
    assert_eq!(
        other.seconds("k", DType::F32, &work),
        7.0,
        "what was not timed stays as it is said"
    );
}
