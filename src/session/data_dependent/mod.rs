//! Models whose extents, axes or control flow the data of a run decide.
//!
//! Such a model is imported as far as it goes. The values that are asked for next are computed from the inputs of the run,
//! and the model is imported again with the answers, until all is decided: then it is a program like any other, for these
//! inputs. Extents that the model leaves open stay so where no question is about them, and whole numbers that answer one are extents by
//! themselves if they can be: then the program is that of other runs, too. Bodies of loops that ask by themselves are run as models of their
//! own, as often as the loop runs. Sequences and optionals among the inputs are given by their elements.

use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::pipeline::report::Report;
use crate::session::Session;
use crate::stack::with_room;
use control_runs::ControlRun;
#[cfg(feature = "cli")]
use mlc_dsl::ir::Type;
use mlc_dsl::ir::{DType, Extent, Node, NodeKind, Program, Tensor};
use mlc_onnx::import_with_values;
use mlc_onnx::{
    Container, ImportStage, KnownValues, ModelCut, PartialImport, RawDim, RawModel, RawNode,
    RawValueInfo, ValueRequests, import_and_cut,
};
#[cfg(feature = "cli")]
use mlc_onnx::{ImportError, MissingValues};
use part::{Key, Part, Place};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Rounds of questions that a model is imported for as a whole.
#[cfg(feature = "cli")]
pub(crate) const MOST_ROUNDS: usize = 256;

/// Parts that one run may come through one after the other.
const MOST_PARTS: usize = 1 << 14;

/// Computes the outputs of a program from inputs in its order.
#[cfg(feature = "cli")]
pub(crate) type Compute<'a> = &'a dyn Fn(&Program, Vec<Tensor>) -> Result<Vec<Tensor>, Error>;

/// The model as it is for the inputs of a run, if it can only be run with these; else as it is. `None` if that takes more
/// than `most` rounds, or a loop is too long to be written out: then it runs in parts.
///
/// # Errors
/// A node cannot be read whatever is computed, or a computation fails.
#[cfg(feature = "cli")]
pub(crate) fn decided(
    model: &Model,
    inputs: &HashMap<String, Tensor>,
    compute: Compute<'_>,
    most: usize,
) -> Result<Option<Model>, Error> {
    if !model.keeps_nodes() {
        return Ok(Some(model.clone()));
    }
    let Some(mut raw) = model.raw()? else { return Ok(Some(model.clone())) };
    enter_shapes(&mut raw, inputs);
    unpack(&mut raw, inputs);
    let mut answers = KnownValues::default();
    for round in 0..=most {
        match import_with_values(&raw, model.library(), &answers) {
            Ok(ImportStage::Done(imported)) => {
                return Ok(Some(model.clone().imported_as(*imported, answers.len())));
            }
            Ok(ImportStage::NeedsValues(_)) if round == most => {}
            Ok(ImportStage::NeedsValues(asked)) => {
                let computed = computed(&asked, inputs, compute)?;
                answers.add(&asked.requests, computed);
            }
            Err(ImportError::TooLong { .. }) => break,
            Err(e) => return Err(model.refused(e)),
        }
    }
    Ok(None)
}

/// The error of a run that does not come to an end.
pub(crate) fn too_many() -> Error {
    let message = format!("the run decides values in more than {MOST_PARTS} rounds");
    Error::new(ErrorKind::Model, message).with_help(
        "what one node computes decides the next one too often: export it as a loop, or give it shorter inputs",
    )
}

/// What the program of some questions computes.
#[cfg(feature = "cli")]
fn computed(
    asked: &MissingValues,
    inputs: &HashMap<String, Tensor>,
    compute: Compute<'_>,
) -> Result<Vec<Tensor>, Error> {
    let program = &asked.program;
    if program.outputs.is_empty() {
        return Ok(vec![]);
    }
    let mut given = Vec::with_capacity(program.inputs.len());
    for (name, ty) in &program.inputs {
        let tensor = inputs.get(name).ok_or_else(|| undecided(&asked.error, name))?;
        if !fits(ty, tensor) {
            let found = Type::known(tensor.dtype(), tensor.shape());
            let message = format!("input `{name}`: expected {ty}, found {found}");
            return Err(Error::new(ErrorKind::Input, message).at(format!("input `{name}`")));
        }
        given.push(tensor.clone());
    }
    compute(program, given)
}

