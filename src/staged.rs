//! Models whose extents, axes or control flow the data of a run decide.
//!
//! Such a model is imported as far as it goes. The value that is asked for next is computed from the inputs of the run,
//! and the model is imported again with the answer, until all is decided: then it is a program like any other, for these
//! inputs. Sequences and optionals among the inputs are given by their elements.

use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::session::Session;
use mlc_dsl::ir::{NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::shape_values::MAX_ELEMENTS;
use mlc_onnx::{
    Answers, Asked, Container, ImportError, Part as Imports, RawDim, RawModel, RawNode,
    RawValueInfo, Stage, import_part,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Values that one run may compute before the model is known.
const MAX_STAGES: usize = 256;

/// Computes the outputs of a program from inputs in its order.
pub(crate) type Compute<'a> = &'a dyn Fn(&Program, Vec<Tensor>) -> Result<Vec<Tensor>, Error>;

/// The model as it is for the inputs of a run, if it can only be run with these; else as it is.
///
/// # Errors
/// A node cannot be read whatever is computed, a computation fails, or there are too many.
#[cfg(feature = "cli")]
pub(crate) fn decided(
    model: Model,
    inputs: &HashMap<String, Tensor>,
    compute: Compute<'_>,
) -> Result<Model, Error> {
    if !model.keeps_nodes() {
        return Ok(model);
    }
    let Some(mut raw) = model.raw()? else { return Ok(model) };
    enter_shapes(&mut raw, inputs);
    unpack(&mut raw, inputs);
    let mut answers = Answers::default();
    for stage in 0..=MAX_STAGES {
        match mlc_onnx::import_stage(&raw, model.library(), &answers)
            .map_err(|e| model.refused(e))?
        {
            Stage::Done(imported) => return Ok(model.imported_as(*imported, stage)),
            Stage::Asks(_) if stage == MAX_STAGES => break,
            Stage::Asks(asked) => {
                let answer = answer(&asked, inputs, compute)?;
                answers.add(&asked, answer);
            }
        }
    }
    Err(too_many())
}

fn too_many() -> Error {
    let message = format!("the run decides more than {MAX_STAGES} values one after the other");
    Error::new(ErrorKind::Model, message).with_help(
        "a loop whose condition is computed runs too often: give it a number of repetitions, or shorter inputs",
    )
}

/// The value that is asked for; `None` if it is too large to decide anything.
fn answer(
    asked: &Asked,
    inputs: &HashMap<String, Tensor>,
    compute: Compute<'_>,
) -> Result<Option<Tensor>, Error> {
    let program = &asked.program;
    let Some((_, value)) = program.outputs.first() else { return Ok(None) };
    let shape = program.ty(*value).known_shape();
    if shape.is_some_and(|shape| shape.iter().product::<usize>() > MAX_ELEMENTS) {
        return Ok(None);
    }
    if let Some(tensor) = program.as_const(*value) {
        return Ok(Some(tensor.clone()));
    }
    if let NodeKind::Input(i) = program.node(value.node).kind {
        let name = &program.inputs[i as usize].0;
        return inputs.get(name).cloned().map(Some).ok_or_else(|| undecided(&asked.error, name));
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
    Ok(compute(program, given)?.pop().filter(|t| t.len() <= MAX_ELEMENTS))
}

fn undecided(error: &ImportError, missing: &str) -> Error {
    let error = Error::from(error.clone());
    error.with_help(format!("the input `{missing}` decides it: give the inputs of the run"))
}

fn fits(ty: &Type, tensor: &Tensor) -> bool {
    let same = |(e, &n): (&mlc_dsl::ir::Extent, &usize)| e.as_const().is_none_or(|v| v == n as i64);
    ty.dtype == tensor.dtype()
        && ty.rank() == tensor.shape().len()
        && ty.shape.iter().zip(tensor.shape()).all(same)
}

/// Extents that the model leaves open are those of the run.
fn enter_shapes(raw: &mut RawModel, inputs: &HashMap<String, Tensor>) {
    for input in raw.graph.inputs.iter_mut().filter(|i| i.containers.is_empty()) {
        let Some(tensor) = inputs.get(&input.name) else { continue };
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

/// Runs a model whose data decide it, in parts: each ends where a node asks for what the parts before it compute. What was
/// imported and compiled is kept, by the extents of the inputs of a part and the values that decided it.
pub(crate) struct StagedRuns {
    model: Model,
    prepare: Box<Prepare>,
    whole: OnceLock<Arc<Part>>,
}

/// Nodes of a model, from one that asked to the end.
struct Part {
    raw: RawModel,
    known: Mutex<Vec<(Key, Arc<Step>)>>,
}

/// What decides how a part is imported.
#[derive(Clone, PartialEq)]
struct Key {
    extents: BTreeMap<String, Vec<usize>>,
    answers: Answers,
    /// True if the elements of inputs decided an answer, not only their extents.
    of_data: bool,
}

/// How far an import comes.
enum Step {
    Asks {
        asked: Box<Asked>,
        session: Session,
    },
    /// What comes before a node that asks, and the rest.
    Cut {
        before: Session,
        rest: Arc<Part>,
    },
    Done(Session),
}

/// Steps of a part that are kept.
const MOST_STEPS: usize = 64;

impl StagedRuns {
    pub fn new(model: Model, prepare: Box<Prepare>) -> StagedRuns {
        StagedRuns { model, prepare, whole: OnceLock::new() }
    }

    /// The outputs for these inputs.
    pub fn run(&self, mut inputs: HashMap<String, Tensor>) -> Result<Vec<(String, Tensor)>, Error> {
        let mut part = self.whole()?;
        let mut seen = self.model.decided_inputs().to_vec();
        let mut key = Key::of(&inputs, false);
        let mut stages = 0;
        while stages <= MAX_STAGES {
            let step = self.step(&part, &key, &inputs)?;
            match &*step {
                Step::Done(session) => {
                    inputs.retain(|name, _| session.takes(name) || !seen.contains(name));
                    return session.run_tensors(inputs);
                }
                Step::Asks { asked, session } => {
                    let compute = |program: &Program, given: Vec<Tensor>| {
                        let names = program.inputs.iter().map(|(name, _)| name.clone());
                        let results = session.run_tensors(names.zip(given).collect())?;
                        Ok(results.into_iter().map(|(_, t)| t).collect())
                    };
                    let answer = answer(asked, &inputs, &compute)?;
                    key.answers.add(asked, answer);
                    key.of_data |= reads_inputs(&asked.program);
                    stages += 1;
                }
                Step::Cut { before, rest } => {
                    let given = inputs.iter().filter(|(name, _)| before.takes(name));
                    let given = given.map(|(name, t)| (name.clone(), t.clone())).collect();
                    let computed = before.run_tensors(given)?;
                    seen.extend(before.inputs().iter().map(|i| i.name().to_string()));
                    inputs.retain(|name, _| rest.reads(name) || !seen.contains(name));
                    seen.extend(computed.iter().map(|(name, _)| name.clone()));
                    inputs.extend(computed);
                    (part, key) = (rest.clone(), Key::of(&inputs, key.of_data));
                }
            }
        }
        Err(too_many())
    }

    fn whole(&self) -> Result<Arc<Part>, Error> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole.clone());
        }
        let raw = self.model.raw()?.ok_or_else(too_many)?;
        Ok(self.whole.get_or_init(|| Arc::new(Part::new(raw))).clone())
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
        let mut raw = part.raw.clone();
        enter_shapes(&mut raw, inputs);
        unpack(&mut raw, inputs);
        let imported = import_part(&raw, self.model.library(), &key.answers);
        let of_data = key.of_data;
        let step = match imported.map_err(|e| self.model.refused(e))? {
            Imports::Whole(Stage::Done(imported)) => {
                Step::Done((self.prepare)(&imported.program, of_data)?)
            }
            Imports::Whole(Stage::Asks(asked)) => {
                Step::Asks { session: (self.prepare)(&asked.program, true)?, asked }
            }
            Imports::Cut(cut) => {
                let rest = Arc::new(Part::new(cut.rest));
                Step::Cut { before: (self.prepare)(&cut.program, of_data)?, rest }
            }
        };
        let step = Arc::new(step);
        let mut known = known();
        if known.len() >= MOST_STEPS {
            known.remove(0);
        }
        known.push((key.clone(), step.clone()));
        Ok(step)
    }
}

impl Part {
    fn new(raw: RawModel) -> Part {
        Part { raw, known: Mutex::default() }
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
    fn of(inputs: &HashMap<String, Tensor>, of_data: bool) -> Key {
        let extents = inputs.iter().map(|(n, t)| (n.clone(), t.shape().to_vec())).collect();
        Key { extents, answers: Answers::default(), of_data }
    }
}

/// True if what a pruned program computes depends on its inputs.
fn reads_inputs(program: &Program) -> bool {
    let is_input = |v: &Value| matches!(program.node(v.node).kind, NodeKind::Input(_));
    let mut outputs = program.outputs.iter().map(|(_, v)| v);
    program.nodes.iter().flat_map(|n| &n.args).any(is_input) || outputs.any(is_input)
}
