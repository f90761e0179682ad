//! Reading models and writing files for all verbs.

use super::shapes::Shapes;
use super::{Common, named};
use crate::calibrate::store;
use crate::costing::Costing;
use crate::explore::Limits;
use crate::files::Named;
use crate::onnx::{Imported, ModelInfo, RawModel, import, parse_onnx, read_onnx};
use crate::selfcheck::Guard;
use crate::{entry, files, profile, stdlib};
use anyhow::{Context, anyhow};
use mlc_dsl::ir::Program;
use mlc_dsl::library::{Law, Library};
use mlc_dsl::told;
use std::fmt::Display;
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
    /// The definition of a text that is the model.
    pub entry: Option<String>,
}

impl Model {
    /// Laws that recognise the model itself: it is not explained by its own name.
    pub fn own_laws(&self) -> Vec<String> {
        let Some(entry) = &self.entry else { return vec![] };
        let is_own = |l: &&Law| l.name.strip_suffix(".rev").unwrap_or(&l.name) == entry;
        self.library.laws.iter().filter(is_own).map(|l| l.name.to_string()).collect()
    }
}

/// Reads a model, ONNX or a `.rules` text, with the shipped rules and `rules`.
pub fn load(path: &Path, rules: &[PathBuf]) -> anyhow::Result<Model> {
    let common = Common { rules: rules.to_vec(), ..Common::default() };
    load_for(path, &common, &Shapes::default())
}

/// The same as the user asks for it; `-` is standard input.
pub(super) fn load_for(path: &Path, common: &Common, shapes: &Shapes) -> anyhow::Result<Model> {
    common.screen.watch();
    crate::progress::at("reading", None);
    let raw = match read(path)? {
        Content::Model(raw) => raw,
        Content::Text(text) => return entered(path, text, common, shapes),
    };
    let library = Arc::new(library(common, None)?);
    let imported = understand(*raw, &library, shapes, path)?;
    for (symbol, same) in &imported.assumed {
        let note =
            format!("note: the model is only meaningful if extent `{symbol}` equals `{same}`\n");
        common.screen.note(&note);
    }
    for note in &imported.notes {
        common.screen.note(&format!("note: {note}\n"));
    }
    Ok(Model { library, program: imported.program, info: Some(imported.model), entry: None })
}

/// What a file holds.
pub(super) enum Content {
    /// An ONNX model.
    Model(Box<RawModel>),
    /// A `.rules` text.
    Text(String),
}

/// Reads a file; what standard input holds shows in its bytes.
pub(super) fn read(path: &Path) -> anyhow::Result<Content> {
    let raw = match files::is_input_stream(path) {
        true => {
            let bytes = files::map(path).map_err(|e| files::error("read", path, &e))?;
            if is_text(&bytes) {
                return Ok(Content::Text(String::from_utf8_lossy(&bytes).into_owned()));
            }
            parse_onnx(bytes, None)
        }
        false if path.extension().is_some_and(|e| e == "rules") => {
            return Ok(Content::Text(stdlib::read_text(path)?));
        }
        false => read_onnx(path),
    };
    Ok(Content::Model(Box::new(raw.map_err(|e| with_help(e.to_string(), e.help()))?)))
}

/// An ONNX model as a program, with extents as asked for.
pub(super) fn understand(
    mut raw: RawModel,
    library: &Library,
    shapes: &Shapes,
    path: &Path,
) -> anyhow::Result<Imported> {
    shapes.enter(&mut raw)?;
    import(raw, library).map_err(|e| {
        let place = told(&path.display().to_string());
        with_help(format!("{place}: {e}"), e.help().map(str::to_string))
    })
}

/// A text as a model: its last `def`.
pub(super) fn entered(
    path: &Path,
    text: String,
    common: &Common,
    shapes: &Shapes,
) -> anyhow::Result<Model> {
    let library = Arc::new(library(common, Some((path.display().to_string(), text)))?);
    let source = library.sources.len() as u32 - 1;
    let name = entry::last_definition(&library, source)
        .with_context(|| format!("{} has no `def` to run", path.display()))?;
    let program = entry::program_at(&library, &name, &|input, axis, symbol| {
        shapes.extent(input, axis, symbol)
    })?;
    shapes.all_used(&program)?;
    Ok(Model { library, program, info: None, entry: Some(name) })
}

/// The shipped rules, the user's, and another text.
pub(super) fn library(common: &Common, last: Option<(String, String)>) -> anyhow::Result<Library> {
    stdlib::load_sound_with(&common.rules, last, common.screen.colored_errors())
}

/// True if these are the bytes of a text, and of no ONNX file: that begins with a control character.
fn is_text(bytes: &[u8]) -> bool {
    let control = |b: &u8| b.is_ascii_control() && !b.is_ascii_whitespace();
    !bytes.is_empty() && std::str::from_utf8(bytes).is_ok() && !bytes.iter().any(control)
}

/// An error and what to do about it.
pub fn with_help(error: impl Display, help: Option<String>) -> anyhow::Error {
    match help {
        Some(h) => anyhow!("{error}\nhelp: {h}"),
        None => anyhow!("{error}"),
    }
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
    /// The files that are read.
    pub fn files(&self) -> impl Iterator<Item = Named<'_>> {
        let store = named("--store", &self.store).filter(|(_, path)| path.exists());
        named("--profile", &self.profile).into_iter().chain(store)
    }

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
                let note = format!("note: this machine's calibration is not used: {e:#}\n");
                common.screen.note(&note);
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