#[cfg(feature = "cli")]
fn undecided(error: &ImportError, missing: &str) -> Error {
    let error = Error::from(error.clone());
    error.with_help(format!("the input `{missing}` decides it: give the inputs of the run"))
}

#[cfg(feature = "cli")]
fn fits(ty: &Type, tensor: &Tensor) -> bool {
    let same = |(e, &n): (&mlc_dsl::ir::Extent, &usize)| e.as_const().is_none_or(|v| v == n as i64);
    ty.dtype == tensor.dtype()
        && ty.rank() == tensor.shape().len()
        && ty.shape.iter().zip(tensor.shape()).all(same)
}

/// Extents that the model leaves open are those of the run; an input with a default is one or a constant.
fn enter_shapes(raw: &mut RawModel, inputs: &HashMap<String, Tensor>) {
    for default in std::mem::take(&mut raw.graph.defaults) {
        if inputs.contains_key(&default.name) {
            raw.graph.initializers.shift_remove(&default.name);
            raw.graph.inputs.push(default);
        }
    }
    for input in raw.graph.inputs.iter_mut().filter(|i| i.containers.is_empty()) {
        let Some(tensor) = inputs.get(&input.name) else { continue };
        input.dtype.get_or_insert(tensor.dtype());
        match &mut input.dims {
            None => input.dims = Some(known(tensor)),
            Some(dims) if dims.len() == tensor.shape().len() => {
                for (d, &n) in dims.iter_mut().zip(tensor.shape()) {
                    if !matches!(d, RawDim::Known(_)) {
                        *d = RawDim::Known(n as u64);
                    }
                }
            }
            Some(_) => {}
        }
    }
}

fn known(tensor: &Tensor) -> Vec<RawDim> {
    tensor.shape().iter().map(|&n| RawDim::Known(n as u64)).collect()
}

/// Makes inputs of the elements of sequences and optionals that a run is given.
fn unpack(raw: &mut RawModel, inputs: &HashMap<String, Tensor>) {
    let mut makers = vec![];
    let mut flat = vec![];
    for input in std::mem::take(&mut raw.graph.inputs) {
        let is_optional = input.containers.first() == Some(&Container::Optional);
        let elements = match input.containers[usize::from(is_optional)..] {
            [] if !is_optional => {
                flat.push(input);
                continue;
            }
            [] => inputs.get_key_value(&input.name).into_iter().collect(),
            [Container::Sequence] => elements(&input.name, inputs),
            _ => {
                flat.push(input);
                continue;
            }
        };
        let info = |(name, t): &(&String, &Tensor)| RawValueInfo {
            name: (*name).clone(),
            dtype: Some(t.dtype()),
            dims: Some(known(t)),
            containers: vec![],
        };
        flat.extend(elements.iter().map(info));
        let op_type = match (is_optional, elements.is_empty()) {
            (true, true) => "Optional",
            (false, true) => "SequenceEmpty",
            // An optional tensor that is there is that tensor.
            (true, false) if input.containers.len() == 1 => continue,
            (_, false) => "SequenceConstruct",
        };
        makers.push(RawNode {
            op_type: op_type.into(),
            inputs: elements.iter().map(|(name, _)| (*name).clone()).collect(),
            outputs: vec![input.name],
            ..RawNode::default()
        });
    }
    raw.graph.inputs = flat;
    makers.append(&mut raw.graph.nodes);
    raw.graph.nodes = makers;
}

/// The elements of a sequence: `name[0]`, `name[1]`, …, as far as there are any.
fn elements<'i>(name: &str, inputs: &'i HashMap<String, Tensor>) -> Vec<(&'i String, &'i Tensor)> {
    (0..).map_while(|i| inputs.get_key_value(&format!("{name}[{i}]"))).collect()
}

/// How a program is to be made ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// As well as can be: it runs again.
    Optimized,
    /// As it is: the next run may decide otherwise, or it is short.
    AsRead,
}

/// Makes a program ready to run.
pub(crate) type Prepare = dyn Fn(&Program, Readiness) -> Result<Session, Error> + Send + Sync;

