//! Models whose extents, axes or control flow the data of a run decide.
//!
//! Such a model is imported as far as it goes. The values that are asked for next are computed from the inputs of the run,
//! and the model is imported again with the answers, until all is decided: then it is a program like any other, for these
//! inputs. Extents that the model leaves open stay so where no question is about them, and whole numbers that answer one are extents by
//! themselves if they can be: then the program is that of other runs, too. Bodies of loops that ask by themselves are run as models of their
//! own, as often as the loop runs. Sequences and optionals among the inputs are given by their elements.

use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::session::Session;
use crate::stack::with_room;
use control_runs::ControlRun;
#[cfg(feature = "cli")]
use mlc_dsl::ir::Type;
use mlc_dsl::ir::{DType, Extent, Node, NodeKind, Program, Tensor};
use mlc_onnx::import_with_values;
use mlc_onnx::{
    Container, ImportStage, KnownValues, PartialImport, RawDim, RawModel, RawNode, RawValueInfo,
    ValueRequests, import_and_cut,
};
#[cfg(feature = "cli")]
use mlc_onnx::{ImportError, MissingValues};
use std::collections::{BTreeMap, HashMap, HashSet};
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

/// Makes a program ready to run; the flag says that data of a run decided what it is.
pub(crate) type Prepare = dyn Fn(&Program, bool) -> Result<Session, Error> + Send + Sync;

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
}

/// Nodes of a model that wait for what others compute, or a body of one.
pub(crate) struct Part {
    raw: RawModel,
    known: Mutex<Vec<(Key, Arc<Step>)>>,
}

/// Element types and extents of inputs by name; extents that are left open are `None`.
type Types = BTreeMap<String, (DType, Vec<Option<usize>>)>;

/// What decides how a part is imported.
#[derive(Clone, PartialEq)]
struct Key {
    types: Types,
    answers: KnownValues,
    /// True if the elements of inputs decided an answer, not only their extents.
    of_data: bool,
}

/// How far an import comes.
enum Step {
    /// Nowhere while extents are open.
    Closed,
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

/// Programs of a part that are optimised: of what is decided in more ways the next one is not worth the time.
const MOST_OPTIMISED: usize = 4;

/// Nodes of a program that answers questions again in each run, and computes nothing that the rest reads.
const FEW_NODES: usize = 16;

impl DataDependentRuns {
    pub fn new(model: Model, prepare: Box<Prepare>) -> DataDependentRuns {
        DataDependentRuns { context: Context { model, prepare }, whole: OnceLock::new() }
    }

    /// The outputs for these inputs.
    pub fn run(&self, inputs: HashMap<String, Tensor>) -> Result<Vec<(String, Tensor)>, Error> {
        let seen = self.context.model.decided_inputs().to_vec();
        self.context.run(&self.whole()?, inputs, seen, false)
    }

    fn whole(&self) -> Result<Arc<Part>, Error> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole.clone());
        }
        let raw = with_room(|| self.context.model.raw())?.ok_or_else(too_many)?;
        Ok(self.whole.get_or_init(|| Arc::new(Part::new(raw))).clone())
    }
}

