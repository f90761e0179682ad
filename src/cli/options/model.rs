//! Reading models, and the options of the optimiser, for all verbs.

use super::super::common::{Common, named};
use super::shapes::ShapeOptions;
use crate::calibrate::machine::Hardware;
use crate::calibrate::{costs, store};
use crate::cli::completing;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::model::{Model, Reader};
use crate::pipeline::costing::Costing;
use crate::pipeline::options::Guard;
use crate::profile;
use clap_complete::ArgValueCompleter;
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use mlc_explore::Limits;
use mlc_extract::Size;
use mlc_files::Named;
use mlc_verify::random_inputs;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads a model as the user asks for it; `-` is standard input.
pub(crate) fn load_for(
    path: &Path,
    common: &Common,
    shapes: &ShapeOptions,
) -> anyhow::Result<Model> {
    common.screen.watch();
    let model = reader(common, shapes).read(path)?;
    told_notes(&model, common);
    Ok(model)
}

/// Tells what is odd about a model.
pub(crate) fn told_notes(model: &Model, common: &Common) {
    common.screen.notes(model.notes());
}

/// The same for a run that is given these inputs, without its notes: those inputs that decide shapes are constants of the
/// model, and so are those with a default.
pub(crate) fn load_offering(
    path: &Path,
    common: &Common,
    shapes: &ShapeOptions,
    inputs: HashMap<String, Tensor>,
) -> anyhow::Result<Model> {
    common.screen.watch();
    Ok(reader(common, shapes).fold_defaults(true).offering(inputs).read(path)?)
}

/// Extents for a run whose inputs are drawn.
///
/// # Errors
/// None are found for which the operators' conditions hold.
pub(crate) fn fitting_symbols(
    program: &Program,
    library: &Library,
) -> Result<HashMap<String, i64>, Error> {
    let symbols = random_inputs::symbols(program, library);
    let Some(refused) = random_inputs::unmet(program, library, &symbols) else {
        return Ok(symbols);
    };
    let mut names: Vec<&String> = symbols.keys().collect();
    names.sort_unstable();
    let given: Vec<String> = names.iter().map(|n| format!("`--shape {n}=…`")).collect();
    let message = format!("no extents are found for which the model runs: {refused}");
    let error = Error::new(ErrorKind::Input, message);
    Err(match given.is_empty() {
        true => error.with_help(refused.help()),
        false => error.with_help(format!("give extents with {}", given.join(", "))),
    })
}

/// How the user asks for models to be read.
pub(crate) fn reader(common: &Common, shapes: &ShapeOptions) -> Reader {
    let plain = Reader::new().colored(common.screen.colored_errors());
    let plain = plain.fold_defaults(shapes.folds_defaults());
    let ruled = common.rules.iter().fold(plain, |reader, path| reader.rules(path));
    let shaped = shapes.given().fold(ruled, |r, (name, extents)| r.shape(name, extents));
    let bound = shapes.bindings().fold(shaped, |r, (name, extent)| r.bind(name, extent));
    let chosen = shapes.options().fold(bound, |r, (name, value)| r.option(name, value));
    shapes.values().fold(chosen, |r, (name, numbers)| r.numbers(name, numbers))
}

/// The shipped rules and the user's.
pub(crate) fn library(common: &Common) -> Result<Arc<Library>, Error> {
    reader(common, &ShapeOptions::default()).library()
}

/// The options that decide how a model is optimised.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "How to optimise")]
pub struct Tuning {
    /// Which laws may fire, by how far they may stray.
    #[arg(long, value_enum, default_value = "reorder")]
    pub fp: crate::pipeline::Fp,
    /// What is to be least; of equal programs the faster is taken.
    #[arg(long, value_enum, default_value = "latency")]
    pub objective: crate::pipeline::options::Objective,
    /// A law that must not fire; may be given several times.
    #[arg(long, value_name = "LAW", add = ArgValueCompleter::new(completing::laws))]
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
    #[arg(long, value_name = "SIZE", value_parser = mlc_extract::resources::parse_bytes)]
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
    fn costing(&self, target: &str, device: Option<&Device>) -> anyhow::Result<Costing> {
        let mut costing = match &self.profile {
            Some(path) => profile::read(path)?,
            None => Costing::default(),
        };
        if self.calibrated || self.store.is_some() {
            let Some(device) = device else {
                anyhow::bail!(
                    "`{target}` has no kernels here that could be timed\nhelp: add `--target cpu`, or leave `--calibrated` out"
                );
            };
            let path = self.store.clone().map_or_else(store::usual_path, Ok)?;
            costing = costs::of_store(&path, &Hardware::of(device)?)?;
        }
        costing.measure = self.measure.unwrap_or(0);
        Ok(costing)
    }

    /// The options for running on a device: what its calibration says, if there is one.
    pub fn options_on(
        &self,
        device: &Device,
        target: &str,
        library: &Library,
        common: &Common,
    ) -> anyhow::Result<crate::pipeline::Options> {
        let mut options = self.options_with(target, common, Some(device))?;
        if self.profile.is_none() && options.costing.fits.is_none() && !self.no_calibration {
            let measure = options.costing.measure;
            let known =
                Hardware::of(device).map_err(Into::into).and_then(|h| costs::of_hardware(&h));
            options.costing = known.unwrap_or_else(|e| {
                let note = format!("note: this machine's calibration is not used: {e:#}\n");
                common.screen.note(&note);
                Costing::default()
            });
            options.costing.measure = measure;
        }
        options.costing.described = device.described(library, target);
        Ok(options)
    }

    /// The pipeline's options for a target.
    pub fn options(
        &self,
        target: &str,
        common: &Common,
    ) -> anyhow::Result<crate::pipeline::Options> {
        let here = Device::cpu().threads(common.threads());
        self.options_with(target, common, (target == "cpu").then_some(&here))
    }

    /// The same, given the device that has the target's kernels, if it is at hand.
    fn options_with(
        &self,
        target: &str,
        common: &Common,
        device: Option<&Device>,
    ) -> anyhow::Result<crate::pipeline::Options> {
        let seconds = |option: &str, given: f64| {
            std::time::Duration::try_from_secs_f64(given).map_err(|e| {
                let example = format!("give zero or more, as in `{option} 2.5`");
                anyhow::anyhow!(
                    "`{option} {given}` is not a number of seconds: {e}\nhelp: {example}"
                )
            })
        };
        let time = seconds("--time", self.time)?;
        let deadline = self.deadline.map(|d| seconds("--deadline", d)).transpose()?;
        Ok(crate::pipeline::Options {
            target: target.to_string(),
            fp: self.fp,
            objective: self.objective,
            sizes: Size::usual(),
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
            costing: self.costing(target, device)?,
            seed: common.seed,
            threads: common.threads(),
        })
    }
}
