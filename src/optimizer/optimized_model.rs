//! What optimising a model yields: it runs, is written, and says why it is what it is.

use super::optimizing;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::explain::{self, Asked, Explanation, WhyNot};
#[cfg(feature = "cli")]
use crate::kernel_times::{KernelTime, Timed, interleave};
use crate::model::{Model, TensorInfo};
use crate::pipeline::options::Options;
use crate::pipeline::report::Report;
use crate::session::Session;
use crate::stack::with_room;
use crate::{model, names, onnx_target, pipeline, show};
use mlc_dsl::shown;
#[cfg(feature = "cli")]
use mlc_extract::{CostModel, Size};
use mlc_onnx::{ExternalData, ModelInfo, RawModel, write_onnx_with};
#[cfg(feature = "cli")]
use mlc_verify::random_inputs;
use std::borrow::Cow;
use std::fmt;
use std::path::Path;
#[cfg(feature = "cli")]
use std::time::Duration;

/// Runs whose kernels are timed, at least and at most, and what ends those between.
#[cfg(feature = "cli")]
const WATCHED: (usize, usize) = (3, 50);
#[cfg(feature = "cli")]
const WATCHING: Duration = Duration::from_secs(1);

/// An optimised model: to be run, written, and asked why.
pub struct OptimizedModel {
    pub(super) model: Model,
    pub(super) result: pipeline::Optimized,
    pub(super) options: Options,
    pub(super) raw: Option<RawModel>,
    pub(super) info: ModelInfo,
    pub(super) opset: i64,
    pub(super) device: Device,
}

impl OptimizedModel {
    /// What happened: costs, nodes, bytes before and after, laws, the self-check, seconds of each stage.
    pub fn report(&self) -> &Report {
        &self.result.report
    }

    /// True if nothing better was found than the model as it was read.
    pub fn is_as_read(&self) -> bool {
        self.result.is_kept()
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> Vec<TensorInfo> {
        model::inputs(&self.result.program)
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> Vec<TensorInfo> {
        model::outputs(&self.result.program)
    }

    /// Makes the result ready to run here, with the threads and the memory of the optimiser.
    ///
    /// If the data of a run decide what the model is, its parts are optimised when they are first run.
    ///
    /// # Errors
    /// A run would take more memory than it may.
    pub fn session(&self) -> Result<Session, Error> {
        self.session_on(&self.device)
    }

    /// The same on another device, or with other limits.
    ///
    /// # Errors
    /// A run would take more memory than the device may.
    pub fn session_on(&self, device: &Device) -> Result<Session, Error> {
        if self.model.keeps_nodes() {
            return self
                .model
                .session_of_data(device, optimizing(&self.model, device, &self.options)?);
        }
        if self.result.source.inputs.len() != self.model.program.inputs.len() {
            let message = "the recurrences of the result are nodes of an ONNX runtime";
            return Err(Error::new(ErrorKind::Setting, message).with_help(
                "optimise for the target `cpu` to run the result here, or run the model as it is",
            ));
        }
        if device.runs(&self.model.library, &self.options.target) {
            let session =
                with_room(|| Session::new(&self.result.plan, &self.model.library, device));
            return Ok(session?.with_defaults(&self.model));
        }
        let program = &self.result.program;
        let session = with_room(|| Session::of_program(program, &self.model.library, device))?;
        Ok(session.with_defaults(&self.model))
    }

    /// Writes the result as an ONNX file, `-` for standard output. The file takes its name when it is complete; it may be
    /// the one that the model was read from. Weights of more than 1 GiB go to a data file beside it.
    ///
    /// # Errors
    /// An operator cannot be written, or the file.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.write_with(path, ExternalData::default())
    }

    /// The same with a say in when weights go to a data file.
    ///
    /// # Errors
    /// An operator cannot be written, or the file.
    pub fn write_with(&self, path: impl AsRef<Path>, weights: ExternalData) -> Result<(), Error> {
        Ok(write_onnx_with(&*self.as_onnx()?, path, weights)?)
    }

    /// The result as the bytes of an ONNX file that holds its weights, for a runtime in this process.
    ///
    /// # Errors
    /// An operator cannot be written, or the file would have 2 GiB or more.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        Ok(mlc_onnx::to_bytes(&*self.as_onnx()?)?)
    }

