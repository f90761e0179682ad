//! Sessions: a compiled plan, with inputs and outputs by name.

use crate::device::{Device, constants};
use crate::error::{Error, ErrorKind};
use crate::model::{self, Model, TensorInfo};
use crate::pipeline::report::Report;
use crate::stack::with_room;
use crate::{names, pipeline};
use data_dependent::{DataDependentRuns, Prepare};
use mlc_backends::arrays::{AnyArray, Element};
use mlc_backends::ndarray::{CowArray, IxDyn};
use mlc_backends::{Allocated, Executable};
use mlc_dsl::ir::{DType, Program, Tensor, Type};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_dsl::shown;
use mlc_extract::resources::{Symbols, symbols_of};
use mlc_onnx::RawValueInfo;
use saved::SavedSession;
use std::collections::HashMap;
use std::fmt;
use std::ops::Index;
use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError};

mod binding;
pub(crate) mod data_dependent;
mod of_model;
mod saved;

pub use binding::Binding;

/// A model that is ready to run, any number of times and from several threads at once. Weights are prepared when it is
/// made, buffers are kept from run to run.
pub struct Session {
    runs: Runs,
    device: Device,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    /// Inputs that a run need not give.
    defaults: Vec<(String, Tensor)>,
    /// What optimising it found, where a run decided what it is.
    report: Option<Box<Report>>,
}

/// What runs.
enum Runs {
    Planned(Box<Planned>),
    /// What each run decides anew.
    DataDependent(Box<DataDependentRuns>),
}

/// A compiled plan.
struct Planned {
    executable: Box<dyn Executable>,
    plan: Plan,
    library: Arc<Library>,
    /// Extents that are known to fit into memory.
    afforded: Mutex<Vec<Symbols>>,
    /// Weights are packed: what is read of files is no more than what kernels read there.
    settled: Once,
}

/// Extents that are remembered.
const REMEMBERED: usize = 64;

impl Session {
    pub(crate) fn new(
        plan: &Plan,
        library: &Arc<Library>,
        device: &Device,
    ) -> Result<Session, Error> {
        let is_known = |(_, ty): &(String, Type)| ty.known_shape().is_some();
        let mut afforded = vec![];
        if plan.program.inputs.iter().all(is_known) {
            device.afford(plan, library, &Symbols::new())?;
            afforded.push(Symbols::new());
        }
        let planned = Planned {
            executable: device.backend()?.compile(plan, library.clone())?,
            plan: plan.clone(),
            library: library.clone(),
            afforded: Mutex::new(afforded),
            settled: Once::new(),
        };
        Ok(Session {
            runs: Runs::Planned(Box::new(planned)),
            device: device.clone(),
            inputs: model::inputs(&plan.program),
            outputs: model::outputs(&plan.program),
            defaults: vec![],
            report: None,
        })
    }

    /// The same with the model's values of inputs that a run does not give.
    pub(crate) fn with_defaults(self, model: &Model) -> Session {
        let all = model.info().into_iter().flat_map(|info| &info.defaults);
        let is_input = |name: &String| model.program().inputs.iter().any(|(n, _)| n == name);
        let all = all.map(|(info, tensor)| (info.name.clone(), tensor.clone()));
        Session { defaults: all.filter(|(name, _)| is_input(name)).collect(), ..self }
    }

