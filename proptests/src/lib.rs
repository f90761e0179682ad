//! Strategies and helpers for property tests over all crates.
//!
//! Holds what several properties need; the properties themselves are in `tests/`.

pub mod architectures;
pub mod emulated;
pub mod filetests;
pub mod filled;
pub mod generated_code;
pub mod mutants;
pub mod networks;
pub mod scatter;
pub mod shapes;
pub mod spellings;
pub mod stacks;
pub mod tool;
pub mod traps;

use mlc_dsl::expr::{Expr, ExprKind};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{DType, Extent, Program, Tensor, Type};
use mlc_dsl::library::{DTypePattern, Dim, Library};
use mlc_explore::Limits;
use mlc_fuzz::{Generator, Size};
use mlc_rewrite::pipeline::{Optimized, Options, optimize};
use mlc_rewrite::stdlib;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How many of something a test takes: `some`, times the number in `MLC_THOROUGH` if that is set.
///
/// # Panics
/// If the variable is not a number.
pub fn sampled(some: usize) -> usize {
    let Ok(times) = std::env::var("MLC_THOROUGH") else { return some };
    let times: usize = times.parse().unwrap_or_else(|_| panic!("MLC_THOROUGH={times}: no number"));
    some.saturating_mul(times.max(1))
}

/// A folder whose texts are read instead of those embedded.
static TEXTS: OnceLock<PathBuf> = OnceLock::new();

/// Reads the texts of a folder instead of those embedded; false if the library was read already.
pub fn read_texts_of(folder: &Path) -> bool {
    TEXTS.set(folder.to_path_buf()).is_ok()
}

/// The texts under a folder, in the order of their paths.
fn texts(folder: &Path, out: &mut Vec<(String, String)>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    for p in paths {
        if p.is_dir() {
            texts(&p, out);
        } else if p.extension().is_some_and(|e| e == "rules") {
            let text = stdlib::read_text(&p).unwrap_or_else(|e| panic!("{e:#}"));
            out.push((p.display().to_string(), text));
        }
    }
}

/// The shipped library and what this text declares.
pub fn library_with(text: &str) -> Arc<Library> {
    stdlib::sound(&[("case", text)], false).unwrap_or_else(|e| panic!("{e}"))
}

/// The names of the definitions of a text, of which each begins a line.
pub fn defined(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|l| l.trim().strip_prefix("def ")?.split('(').next())
}

/// The shipped library, read once.
pub fn library() -> &'static Arc<Library> {
    static LIBRARY: OnceLock<Arc<Library>> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let Some(folder) = TEXTS.get() else { return stdlib::shipped() };
        let mut found = Vec::new();
        texts(folder, &mut found);
        let (library, diags) = mlc_dsl::check::library(&found);
        assert!(diags.is_empty(), "{}", stdlib::rendered(&library, &diags, false));
        Arc::new(library)
    })
}

