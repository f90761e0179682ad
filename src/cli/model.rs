//! Reading models and writing files for all verbs.

use crate::calibrate::store;
use crate::costing::Costing;
use crate::explore::Limits;
use crate::onnx::{AtomicFile, ModelInfo, import, read_onnx};
use crate::selfcheck::Guard;
use crate::{entry, profile, stdlib};
use anyhow::{Context, anyhow};
use mlc_dsl::ir::Program;
use mlc_dsl::library::Library;
use mlc_dsl::told;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A model of either kind.
pub struct Model {
    /// The declarations it was read with.
    pub library: Arc<Library>,
    /// Its computation.
    pub program: Program,
    /// What an ONNX file says besides.
    pub info: Option<ModelInfo>,
}

/// Reads `path`, an ONNX file or a `.rules` text, with the shipped rules and `rules`.
pub fn load(path: &Path, rules: &[PathBuf]) -> anyhow::Result<Model> {
    if path.extension().is_some_and(|e| e == "rules") {
        let mut texts = rules.to_vec();
        texts.push(path.to_path_buf());
        let library = Arc::new(stdlib::load_sound(&texts)?);
        let source = library.sources.len() as u32 - 1;
        let name = entry::last_definition(&library, source)
            .with_context(|| format!("{} has no `def` to run", path.display()))?;
        let program = entry::program(&library, &name)?;
        return Ok(Model { library, program, info: None });
    }
    let library = Arc::new(stdlib::load_sound(rules)?);
    let raw = read_onnx(path).map_err(|e| with_help(&e, e.help()))?;
    let imported = import(raw, &library).map_err(|e| {
        let place = told(&path.display().to_string());
        with_help(format!("{place}: {e}"), e.help().map(str::to_string))
    })?;
    for (symbol, same) in &imported.assumed {
        eprintln!("note: the model is only meaningful if extent `{symbol}` equals `{same}`");
    }
    for note in &imported.notes {
        eprintln!("note: {note}");
    }
    Ok(Model { library, program: imported.program, info: Some(imported.model) })
}

/// An error and what can be done about it.
pub fn with_help(error: impl Display, help: Option<String>) -> anyhow::Error {
    match help {
        Some(h) => anyhow!("{error}\nhelp: {h}"),
        None => anyhow!("{error}"),
    }
}

/// Writes a whole file or nothing.
pub fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || {
        let mut file = AtomicFile::create(path)?;
        file.write_all(bytes)?;
        file.commit()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The options that decide how a model is optimised.
#[derive(clap::Args, Clone, Debug)]
pub struct Tuning {
    /// Which laws may fire, by how far they may stray.
    #[arg(long, value_enum, default_value = "reorder")]
    pub fp: crate::pipeline::Fp,
    /// What is to be least; of equal programs the faster is taken.
    #[arg(long, value_enum, default_value = "latency")]
    pub objective: crate::objective::Objective,
    /// A law that must not fire; may be given several times.
    #[arg(long, value_name = "LAW")]
    pub without: Vec<String>,
    /// Most nodes that the e-graph takes.
    #[arg(long, default_value_t = Limits::default().nodes)]
    pub nodes: usize,
    /// Most rounds of exploration.
    #[arg(long, default_value_t = Limits::default().rounds)]
    pub rounds: u32,
    /// Most steps of matching for each node of the model, over all rounds.
    #[arg(long, default_value_t = Limits::default().effort)]
    pub effort: u64,
    /// Most seconds of exploration.
    #[arg(long, default_value_t = 20.0)]
    pub time: f64,
    /// How the cheapest program is searched for.
    #[arg(long, value_enum, default_value = "anytime")]
    pub solver: crate::pipeline::Solver,
    /// Seconds of that search, in place of a fixed number of steps.
    #[arg(long, value_name = "SECONDS")]
    pub deadline: Option<f64>,
    /// Figures of the target, as TOML, in place of those of its text.
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["calibrated", "store", "no_calibration"])]
    pub profile: Option<PathBuf>,
    /// Costs of this machine's kernels as `calibrate` measured them; for target `cpu`.
    #[arg(long)]
    pub calibrated: bool,
    /// The same from another store than the usual one.
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// With `run` and `bench`, do as on a machine that was never calibrated.
    #[arg(long, conflicts_with_all = ["calibrated", "store"])]
    pub no_calibration: bool,
    /// Time so many plans from different points of the search, and keep the fastest.
    #[arg(long, value_name = "PLANS", num_args = 0..=1, default_missing_value = "4")]
    pub measure: Option<usize>,
    /// Bytes that runs may take, such as 512M or 4G; what the machine has free by default.
    #[arg(long, value_name = "SIZE", value_parser = crate::needs::parse_bytes)]
    pub memory: Option<u64>,
    /// Explore every copy of a repeated block, not one for all.
    #[arg(long)]
    pub no_sharing: bool,
}

impl Tuning {
    /// Where the costs of a target's kernels are from.
    fn costing(&self, target: &str, threads: usize) -> anyhow::Result<Costing> {
        let mut costing = match &self.profile {
            Some(path) => profile::read(path)?,
            None => Costing::default(),
        };
        if self.calibrated || self.store.is_some() {
            anyhow::ensure!(
                target == "cpu",
                "`{target}` has no kernels here that could be timed\nhelp: add `--target cpu`, or leave `--calibrated` out"
            );
            let path = self.store.clone().map_or_else(store::usual_path, Ok)?;
            costing = Costing::stored(&path, threads)?;
        }
        costing.measure = self.measure.unwrap_or(0);
        Ok(costing)
    }

    /// The options for running on this machine's processor: what its calibration says, if there is one.
    pub fn options_here(&self, common: &super::Common) -> anyhow::Result<crate::pipeline::Options> {
        let mut options = self.options("cpu", common)?;
        if self.profile.is_none() && options.costing.fits.is_none() && !self.no_calibration {
            let measure = options.costing.measure;
            options.costing = Costing::of_this_machine(common.threads()).unwrap_or_else(|e| {
                eprintln!("note: this machine's calibration is not used: {e:#}");
                Costing::default()
            });
            options.costing.measure = measure;
        }
        Ok(options)
    }

    /// The pipeline's options for a target.
    pub fn options(
        &self,
        target: &str,
        common: &super::Common,
    ) -> anyhow::Result<crate::pipeline::Options> {
        let time = std::time::Duration::try_from_secs_f64(self.time)
            .context("`--time` is not a number of seconds")?;
        let deadline = self.deadline.map(std::time::Duration::try_from_secs_f64).transpose();
        let deadline = deadline.context("`--deadline` is not a number of seconds")?;
        Ok(crate::pipeline::Options {
            target: target.to_string(),
            fp: self.fp,
            objective: self.objective,
            limits: Limits {
                nodes: self.nodes,
                rounds: self.rounds,
                effort: self.effort,
                time,
                threads: common.threads(),
                ..Limits::default()
            },
            without: self.without.clone(),
            operators: None,
            solver: self.solver,
            deadline,
            share_blocks: !self.no_sharing,
            self_check: false,
            guard: Guard { memory: self.memory, ..Guard::default() },
            costing: self.costing(target, common.threads())?,
            seed: common.seed,
            threads: common.threads(),
        })
    }
}

/// A progress bar on standard error, silent where that is no terminal.
pub fn progress(unit: &str) -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::new(0);
    let style = indicatif::ProgressStyle::with_template(&format!(
        "{{elapsed_precise}} {{bar:30}} {{pos}}/{{len}} {unit}"
    ));
    match style {
        Ok(s) => bar.with_style(s),
        Err(_) => bar,
    }
}