/// Runs a model whose data decide it, in parts: each ends where nodes ask for what the parts before it compute. What was
/// imported and compiled is kept, by the extents of the inputs of a part and the values that decided it.
pub(crate) struct DataDependentRuns {
    context: Context,
    whole: OnceLock<Arc<Part>>,
}

/// What parts of a model are made by.
pub(crate) struct Context {
    model: Model,
    prepare: Box<Prepare>,
    /// How often parts that begin at a place were optimised.
    optimized: Mutex<BTreeMap<Place, usize>>,
    /// What optimising them found.
    reports: Mutex<Vec<Report>>,
}

/// What a part yields.
pub(crate) struct Yielded {
    pub values: Vec<(String, Tensor)>,
    /// True if elements of inputs decided extents, which another run decides otherwise.
    pub is_volatile: bool,
}

/// How far an import comes.
enum Step {
    /// Nowhere while extents are open.
    Closed,
    /// Nowhere while these are open.
    Closes(BTreeSet<String>),
    /// To questions that extents decide; `None` where the answers are known.
    Asks {
        questions: ValueRequests,
        session: Option<Session>,
    },
    /// What comes before the nodes that wait, and the rest.
    Cut {
        before: Session,
        passed: usize,
        questions: ValueRequests,
        controls: Vec<ControlRun>,
        rest: Arc<Part>,
    },
    Done(Session),
}

/// Steps of a part that are kept.
const MOST_STEPS: usize = 64;

/// Programs that are optimised for one place of a model: of what is decided in more ways the next one is not worth the time.
const MOST_OPTIMISED: usize = 4;

/// Nodes of a program that answers questions again in each run, and computes nothing that the rest reads.
const FEW_NODES: usize = 16;

impl DataDependentRuns {
    pub fn new(model: Model, prepare: Box<Prepare>) -> DataDependentRuns {
        let (optimized, reports) = (Mutex::default(), Mutex::default());
        let context = Context { model, prepare, optimized, reports };
        DataDependentRuns { context, whole: OnceLock::new() }
    }

    /// The outputs for these inputs.
    pub fn run(&self, inputs: HashMap<String, Tensor>) -> Result<Vec<(String, Tensor)>, Error> {
        let seen = self.context.model.decided_inputs().to_vec();
        Ok(self.context.run(&self.whole()?, inputs, seen, false)?.values)
    }

    /// What optimising its parts found so far.
    pub fn reports(&self) -> Vec<Report> {
        self.context.reports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn whole(&self) -> Result<Arc<Part>, Error> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole.clone());
        }
        let raw = with_room(|| self.context.model.raw())?.ok_or_else(too_many)?;
        Ok(self.whole.get_or_init(|| Arc::new(Part::new(raw, "".into()))).clone())
    }
}

impl Context {
    /// The outputs of a part for these inputs, of which those that were `seen` need not be read; `is_volatile` says that data decided their
    /// extents.
    pub fn run(
        &self,
        part: &Arc<Part>,
        mut inputs: HashMap<String, Tensor>,
        mut seen: Vec<String>,
        mut is_volatile: bool,
    ) -> Result<Yielded, Error> {
        let mut part = part.clone();
        // What is known when the part begins, and now; whether extents are open.
        let (mut given, mut open) = (KnownValues::default(), true);
        let mut answers = given.clone();
        for _ in 0..MOST_PARTS {
            let opened = || part.opened(&inputs, &answers, is_volatile);
            let (key, symbols) = match open.then(opened).flatten() {
                Some(opened) => opened,
                None => (Key::closed(&inputs, answers.clone(), is_volatile), vec![]),
            };
            inputs.extend(symbols.iter().cloned());
            let step = self.step(&part, &key, &inputs)?;
            match &*step {
                Step::Closed => (answers, open) = (given.clone(), false),
                Step::Closes(symbols) => {
                    part.close(symbols);
                    answers = given.clone();
                }
                Step::Done(session) => {
                    inputs.retain(|name, _| session.takes(name) || !seen.contains(name));
                    return Ok(Yielded { values: session.run_tensors(inputs)?, is_volatile });
                }
                Step::Asks { questions, session } => {
                    let computed = session.as_ref().map(|s| run_with(s, &inputs)).transpose()?;
                    let computed = owned(computed.unwrap_or_default());
                    is_volatile |= questions.data_dependent && are_many(&computed);
                    answers.add(questions, computed);
                }
                Step::Cut { before, passed, questions, controls, rest } => {
                    let mut computed = run_with(before, &inputs)?;
                    let answered = owned(computed.split_off(*passed));
                    is_volatile |= questions.data_dependent && are_many(&answered);
                    answers.add(questions, answered);
                    seen.extend(before.inputs().iter().map(|i| i.name().to_string()));
                    inputs.extend(computed.iter().cloned());
                    for control in controls {
                        let yielded = control.run(self, &inputs, is_volatile)?;
                        is_volatile |= yielded.is_volatile;
                        computed.extend(yielded.values);
                        seen.extend(control.reads());
                    }
                    inputs.retain(|name, _| rest.reads(name) || !seen.contains(name));
                    seen.extend(computed.iter().map(|(name, _)| name.clone()));
                    inputs.extend(computed.into_iter().filter(|(name, _)| rest.reads(name)));
                    answers.keep_those_of(rest.raw());
                    (part, given, open) = (rest.clone(), answers.clone(), true);
                }
            }
            symbols.iter().for_each(|(name, _)| drop(inputs.remove(name)));
        }
        Err(too_many())
    }