    /// Writes what the session is made of as a file, from which [`load`](Session::load) makes it again without reading, optimising or checking
    /// a model. The file holds all weights, and takes its name when it is complete.
    ///
    /// # Errors
    /// The data of each run decide the model; the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let Runs::Planned(planned) = &self.runs else {
            let message = "the data of each run decide the model: there is no plan to save";
            return Err(Error::new(ErrorKind::Setting, message)
                .with_help("give what decides it when the model is read (`bind`, `values`)"));
        };
        let parts = (&planned.plan, &*planned.library);
        saved::write(path.as_ref(), parts, &self.defaults, self.device.machine()?)
    }

    /// A session that was [saved](Session::save), on a device like the one that it was made for. Its weights stay in the mapped file as far as
    /// kernels read them there.
    ///
    /// ```
    /// # use mlc_rewrite::{Device, Model, Optimizer, Session, ndarray::array};
    /// # let folder = std::env::temp_dir().join(format!("saved-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).expect("a folder");
    /// # let path = folder.join("model.plan");
    /// let model = Model::from_rules("def twice(x: f32[n]) -> y: f32[n]\n  = x + x\n")?;
    /// Optimizer::new().target("cpu").optimize(&model)?.session()?.save(&path)?;
    ///
    /// let session = Session::load(&path, &Device::cpu().threads(1))?;
    /// let outputs = session.run([("x", array![1.0f32, 2.0])])?;
    /// assert_eq!(outputs.array::<f32>("y")?, array![2.0, 4.0].into_dyn());
    /// # std::fs::remove_dir_all(&folder).expect("it was there");
    /// # Ok::<(), mlc_rewrite::Error>(())
    /// ```
    ///
    /// # Errors
    /// The file cannot be read or is damaged; it was saved by another version, or for a machine with other vectors or another device; a run
    /// would take more memory than the device may.
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Session, Error> {
        let path = path.as_ref();
        with_room(|| {
            let SavedSession { plan, library, defaults } = saved::read(path, device.machine()?)?;
            Ok(Session { defaults, ..Session::new(&plan, &library, device)? })
        })
    }

    /// A model that the data of each run decide.
    pub(crate) fn of_data(model: &Model, device: &Device, prepare: Box<Prepare>) -> Session {
        let declared = |values: &[RawValueInfo], v: &TensorInfo| {
            values.iter().any(|declared| declared.name == v.name())
        };
        let (mut inputs, mut outputs) = (model.inputs(), model.outputs());
        if let Some(info) = model.info() {
            let default = |v: &TensorInfo| info.defaults.iter().any(|(d, _)| d.name == v.name());
            inputs.retain(|v| declared(&info.inputs, v) || default(v));
            outputs.retain(|v| declared(&info.outputs, v));
        }
        let runs = Runs::DataDependent(Box::new(DataDependentRuns::new(model.clone(), prepare)));
        let (device, defaults) = (device.clone(), vec![]);
        Session { runs, device, inputs, outputs, defaults, report: None }.with_defaults(model)
    }

    /// A program as it stands, planned for the device.
    pub(crate) fn of_program(
        program: &Program,
        library: &Arc<Library>,
        device: &Device,
    ) -> Result<Session, Error> {
        let target = pipeline::target(library, &device.target(library)?)?;
        let plan = pipeline::plan(program, library, &target);
        Session::new(&plan?, library, device)
    }

    /// The inputs, in order. If the data of each run decide the model, those that are tensors.
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    /// The outputs, in order. If the data of each run decide the model, those whose type is known before.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.outputs
    }

    /// True if the data of each run decide what the model is: then what a run decided is kept, by the values that decided it.
    pub fn is_decided_by_data(&self) -> bool {
        matches!(self.runs, Runs::DataDependent(_))
    }

    /// Runs once on arrays by name, in any order: `ndarray` arrays of one element type, or an [`AnyArray`] each.
    ///
    /// ```
    /// # use mlc_rewrite::{AnyArray, Model, ndarray::array};
    /// let text = "def picked(x: f32[n, 2], rows: i64[k]) -> f32[k, 2]\n  = gather(x, rows, axis=0)\n";
    /// let session = Model::from_rules(text)?.session()?;
    /// let x = array![[1.0f32, 2.0], [3.0, 4.0]];
    /// let inputs = [("x", AnyArray::from(x)), ("rows", array![1i64, 0, 1].into())];
    /// let outputs = session.run(inputs)?;
    /// let y = outputs.array::<f32>("y")?;
    /// assert_eq!(y, array![[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]].into_dyn());
    /// # Ok::<(), mlc_rewrite::Error>(())
    /// ```
    ///
    /// # Errors
    /// An input is missing, unknown or given twice; its element type or shape does not fit; the run takes too much memory;
    /// an operator fails on these values.
    pub fn run<N: AsRef<str>, A: Into<AnyArray>>(
        &self,
        inputs: impl IntoIterator<Item = (N, A)>,
    ) -> Result<Outputs, Error> {
        let results = self.run_tensors(Session::by_name(inputs)?)?.into_iter();
        Ok(Outputs(results.map(|(name, t)| (name, AnyArray::from(t))).collect()))
    }

    /// Inputs by name.
    fn by_name<N: AsRef<str>, A: Into<AnyArray>>(
        inputs: impl IntoIterator<Item = (N, A)>,
    ) -> Result<HashMap<String, Tensor>, Error> {
        let mut given: HashMap<String, Tensor> = HashMap::new();
        for (name, array) in inputs {
            let name = name.as_ref();
            if given.insert(name.to_string(), array.into().into_tensor()).is_some() {
                let place = format!("input `{}`", shown(name));
                return Err(Error::new(ErrorKind::Input, format!("{place} is given twice"))
                    .at(place)
                    .with_help("give each input once"));
            }
        }
        Ok(given)
    }

    /// The same on tensors.
    pub(crate) fn run_tensors(
        &self,
        mut given: HashMap<String, Tensor>,
    ) -> Result<Vec<(String, Tensor)>, Error> {
        for (name, tensor) in &self.defaults {
            given.entry(name.clone()).or_insert_with(|| tensor.clone());
        }
        let planned = match &self.runs {
            Runs::DataDependent(staged) => return staged.run(given),
            Runs::Planned(planned) => planned,
        };
        let inputs = in_order(&planned.plan.program, given)?;
        let own = self.inputs.iter().zip(&inputs);
        own.into_iter().try_for_each(|(wanted, t)| fits(wanted, t.dtype(), t.shape()))?;
        planned.afford(&self.device, symbols_of(&planned.plan.program, &inputs))?;
        let results = planned.executable.run(&inputs)?;
        planned.settle();
        let names = self.outputs.iter().map(|o| o.name().to_string());
        Ok(names.zip(results).collect())
    }

    /// The inputs that a run takes, by name.
    pub(crate) fn takes(&self, name: &str) -> bool {
        self.inputs.iter().any(|i| i.name() == name)
    }

    /// The same with what optimising it found.
    pub(crate) fn with_report(self, report: Report) -> Session {
        Session { report: Some(Box::new(report)), ..self }
    }

    /// What optimising it found, where a run decided what it is.
    pub(crate) fn report(&self) -> Option<&Report> {
        self.report.as_deref()
    }

    /// If the data of each run decide the model: what optimising its parts found so far, in the order in which runs met them. Each is
    /// optimised and checked once, when it is first met.
    ///
    /// ```
    /// # use mlc_rewrite::{Model, Optimizer, ndarray::array};
    /// let text = "def twice(x: f32[n]) -> y: f32[n]\n  = x + x\n";
    /// let session = Optimizer::new().optimize(&Model::from_rules(text)?)?.session()?;
    /// session.run([("x", array![1.0f32, 2.0])])?;
    /// assert!(session.reports_of_runs().is_empty(), "the data decide nothing");
    /// # Ok::<(), mlc_rewrite::Error>(())
    /// ```
    pub fn reports_of_runs(&self) -> Vec<Report> {
        match &self.runs {
            Runs::DataDependent(staged) => staged.reports(),
            Runs::Planned(_) => vec![],
        }
    }

    /// The buffers of all runs so far; `None` if the device does not keep any, or the data of each run decide the model.
    pub fn allocated(&self) -> Option<Allocated> {
        match &self.runs {
            Runs::Planned(planned) => planned.executable.allocated(),
            Runs::DataDependent(_) => None,
        }
    }
}

