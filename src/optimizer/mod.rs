//! The optimiser as a builder.

mod optimized_model;
mod questions;

pub use optimized_model::OptimizedModel;

use crate::as_read::AsRead;
use crate::device::{BackendKind, Device, MOST_THREADS, all_threads};
use crate::error::{Error, ErrorKind};
use crate::explain;
use crate::model::{Model, Reader};
use crate::onnx_target::kept_operators;
use crate::pipeline::costing::Costing;
use crate::pipeline::extent_ranges::{ExtentRanges, size_of};
use crate::pipeline::options::{Fp, Guard, Objective, Options, Solver, tolerance};
use crate::pipeline::planning::CUDA;
use crate::pipeline::report::operators;
use crate::session::data_dependent::{Prepare, Readiness};
use crate::session::{Session, in_order};
use crate::stack::with_room;
use crate::{onnx_target, pipeline, profile};
use mlc_backends::arrays::AnyArray;
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::Library;
#[cfg(feature = "cli")]
use mlc_dsl::plan::Plan;
use mlc_extract::Size;
use mlc_onnx::ModelInfo;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How models are optimised. What is not said has a default: the processor of this machine, laws that may regroup sums,
/// the self-check on, all cores.
#[derive(Clone, Debug)]
pub struct Optimizer {
    options: Options,
    reader: Reader,
    target_file: Option<PathBuf>,
    profile: Option<PathBuf>,
    opset: Option<i64>,
    place: BackendKind,
    /// Where sessions run, in place of what the target says.
    device: Option<Device>,
    check: Vec<Vec<(String, AnyArray)>>,
    ranges: ExtentRanges,
    /// Open extents are priced at the sizes of the given inputs and at no other.
    for_given: bool,
    /// The result is a file, whatever the target.
    for_file: bool,
}

impl Default for Optimizer {
    fn default() -> Optimizer {
        let options = Options::default();
        Optimizer {
            options,
            reader: Reader::new(),
            target_file: None,
            profile: None,
            opset: None,
            place: BackendKind::Cpu,
            device: None,
            check: vec![],
            ranges: ExtentRanges::default(),
            for_given: false,
            for_file: false,
        }
        .threads(all_threads())
    }
}

impl From<Options> for Optimizer {
    /// An optimiser with these options of the pipeline, where the methods here do not suffice.
    fn from(options: Options) -> Optimizer {
        Optimizer { options, ..Optimizer::default() }
    }
}

/// The operator set of what is written of a `.rules` text, which names none.
const TEXT_OPSET: i64 = 20;

impl Optimizer {
    /// An optimiser with all defaults.
    pub fn new() -> Optimizer {
        Optimizer::default()
    }

    /// What runs the result: `cpu` (this crate, the default), an ONNX runtime (`standard`, `onnxruntime`, `openvino`,
    /// `tensorrt`), or a target of one's own rules. With `reference` sessions run on the f64 interpreter
    /// of meanings, with the others, for a try, on this machine's processor.
    pub fn target(mut self, name: impl Into<String>) -> Optimizer {
        let name = name.into();
        self.target_file = None;
        self.place = match name.as_str() {
            "reference" => BackendKind::Reference,
            _ => BackendKind::Cpu,
        };
        self.options.target = if name == "reference" { "cpu".into() } else { name };
        self
    }

    /// The last target that a `.rules` text declares.
    pub fn target_file(mut self, path: impl Into<PathBuf>) -> Optimizer {
        let path = path.into();
        self.reader = self.reader.rules(path.clone());
        self.place = BackendKind::Cpu;
        self.target_file = Some(path);
        self
    }

    /// Figures of the target, as TOML, in place of those of its text.
    pub fn profile(self, path: impl Into<PathBuf>) -> Optimizer {
        Optimizer { profile: Some(path.into()), ..self }
    }

    /// Adds a file of laws, layers or operators; may be called several times.
    pub fn rules(self, path: impl Into<PathBuf>) -> Optimizer {
        Optimizer { reader: self.reader.rules(path), ..self }
    }