impl Context {
    /// The outputs of a part for these inputs, of which those that were `seen` need not be read; `of_data` says that data decided what
    /// the part is.
    pub fn run(
        &self,
        part: &Arc<Part>,
        mut inputs: HashMap<String, Tensor>,
        mut seen: Vec<String>,
        of_data: bool,
    ) -> Result<Vec<(String, Tensor)>, Error> {
        let mut part = part.clone();
        // What is known when the part begins, and now; whether its extents are open.
        let (mut given, mut open) = (KnownValues::default(), true);
        let (mut answers, mut of_data) = (given.clone(), of_data);
        for _ in 0..MOST_PARTS {
            let opened = open.then(|| part.opened(&inputs, &answers, of_data)).flatten();
            let (key, symbols) = match opened {
                Some(opened) => opened,
                None => (Key::closed(&inputs, answers.clone(), of_data), vec![]),
            };
            inputs.extend(symbols.iter().cloned());
            let step = self.step(&part, &key, &inputs)?;
            match &*step {
                Step::Closed => (answers, open) = (given.clone(), false),
                Step::Done(session) => {
                    inputs.retain(|name, _| session.takes(name) || !seen.contains(name));
                    return session.run_tensors(inputs);
                }
                Step::Asks { questions, session } => {
                    let computed = session.as_ref().map(|s| run_with(s, &inputs)).transpose()?;
                    answers.add(questions, tensors(computed.unwrap_or_default()));
                    of_data |= questions.data_dependent;
                }
                Step::Cut { before, passed, questions, controls, rest } => {
                    let mut computed = run_with(before, &inputs)?;
                    answers.add(questions, tensors(computed.split_off(*passed)));
                    of_data |= questions.data_dependent;
                    seen.extend(before.inputs().iter().map(|i| i.name().to_string()));
                    inputs.extend(computed.iter().cloned());
                    for control in controls {
                        computed.extend(control.run(self, &inputs, of_data)?);
                        seen.extend(control.reads());
                    }
                    of_data |= controls.iter().any(ControlRun::is_of_data);
                    inputs.retain(|name, _| rest.reads(name) || !seen.contains(name));
                    seen.extend(computed.iter().map(|(name, _)| name.clone()));
                    inputs.extend(computed.into_iter().filter(|(name, _)| rest.reads(name)));
                    answers.keep_those_of(&rest.raw);
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
        let known = || part.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, step)) = known().iter().find(|(k, _)| k == key) {
            return Ok(step.clone());
        }
        // Only what is new needs room for recursion: a thread for each run would take longer than many models.
        let step = Arc::new(with_room(|| self.imported(part, key, inputs))?);
        let mut known = known();
        if known.len() >= MOST_STEPS {
            known.remove(0);
        }
        known.push((key.clone(), step.clone()));
        Ok(step)
    }

    fn imported(
        &self,
        part: &Part,
        key: &Key,
        inputs: &HashMap<String, Tensor>,
    ) -> Result<Step, Error> {
        if key.is_open() {
            return self.imported_open(part, key);
        }
        let mut raw = part.raw.clone();
        enter_shapes(&mut raw, inputs);
        unpack(&mut raw, inputs);
        let imported = import_and_cut(&raw, self.model.library(), &key.answers);
        let of_data = key.of_data || part.is_decided_often();
        Ok(match imported.map_err(|e| self.model.refused(e))? {
            PartialImport::Whole(ImportStage::Done(imported)) => {
                Step::Done((self.prepare)(&imported.program, of_data)?)
            }
            PartialImport::Whole(ImportStage::NeedsValues(asked)) => {
                let asks = !asked.program.outputs.is_empty();
                let session = asks.then(|| (self.prepare)(&asked.program, true)).transpose()?;
                Step::Asks { questions: asked.requests, session }
            }
            PartialImport::Cut(cut) => Step::Cut {
                before: (self.prepare)(&cut.program, of_data)?,
                passed: cut.passed,
                questions: cut.requests,
                controls: cut.controls.into_iter().map(ControlRun::new).collect(),
                rest: Arc::new(Part::new(cut.rest)),
            },
        })
    }

    /// The same with extents left open, as far as no question is about them.
    fn imported_open(&self, part: &Part, key: &Key) -> Result<Step, Error> {
        let mut raw = part.raw.clone();
        raw.graph.inputs.extend(key.answers.symbols().map(symbol_input));
        let library = self.model.library();
        Ok(match import_with_values(&raw, library, &key.answers) {
            Ok(ImportStage::Done(imported)) => {
                Step::Done((self.prepare)(&imported.program, part.is_decided_often())?)
            }
            Ok(ImportStage::NeedsValues(asked))
                if asked.requests.data_dependent
                    && is_short(&asked.program)
                    && is_bound(&asked.program) =>
            {
                let session = Some((self.prepare)(&asked.program, true)?);
                Step::Asks { questions: asked.requests, session }
            }
            Ok(ImportStage::NeedsValues(asked)) if asked.requests.data_dependent => {
                match import_and_cut(&raw, library, &key.answers) {
                    Ok(PartialImport::Cut(cut))
                        if cut.controls.is_empty() && is_bound(&cut.program) =>
                    {
                        Step::Cut {
                            before: (self.prepare)(&cut.program, part.is_decided_often())?,
                            passed: cut.passed,
                            questions: cut.requests,
                            controls: vec![],
                            rest: Arc::new(Part::new(cut.rest)),
                        }
                    }
                    Ok(PartialImport::Cut(_) | PartialImport::Whole(_)) | Err(_) => Step::Closed,
                }
            }
            Ok(ImportStage::NeedsValues(_)) | Err(_) => Step::Closed,
        })
    }
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
    let applied = program.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Apply(..)));
    !program.outputs.is_empty() && applied.count() <= FEW_NODES
}