/// A proptest configuration: that many cases, always the same ones.
pub fn seeded(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: proptest::test_runner::RngSeed::Fixed(0x6d6c_6372),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

/// Generated programs of at most `most` nodes or so.
pub fn programs(most: usize) -> impl Strategy<Value = Program> {
    any::<u64>().prop_map(move |seed| program(seed, most))
}

/// The generated program of a seed.
pub fn program(seed: u64, most: usize) -> Program {
    Generator::new(library()).sized(Size { least: 2, most }).program(seed)
}

/// Options of the pipeline for small programs.
pub fn options(nodes: usize, rounds: u32) -> Options {
    Options {
        // Generous time: results must not depend on it.
        limits: Limits {
            nodes,
            rounds,
            time: Duration::from_secs(600),
            threads: 1,
            ..Limits::default()
        },
        self_check: false,
        ..Options::default()
    }
}

/// The pipeline's default options for the CPU, with the self-check on.
pub fn checked_options() -> Options {
    let limits = Limits { time: Duration::from_secs(60), ..Limits::default() };
    Options { limits, self_check: true, seed: 1, ..options(0, 0) }
}

/// Runs the pipeline.
pub fn optimised(program: &Program, nodes: usize, rounds: u32) -> Result<Optimized, String> {
    optimize(program.clone(), library(), &options(nodes, rounds)).map_err(|e| format!("{e:#}"))
}

/// All element types.
pub fn dtypes() -> impl Strategy<Value = DType> {
    proptest::sample::select(DType::ALL.to_vec())
}

/// Tensors of any type with finite elements, up to three axes, empty ones among them.
pub fn tensors() -> impl Strategy<Value = Tensor> {
    (dtypes(), proptest::collection::vec(0usize..5, 0..4)).prop_flat_map(|(dtype, shape)| {
        let n = shape.iter().product::<usize>();
        let within = move |v| dtype.small_float().map_or(v, |format| format.clamp(v));
        let float = (-100.0..100.0f64).prop_map(within).boxed();
        let number = if dtype.is_float() { float } else { whole(dtype) };
        proptest::collection::vec(number, n)
            .prop_map(move |v| Tensor::from_f64(dtype, shape.clone(), &v))
    })
}

fn whole(dtype: DType) -> BoxedStrategy<f64> {
    let (low, high) = dtype.int_range().unwrap_or((0, 1));
    let (low, high) = (low.max(-1000) as i64, high.min(1000) as i64);
    (low..=high).prop_map(|v| v as f64).boxed()
}

/// An expression over extents, as a polynomial and as what it computes on integers.
#[derive(Clone, Debug)]
pub enum Expression {
    /// A symbol, by number.
    Symbol(usize),
    /// A number.
    Number(i64),
    /// A sum.
    Add(Box<Expression>, Box<Expression>),
    /// A difference.
    Sub(Box<Expression>, Box<Expression>),
    /// A product.
    Mul(Box<Expression>, Box<Expression>),
    /// A quotient, rounded down, by a positive number.
    Div(Box<Expression>, i64),
    /// A remainder by a positive number.
    Mod(Box<Expression>, i64),
    /// The larger of two integers.
    Max(Box<Expression>, Box<Expression>),
    /// The smaller of two integers.
    Min(Box<Expression>, Box<Expression>),
}

/// The symbols that expressions use.
pub const SYMBOLS: [&str; 3] = ["b", "n", "s"];

impl Expression {
    /// As an extent.
    pub fn extent(&self) -> Extent {
        match self {
            Expression::Symbol(i) => Extent::sym(SYMBOLS[*i]),
            Expression::Number(v) => Extent::from(*v),
            Expression::Add(a, b) => &a.extent() + &b.extent(),
            Expression::Sub(a, b) => &a.extent() - &b.extent(),
            Expression::Mul(a, b) => &a.extent() * &b.extent(),
            Expression::Div(a, k) => a.extent().floor_div(&Extent::from(*k)),
            Expression::Mod(a, k) => a.extent().modulo(&Extent::from(*k)),
            Expression::Max(a, b) => a.extent().maximum(&b.extent()),
            Expression::Min(a, b) => a.extent().minimum(&b.extent()),
        }
    }

    /// On integers.
    pub fn value(&self, symbols: &[i64; 3]) -> i64 {
        match self {
            Expression::Symbol(i) => symbols[*i],
            Expression::Number(v) => *v,
            Expression::Add(a, b) => a.value(symbols) + b.value(symbols),
            Expression::Sub(a, b) => a.value(symbols) - b.value(symbols),
            Expression::Mul(a, b) => a.value(symbols) * b.value(symbols),
            Expression::Div(a, k) => a.value(symbols).div_euclid(*k),
            Expression::Mod(a, k) => a.value(symbols).rem_euclid(*k),
            Expression::Max(a, b) => a.value(symbols).max(b.value(symbols)),
            Expression::Min(a, b) => a.value(symbols).min(b.value(symbols)),
        }
    }
}

/// Expressions of a few operations.
pub fn expressions() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![
        (0..SYMBOLS.len()).prop_map(Expression::Symbol),
        (-4i64..9).prop_map(Expression::Number),
    ];
    leaf.prop_recursive(4, 12, 2, |inner| {
        let pair = || (inner.clone(), inner.clone());
        let boxed = |(a, b): (Expression, Expression)| (Box::new(a), Box::new(b));
        prop_oneof![
            pair().prop_map(move |p| {
                let (a, b) = boxed(p);
                Expression::Add(a, b)
            }),
            pair().prop_map(move |p| {
                let (a, b) = boxed(p);
                Expression::Sub(a, b)
            }),
            pair().prop_map(move |p| {
                let (a, b) = boxed(p);
                Expression::Mul(a, b)
            }),
            (inner.clone(), 1i64..6).prop_map(|(a, k)| Expression::Div(Box::new(a), k)),
            (inner.clone(), 1i64..6).prop_map(|(a, k)| Expression::Mod(Box::new(a), k)),
            pair().prop_map(move |p| {
                let (a, b) = boxed(p);
                Expression::Max(a, b)
            }),
            pair().prop_map(move |p| {
                let (a, b) = boxed(p);
                Expression::Min(a, b)
            }),
        ]
    })
}

/// The program of a definition whose parameters have numbers for extents.
///
/// # Panics
/// If there is no such definition, or it has other parameters.
pub fn program_of(library: &Library, name: &str) -> Program {
    let call = library.find(name).unwrap_or_else(|| panic!("there is no `{name}`"));
    let c = library.call(call);
    let mut b = Builder::new(library);
    let mut args = vec![];
    for i in &c.inputs {
        let extent = |d: &Dim| match d {
            Dim::Value(Expr { kind: ExprKind::Int(n), .. }) => *n as usize,
            _ => panic!("{name}: an axis without a number"),
        };
        let shape: Vec<usize> = i.ty.dims.iter().flatten().map(extent).collect();
        let DTypePattern::Fixed(dtype) = i.ty.dtype else { panic!("{name}: an open type") };
        args.push(b.input(&i.name, Type::known(dtype, &shape)));
    }
    let out = b.expand(call, &vec![None; c.attrs.len()], &args).expect("types");
    let outputs = out.into_iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect();
    b.finish(outputs)
}