    /// The same as a text, which messages call `name`.
    pub fn rules_text(self, name: impl Into<String>, text: impl Into<String>) -> Optimizer {
        Optimizer { reader: self.reader.rules_text(name, text), ..self }
    }

    /// Gives an input its shape, as `("image", &[1, 3, 224, 224])`, or a symbol its extent, as `("batch", &[1])`.
    pub fn shape(self, name: &str, extents: &[u64]) -> Optimizer {
        Optimizer { reader: self.reader.shape(name, extents), ..self }
    }

    /// Says which extents come for a symbol, as `("seq", 1..=512)`: it stays open, and the result is the best for these.
    pub fn extents(mut self, symbol: &str, range: RangeInclusive<u64>) -> Optimizer {
        self.ranges.give(symbol, range);
        self
    }

    /// Binds a symbol to an extent, as [`Reader::bind`] does.
    pub fn bind(self, symbol: &str, extent: u64) -> Optimizer {
        Optimizer { reader: self.reader.bind(symbol, extent), ..self }
    }

    /// Which laws may fire, by how far they may stray.
    pub fn fp(mut self, fp: Fp) -> Optimizer {
        self.options.fp = fp;
        self
    }

    /// What is to be least: estimated time, memory, or the bytes of the weights.
    pub fn objective(mut self, objective: Objective) -> Optimizer {
        self.options.objective = objective;
        self
    }

    /// A law that must not fire; may be called several times.
    pub fn without(mut self, law: impl Into<String>) -> Optimizer {
        self.options.without.push(law.into());
        self
    }

    /// The operator set of the ONNX model that is written; that of the model by default.
    pub fn opset(self, version: i64) -> Optimizer {
        Optimizer { opset: Some(version), ..self }
    }

    /// Most nodes that the e-graph takes.
    pub fn nodes(mut self, nodes: usize) -> Optimizer {
        self.options.limits.nodes = nodes;
        self
    }

    /// Most rounds of exploration.
    pub fn rounds(mut self, rounds: u32) -> Optimizer {
        self.options.limits.rounds = rounds;
        self
    }

    /// Most steps of matching for each node of the model, over all rounds.
    pub fn effort(mut self, steps: u64) -> Optimizer {
        self.options.limits.effort = steps;
        self
    }

    /// Most time for exploration, a safety net: results depend on it only when it is hit.
    pub fn time_limit(mut self, time: Duration) -> Optimizer {
        self.options.limits.time = time;
        self
    }

    /// How the cheapest program is searched for.
    pub fn solver(mut self, solver: Solver) -> Optimizer {
        self.options.solver = solver;
        self
    }

    /// Time for that search, in place of a number of steps; results then depend on the machine.
    pub fn deadline(mut self, time: Duration) -> Optimizer {
        self.options.deadline = Some(time);
        self
    }

    /// Bytes that a run, and each of the self-check, may take, in place of what the machine has free.
    pub fn memory(mut self, bytes: u64) -> Optimizer {
        self.options.guard.memory = Some(bytes);
        self
    }

    /// Seed of the self-check's inputs.
    pub fn seed(mut self, seed: u64) -> Optimizer {
        self.options.seed = seed;
        self
    }

    /// Threads of the search, the self-check and sessions; results do not depend on their number.
    pub fn threads(mut self, threads: usize) -> Optimizer {
        let threads = threads.clamp(1, MOST_THREADS);
        self.options.threads = threads;
        self.options.limits.threads = threads;
        self
    }

    /// Whether the result is compared with the model before it is returned.
    pub fn check(mut self, wanted: bool) -> Optimizer {
        self.options.self_check = wanted;
        self
    }

    /// Further inputs on which the result is compared with the model; may be called several times.
    pub fn check_on<N: Into<String>, A: Into<AnyArray>>(
        mut self,
        inputs: impl IntoIterator<Item = (N, A)>,
    ) -> Optimizer {
        let inputs = inputs.into_iter();
        self.check.push(inputs.map(|(name, array)| (name.into(), array.into())).collect());
        self
    }