    /// How far a part is imported with what is known of a run.
    fn step(
        &self,
        part: &Part,
        key: &Key,
        inputs: &HashMap<String, Tensor>,
    ) -> Result<Arc<Step>, Error> {
        if let Some(step) = part.step(key) {
            return Ok(step);
        }
        // Only what is new needs room for recursion: a thread for each run would take longer than many models.
        let step = Arc::new(with_room(|| match key.is_open() {
            true => self.imported_open(part, key),
            false => self.imported(part, key, inputs),
        })?);
        part.keep(key.clone(), step.clone());
        Ok(step)
    }

    /// Makes a program of a part ready: optimised, unless it computes nothing, data decide its extents, or the part has many programs.
    fn prepare(&self, part: &Part, program: &Program, is_volatile: bool) -> Result<Session, Error> {
        let computes = operations(program) > 0;
        let readiness = match computes && !is_volatile && self.is_worth_optimizing(part) {
            true => Readiness::Optimized,
            false => Readiness::AsRead,
        };
        let session = (self.prepare)(program, readiness)?;
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.extend(session.report().cloned());
        Ok(session)
    }

    /// Makes a program ready that only answers questions.
    fn asking(&self, program: &Program) -> Result<Session, Error> {
        (self.prepare)(program, Readiness::AsRead)
    }

    /// True if few programs that begin where the part does were optimised; this is one more.
    fn is_worth_optimizing(&self, part: &Part) -> bool {
        let mut optimized = self.optimized.lock().unwrap_or_else(PoisonError::into_inner);
        let times = optimized.entry(part.place().clone()).or_default();
        let is_worth = *times < MOST_OPTIMISED;
        *times += usize::from(is_worth);
        is_worth
    }

    fn imported(
        &self,
        part: &Part,
        key: &Key,
        inputs: &HashMap<String, Tensor>,
    ) -> Result<Step, Error> {
        let mut raw = part.raw().clone();
        enter_shapes(&mut raw, inputs);
        unpack(&mut raw, inputs);
        let imported = import_and_cut(&raw, self.model.library(), &key.answers);
        Ok(match imported.map_err(|e| self.model.refused(e))? {
            PartialImport::Whole(ImportStage::Done(imported)) => {
                Step::Done(self.prepare(part, &imported.program, key.is_volatile)?)
            }
            PartialImport::Whole(ImportStage::NeedsValues(asked)) => {
                let asks = !asked.program.outputs.is_empty();
                let session = asks.then(|| self.asking(&asked.program)).transpose()?;
                Step::Asks { questions: asked.requests, session }
            }
            PartialImport::Cut(cut) => self.cut(part, *cut, key.is_volatile)?,
        })
    }