/// Runs on what a session takes of some values.
fn run_with(
    session: &Session,
    values: &HashMap<String, Tensor>,
) -> Result<Vec<(String, Tensor)>, Error> {
    let given = values.iter().filter(|(name, _)| session.takes(name));
    session.run_tensors(given.map(|(name, t)| (name.clone(), t.clone())).collect())
}

fn tensors(named: Vec<(String, Tensor)>) -> Vec<Tensor> {
    named.into_iter().map(|(_, t)| t).collect()
}

impl Part {
    pub fn new(raw: RawModel) -> Part {
        Part { raw, known: Mutex::default() }
    }

    /// What it is given.
    pub fn inputs(&self) -> &[RawValueInfo] {
        &self.raw.graph.inputs
    }

    /// True if it was made ready in several ways already.
    fn is_decided_often(&self) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter(|(_, s)| matches!(**s, Step::Done(_))).count() >= MOST_OPTIMISED
    }

    /// What decides how the part is imported with the extents open that are declared so, and answers that may be extents; and inputs that say
    /// what these are. None if no extent is open, or not all inputs are declared.
    fn opened(
        &self,
        inputs: &HashMap<String, Tensor>,
        answers: &KnownValues,
        of_data: bool,
    ) -> Option<(Key, Vec<(String, Tensor)>)> {
        let types = self.open_types(inputs);
        let (answers, symbols) = answers.opened();
        let key = Key { types: types?, answers, of_data };
        if !key.is_open() {
            return None;
        }
        let tensor = |(name, n): (String, usize)| {
            let none = Tensor::new(DType::Bool, vec![n, 0], bytes::Bytes::new());
            Some((name, none.ok()?))
        };
        Some((key, symbols.into_iter().map(tensor).collect::<Option<_>>()?))
    }

    /// The types of inputs with the extents open that are declared so. None if the inputs do not fit: what they are then
    /// is found out for their extents.
    fn open_types(&self, inputs: &HashMap<String, Tensor>) -> Option<Types> {
        let mut symbols: HashMap<&str, usize> = HashMap::new();
        let mut types = Types::new();
        for input in &self.raw.graph.inputs {
            let (dims, tensor) = (input.dims.as_ref()?, inputs.get(&input.name)?);
            let fits = input.containers.is_empty()
                && dims.len() == tensor.shape().len()
                && input.dtype.is_none_or(|d| d == tensor.dtype());
            let mut shape = Vec::with_capacity(dims.len());
            for (dim, &n) in dims.iter().zip(tensor.shape()) {
                let same = match dim {
                    RawDim::Symbol(s) => *symbols.entry(s).or_insert(n) == n,
                    RawDim::Known(declared) => *declared == n as u64,
                    RawDim::Unknown => false,
                };
                if !(fits && same) {
                    return None;
                }
                let is_open = matches!(dim, RawDim::Symbol(_));
                shape.push((!is_open).then_some(n));
            }
            types.insert(input.name.clone(), (tensor.dtype(), shape));
        }
        (inputs.len() == types.len()).then_some(types)
    }

    /// True if an input, or an element of one, has this name.
    fn reads(&self, name: &str) -> bool {
        let own = |i: &RawValueInfo| {
            name.strip_prefix(i.name.as_str()).is_some_and(|element| {
                element.is_empty() || !i.containers.is_empty() && element.starts_with('[')
            })
        };
        self.raw.graph.inputs.iter().chain(&self.raw.graph.defaults).any(own)
    }
}

impl Key {
    /// Of inputs with all their extents.
    fn closed(inputs: &HashMap<String, Tensor>, answers: KnownValues, of_data: bool) -> Key {
        let ty = |t: &Tensor| (t.dtype(), t.shape().iter().map(|&n| Some(n)).collect());
        Key { types: inputs.iter().map(|(n, t)| (n.clone(), ty(t))).collect(), answers, of_data }
    }

    /// True if an extent is open.
    fn is_open(&self) -> bool {
        let types = self.types.values().any(|(_, shape)| shape.contains(&None));
        types || self.answers.symbols().next().is_some()
    }
}

mod control_runs;
#[cfg(test)]
mod tests;