    /// Most that an element of the result may be off, as a part of its output's largest element.
    pub fn tolerance(mut self, part: f64) -> Optimizer {
        self.options.guard.tolerance = Some(part);
        self
    }

    /// Optimises a model. If the self-check finds the result to be wrong, the law to blame is turned off, which the
    /// report says, and the search is repeated.
    ///
    /// # Errors
    /// Rules, a target, a law, an operator set, a shape or inputs do not fit the model, or the result cannot be written
    /// for its runtime.
    pub fn optimize(&self, model: &Model) -> Result<OptimizedModel, Error> {
        let model = match self.reader.is_plain() {
            true => model.clone(),
            false => model.read_with(&self.reader)?,
        };
        with_room(|| self.optimized(model))
    }

    /// Whether two models are equal by the laws, and if not, where they differ: what another tool made of a model is held against
    /// it. Inputs and outputs are matched by name.
    ///
    /// # Errors
    /// Rules or shapes do not fit the models; their inputs or outputs differ; one of them is a text of rules.
    pub fn compare(&self, a: &Model, b: &Model) -> Result<explain::Comparison, Error> {
        let read = |model: &Model| match self.reader.is_plain() {
            true => Ok(model.clone()),
            false => model.read_with(&self.reader),
        };
        let (a, b) = (read(a)?, read(b)?);
        with_room(|| explain::compare(&a, &b, &self.options(&a)?))
    }

    fn optimized(&self, model: Model) -> Result<OptimizedModel, Error> {
        let mut options = self.options(&model)?;
        let is_file = self.for_file || onnx_target::is_written(&model.library, &options.target);
        let model = match is_file {
            true => {
                let opset = onnx_target::opset(&info(&model), self.opset)?;
                model.written_at(opset)?
            }
            false => model,
        };
        let mut held = AsRead::check(&model, &mut options)?;
        let mut program = model.program.clone();
        explain::name_all(&mut program, &model.library);
        let mut info = info(&model);
        let opset = onnx_target::opset(&info, self.opset)?;
        let device = self.device_for(&model.library, &options);
        let described = || device.described(&model.library, &options.target);
        options.costing.described = options.costing.described.take().or_else(described);
        let (mut result, raw) = if is_file {
            onnx_target::prepare(&mut options, &mut info, &model.library, opset);
            let mut named = model.clone();
            named.program = program;
            let (result, raw) = kept_operators::optimize(&named, &info, opset, &options)?;
            (result, Some(raw))
        } else {
            (pipeline::optimize(program, &model.library, &options)?, None)
        };
        if let Some(held) = &mut held {
            raw.iter().try_for_each(|raw| held.written(raw))?;
            held.enter(&mut result.report);
        }
        drop(held);
        Ok(OptimizedModel { model, result, options, raw, info, opset, device })
    }

    /// Where sessions run.
    fn device_for(&self, library: &Library, options: &Options) -> Device {
        if let Some(device) = &self.device {
            return device.clone();
        }
        let place = match library.is_kind_of(&options.target, CUDA) {
            true => BackendKind::Cuda,
            false => self.place,
        };
        let device = Device::of(place).threads(options.threads).fp(options.fp);
        match options.guard.memory {
            Some(bytes) => device.memory(bytes),
            None => device,
        }
    }

    /// The options of the pipeline, as far as they depend on the model.
    fn options(&self, model: &Model) -> Result<Options, Error> {
        let mut options = self.options.clone();
        if let Some(path) = &self.target_file {
            options.target = declared_target(model, path)?;
        }
        pipeline::target(&model.library, &options.target)?;
        if let Some(path) = &self.profile {
            options.costing = profile::read(path)?;
        }
        options.without.extend(model.own_laws());
        options.guard.tolerance = options.guard.tolerance.map(tolerance).transpose()?;
        let sample = |given: &Vec<(String, AnyArray)>| {
            let named = given.iter().map(|(n, a)| (n.clone(), a.tensor().clone())).collect();
            in_order(&model.program, named)
        };
        let given: Result<Vec<Vec<Tensor>>, Error> = self.check.iter().map(sample).collect();
        options.guard.given.extend(given?);
        options.sizes = self.sizes(model, &options)?;
        Ok(options)
    }
}