    /// The same with extents left open, as far as no question is about them.
    fn imported_open(&self, part: &Part, key: &Key) -> Result<Step, Error> {
        let mut raw = part.with_extents_of(key);
        raw.graph.inputs.extend(key.answers.symbols().map(symbol_input));
        let library = self.model.library();
        Ok(match import_with_values(&raw, library, &key.answers) {
            Ok(ImportStage::Done(imported)) => {
                Step::Done(self.prepare(part, &imported.program, false)?)
            }
            Ok(ImportStage::NeedsValues(asked)) if !asked.requests.data_dependent => {
                closing(&asked.program, &part.open_symbols(key))
            }
            Ok(ImportStage::NeedsValues(asked))
                if is_short(&asked.program) && is_bound(&asked.program) =>
            {
                let session = Some(self.asking(&asked.program)?);
                Step::Asks { questions: asked.requests, session }
            }
            Ok(ImportStage::NeedsValues(_)) => match import_and_cut(&raw, library, &key.answers) {
                Ok(PartialImport::Cut(cut))
                    if cut.controls.is_empty() && is_bound(&cut.program) =>
                {
                    self.cut(part, *cut, false)?
                }
                Ok(PartialImport::Cut(_) | PartialImport::Whole(_)) | Err(_) => Step::Closed,
            },
            Err(_) => Step::Closed,
        })
    }

    /// A part in two.
    fn cut(&self, part: &Part, cut: ModelCut, is_volatile: bool) -> Result<Step, Error> {
        Ok(Step::Cut {
            before: self.prepare(part, &cut.program, is_volatile)?,
            passed: cut.passed,
            questions: cut.requests,
            controls: cut.controls.into_iter().map(|c| ControlRun::new(c, part)).collect(),
            rest: part.rest(cut.rest),
        })
    }
}

/// How an import goes on that asks for what extents decide: without those that the questions are about.
fn closing(asked: &Program, open: &BTreeSet<&str>) -> Step {
    let nodes = asked.nodes.iter().filter(|n| !matches!(n.kind, NodeKind::Input(_)));
    let symbols: BTreeSet<String> = nodes.flat_map(Node::symbols).map(|s| s.to_string()).collect();
    match !symbols.is_empty() && symbols.iter().all(|s| open.contains(s.as_str())) {
        true => Step::Closes(symbols),
        false => Step::Closed,
    }
}

/// True if answers that data decide are more than conditions: each run may have others.
fn are_many(answers: &[Tensor]) -> bool {
    answers.iter().any(|t| t.dtype() != DType::Bool)
}

/// An input without elements whose first extent is that of a symbol.
fn symbol_input(symbol: &str) -> RawValueInfo {
    let dims = Some(vec![RawDim::Symbol(symbol.into()), RawDim::Known(0)]);
    RawValueInfo { name: symbol.into(), dtype: Some(DType::Bool), dims, containers: vec![] }
}

/// True if the shapes of its inputs say what all symbols of a program are: inputs that it does not read are not its own.
fn is_bound(program: &Program) -> bool {
    let bound: HashSet<&Extent> = program.inputs.iter().flat_map(|(_, ty)| &ty.shape).collect();
    let mut symbols = program.nodes.iter().flat_map(Node::symbols);
    symbols.all(|s| bound.contains(&Extent::sym(&s)))
}

/// True if a program has few nodes.
fn is_short(program: &Program) -> bool {
    !program.outputs.is_empty() && operations(program) <= FEW_NODES
}

/// The nodes of a program that compute something.
fn operations(program: &Program) -> usize {
    program.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Apply(..))).count()
}

/// Runs on what a session takes of some values.
fn run_with(
    session: &Session,
    values: &HashMap<String, Tensor>,
) -> Result<Vec<(String, Tensor)>, Error> {
    let given = values.iter().filter(|(name, _)| session.takes(name));
    session.run_tensors(given.map(|(name, t)| (name.clone(), t.clone())).collect())
}

/// Answers, which are kept longer than the inputs of a run: in memory of their own.
fn owned(named: Vec<(String, Tensor)>) -> Vec<Tensor> {
    let own = |t: Tensor| {
        let bytes = bytes::Bytes::copy_from_slice(t.bytes());
        Tensor::new(t.dtype(), t.shape().to_vec(), bytes).unwrap_or(t)
    };
    named.into_iter().map(|(_, t)| own(t)).collect()
}

mod control_runs;
mod part;
#[cfg(test)]
mod tests;