    fn as_onnx(&self) -> Result<Cow<'_, RawModel>, Error> {
        if let Some(raw) = &self.raw {
            return Ok(Cow::Borrowed(raw));
        }
        let (program, library) = (&self.result.program, &self.model.library);
        let raw = with_room(|| onnx_target::written(program, library, &self.info, self.opset))?;
        Ok(Cow::Owned(raw))
    }

    /// Says why a law did not fire, or why the result is without an operator; `name` is that of a law, a layer, an operator
    /// of ONNX or a kernel of the target. Where blocks repeat, one of them is looked at.
    ///
    /// # Errors
    /// Nothing has that name.
    pub fn why_not(&self, name: &str) -> Result<WhyNot, Error> {
        self.why_not_at(name, None)
    }

    /// The same of one node of the model.
    pub(crate) fn why_not_at(&self, name: &str, node: Option<&str>) -> Result<WhyNot, Error> {
        with_room(|| {
            let (library, options) = (&self.model.library, &self.options);
            let prices = pipeline::prices(library, options, &self.result.source)?;
            let calls = mlc_onnx::named(library, self.opset, &options.target, name);
            let asked = (name, calls.as_slice());
            explain::why_not(&self.result, library, &prices, options, asked, node).ok_or_else(
                || {
                    let mut known = names::declared(library);
                    known.extend(library.onnx.iter().map(|o| &*o.name));
                    let message = format!("there is no law and no operator `{}`", shown(name));
                    let help = names::did_you_mean(name, &known, "`mlc-rewrite list` names them");
                    Error::new(ErrorKind::Setting, message).or_help(help)
                },
            )
        })
    }

    /// Says what became of the model's nodes, by which laws, and what that gains.
    ///
    /// # Errors
    /// The model as read cannot be planned.
    pub fn explain(&self) -> Result<Explanation, Error> {
        with_room(|| {
            let (library, options) = (&self.model.library, &self.options);
            explain::explain(&self.result, library, options)
        })
    }

    /// The explanation as one page that a browser opens: the model as it was read and the result side by side, with the laws,
    /// prices and proofs behind every kernel. The file stands alone: it loads nothing and holds no weights.
    ///
    /// # Errors
    /// The model as read cannot be planned.
    pub fn html(&self) -> Result<String, Error> {
        let title = match self.info.graph_name.as_str() {
            "" => "model",
            name => name,
        };
        self.html_of(&Asked { title, measured: None, gains: None, raw: None })
    }

    /// The same of what is known besides.
    pub(crate) fn html_of(&self, asked: &Asked<'_>) -> Result<String, Error> {
        let raw = self.model.raw()?;
        with_room(|| {
            let (library, options) = (&self.model.library, &self.options);
            explain::page(&self.result, library, options, &Asked { raw: raw.as_ref(), ..*asked })
        })
    }

    /// What each kernel of the plan takes by the clock, on inputs that are drawn; nothing of a plan that does not run here.
    #[cfg(feature = "cli")]
    pub(crate) fn kernel_times(&self) -> Result<Option<Vec<KernelTime>>, Error> {
        let (library, plan) = (&self.model.library, &self.result.plan);
        if !self.device.runs(library, &self.options.target) {
            return Ok(None);
        }
        let seed = self.options.seed;
        let inputs = random_inputs::inputs(&plan.program, library, seed);
        let inputs = inputs.ok_or_else(Error::unsized_inputs)?;
        let watcher = self.device.watcher()?;
        let mut timed = [Timed::new(plan, &watcher, library)?];
        interleave(&mut timed, &inputs, WATCHED, WATCHING)?;
        let size = Size::default().with(random_inputs::symbols(&plan.program, library));
        let model = self.cost_model()?;
        Ok(Some(timed[0].kernels(library, &model, &size, watcher.roofline())))
    }

    /// The same, with what each law gains: the model is optimised once more without it, one law after another.
    #[cfg(feature = "cli")]
    pub(crate) fn explain_gains(&self) -> Result<Explanation, Error> {
        let mut explanation = self.explain()?;
        with_room(|| {
            let (library, options) = (&self.model.library, &self.options);
            explain::leave_out(&mut explanation, &self.result.source, library, options)
        })?;
        Ok(explanation)
    }

    /// What of the model each kernel of the plan came from.
    #[cfg(feature = "cli")]
    pub(crate) fn kernel_origins(&self) -> Result<Vec<explain::Origin>, Error> {
        explain::kernel_origins(&self.result, &self.model.library, &self.options)
    }

    /// What kernels are estimated to take.
    #[cfg(feature = "cli")]
    pub(crate) fn cost_model(&self) -> Result<CostModel, Error> {
        let target = pipeline::target(&self.model.library, &self.options.target)?;
        Ok(self.options.costing.model(&target, &self.model.program))
    }

    /// The model as it was read for this result.
    #[cfg(feature = "cli")]
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// The result as a text of the language.
    pub fn text(&self) -> String {
        show::program(&self.result.program, &self.model.library, "model")
    }

    /// What a run of the pipeline yields, stage by stage.
    pub fn result(&self) -> &pipeline::Optimized {
        &self.result
    }
}

impl fmt::Debug for OptimizedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptimizedModel")
            .field("model", &self.model)
            .field("report", &self.result.report)
            .finish_non_exhaustive()
    }
}