impl Planned {
    /// After the first run, gives back the pages of files that only reading, optimising and packing have touched, and what optimising has freed.
    fn settle(&self) {
        self.settled.call_once(|| {
            mlc_files::give_back_pages();
            mlc_backends::memory::give_back_freed();
        });
    }

    /// Refuses extents that take more memory than there is. What is there for larger extents is there for these, so that a length that grows
    /// from run to run is looked at seldom.
    fn afford(&self, device: &Device, symbols: Symbols) -> Result<(), Error> {
        let known = || self.afforded.lock().unwrap_or_else(PoisonError::into_inner);
        let covers = |larger: &Symbols| {
            larger.len() == symbols.len()
                && symbols.iter().all(|(s, n)| larger.get(s).is_some_and(|most| n <= most))
        };
        if known().iter().any(covers) {
            return Ok(());
        }
        // What other extents hold is given back if it must be; the constants are there already.
        let kept = || self.executable.allocated().map_or(0, |a| a.arena + a.results);
        let held = if device.is_elsewhere() { kept() + constants(&self.plan) } else { 0 };
        let afford = |extents: &Symbols| {
            device.afford_beside(&device.needs(&self.plan, &self.library, extents), held)
        };
        // One answer for much larger extents holds for many runs.
        let grown = |by: u64| -> Symbols {
            let power = |n: &i64| n.unsigned_abs().next_power_of_two().checked_mul(by);
            let up = |n: &i64| power(n).and_then(|p| p.try_into().ok()).unwrap_or(*n);
            symbols.iter().map(|(s, n)| (s.clone(), up(n))).collect()
        };
        let above = [8, 1].into_iter().map(grown).find(|larger| afford(larger).is_ok());
        let afforded = match above {
            Some(larger) => larger,
            None => {
                afford(&symbols)?;
                symbols.clone()
            }
        };
        let mut known = known();
        if known.len() >= REMEMBERED {
            known.remove(0);
        }
        known.push(afforded);
        Ok(())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("device", &self.device)
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

/// The inputs of a program in its order, from tensors by name.
///
/// # Errors
/// A name that the program does not have, or one of its inputs is missing.
pub fn in_order(
    program: &Program,
    mut given: HashMap<String, Tensor>,
) -> Result<Vec<Tensor>, Error> {
    let found: Vec<_> = program.inputs.iter().map(|(name, _)| given.remove(name)).collect();
    if let Some(name) = given.keys().min() {
        return Err(unknown_input(name, &model::input_names(program)));
    }
    let read = |((name, ty), t): (&(String, Type), Option<Tensor>)| match t {
        Some(t) => Ok(t.with_codes_read(ty.dtype)),
        None => Err(missing(name, ty)),
    };
    program.inputs.iter().zip(found).map(read).collect()
}

/// The error of an input that a run is not given.
fn missing(name: &str, ty: &Type) -> Error {
    let place = format!("input `{}`", shown(name));
    let error = Error::new(ErrorKind::Input, format!("{place} is missing"));
    error.at(place).with_help(format!("it is {ty}"))
}

/// The error of a name that is none of a model's inputs.
pub fn unknown_input(name: &str, known: &[&str]) -> Error {
    let near = names::nearest(name, known.iter().copied());
    let meant = near.first().map(|n| format!("did you mean `{n}`? ")).unwrap_or_default();
    let place = format!("input `{}`", shown(name));
    Error::new(ErrorKind::Input, format!("the model has no {place}"))
        .at(place)
        .with_help(format!("{meant}its inputs are {}", known.join(", ")))
}

/// Refuses an element type or shape that an input does not have.
fn fits(wanted: &TensorInfo, dtype: DType, extents: &[usize]) -> Result<(), Error> {
    let wrong = |found: String| {
        let place = format!("input `{}`", shown(wanted.name()));
        let message = format!("{place}: expected {}, found {found}", wanted.ty());
        let open = wanted.ty().shape.iter().any(|e| e.as_const().is_none());
        let more = if open { "; a named extent may be any number" } else { "" };
        let help = format!("give an array of {}{more}", wanted.ty());
        Err(Error::new(ErrorKind::Input, message).at(place).with_help(help))
    };
    let ty = wanted.ty();
    let same = |(e, &n): (&mlc_dsl::ir::Extent, &usize)| e.as_const().is_none_or(|v| v == n as i64);
    let shape = ty.rank() == extents.len() && ty.shape.iter().zip(extents).all(same);
    match (ty.dtype == dtype, shape) {
        (true, true) => Ok(()),
        _ => wrong(Type::known(dtype, extents).to_string()),
    }
}

/// The arrays that a run yields, by name, in the order of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs(Vec<(String, AnyArray)>);

impl Outputs {
    /// The output of a name.
    pub fn get(&self, name: &str) -> Option<&AnyArray> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, a)| a)
    }

    /// The elements of an output as an `ndarray`, where they lie.
    ///
    /// # Errors
    /// There is no such output, or its elements are of another type.
    pub fn array<T: Element>(&self, name: &str) -> Result<CowArray<'_, T, IxDyn>, Error> {
        let place = || format!("output `{}`", shown(name));
        let Some(array) = self.get(name) else {
            let known: Vec<&str> = self.names().collect();
            let help =
                names::did_you_mean(name, &known, &format!("the outputs are {}", known.join(", ")));
            return Err(Error::new(ErrorKind::Output, format!("the model has no {}", place()))
                .at(place())
                .or_help(help));
        };
        array.array().map_err(|e| Error::from(e).at(place()))
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(n, _)| n.as_str())
    }

    /// Names and arrays, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &AnyArray)> {
        self.0.iter().map(|(n, a)| (n.as_str(), a))
    }

    /// Number of outputs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Index<&str> for Outputs {
    type Output = AnyArray;

    /// # Panics
    /// If there is no output of this name; [`Outputs::get`] does not.
    fn index(&self, name: &str) -> &AnyArray {
        self.get(name).unwrap_or_else(|| panic!("the model has no output `{}`", shown(name)))
    }
}

impl IntoIterator for Outputs {
    type Item = (String, AnyArray);
    type IntoIter = std::vec::IntoIter<(String, AnyArray)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