/// What the command line says besides.
#[cfg(feature = "cli")]
impl Optimizer {
    /// Sessions run on this device, whose figures prices are of.
    pub(crate) fn on(self, device: Device) -> Optimizer {
        Optimizer { device: Some(device), ..self }
    }

    /// Ranges of extents, in place of those that were said.
    pub(crate) fn ranges(self, ranges: ExtentRanges) -> Optimizer {
        Optimizer { ranges, ..self }
    }

    /// The result is for the given inputs: open extents are priced at their sizes alone, if there are any.
    pub(crate) fn for_given(self) -> Optimizer {
        Optimizer { for_given: true, ..self }
    }

    /// The result is written as a file, also for a target that runs here.
    pub(crate) fn for_file(self) -> Optimizer {
        Optimizer { for_file: true, ..self }
    }

    /// The plan of a model as it was read, on the target and at the prices that a result is held against.
    pub(crate) fn plan_as_read(&self, model: &Model) -> Result<Plan, Error> {
        let options = self.options(model)?;
        with_room(|| pipeline::plan_as_read(&model.program, &model.library, &options))
    }
}

impl Optimizer {
    /// The sizes that programs with open extents are priced at.
    fn sizes(&self, model: &Model, options: &Options) -> Result<Vec<Size>, Error> {
        if !self.ranges.is_empty() {
            return self.ranges.sizes(&model.program);
        }
        let given = options.guard.given.iter().map(|g| size_of(&model.program, g));
        Ok(match self.for_given && !options.guard.given.is_empty() {
            true => given.take(1).collect(),
            // The result serves other sizes, too.
            false => given.chain(options.sizes.iter().cloned()).collect(),
        })
    }
}

/// The last target of a text that a model was read with.
fn declared_target(model: &Model, path: &Path) -> Result<String, Error> {
    let file = path.display().to_string();
    let library = &model.library;
    let mut own =
        library.targets.iter().filter(|t| library.sources[t.source as usize].name == file);
    own.next_back().map(|t| t.name.to_string()).ok_or_else(|| {
        Error::new(ErrorKind::Setting, format!("{file} declares no target"))
            .at(file.clone())
            .with_help("write a `target` item, or choose a shipped target by its name")
    })
}

/// What is written besides the computation: what the file of the model said, or little for a text.
pub(crate) fn info(model: &Model) -> ModelInfo {
    if let Some(info) = &model.info {
        return info.clone();
    }
    let opset_imports = [(String::new(), TEXT_OPSET)].into();
    let graph_name = "model".to_string();
    let producer_name = env!("CARGO_PKG_NAME").to_string();
    let info = ModelInfo { opset_imports, graph_name, producer_name, ..ModelInfo::default() };
    let plain = onnx_target::written(&model.program, &model.library, &info, TEXT_OPSET);
    let nodes = plain.map_or_else(|_| operators(&model.program), |raw| raw.graph.nodes.len());
    ModelInfo { nodes, ..info }
}

/// Optimises the parts of a model that data decide, for a device, and plans as they are those of which the next run may decide otherwise.
pub(crate) fn optimizing(
    model: &Model,
    device: &Device,
    options: &Options,
) -> Result<Box<Prepare>, Error> {
    let (library, device) = (model.library.clone(), device.clone());
    let mut options = Options { guard: Guard::default(), ..options.clone() };
    if !device.runs(&library, &options.target) {
        options.target = device.target(&library)?;
        let described = device.described(&library, &options.target);
        options.costing = Costing { described, ..Costing::default() };
    }
    Ok(Box::new(move |program, readiness| match readiness {
        Readiness::AsRead => Session::of_program(program, &library, &device),
        Readiness::Optimized => {
            let done = pipeline::optimize(program.clone(), &library, &options)?;
            Ok(Session::new(&done.plan, &library, &device)?.with_report(done.report))
        }
    }))
}
