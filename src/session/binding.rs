//! Streams of runs: inputs that stay, outputs that are the next inputs, and outputs in memory of the caller.

use super::{Outputs, Planned, Runs, Session, fits, missing, unknown_input};
use crate::error::{Error, ErrorKind};
use crate::model::TensorInfo;
use crate::names;
use crate::session::data_dependent::DataDependentRuns;
use mlc_backends::arrays::{AnyArray, ArrayMut};
use mlc_backends::state::{Feed, State, Step};
use mlc_dsl::ir::{Tensor, Type};
use mlc_dsl::plan::growing_axis;
use mlc_dsl::shown;
use mlc_extract::resources::{Symbols, symbols_of_shapes};
use std::collections::HashMap;

/// One stream of runs of a session: what it holds stays from run to run, and outputs that are fed back are inputs of the next run without a
/// copy. Of an output that is its input with more after it along an axis, such as the keys and values that a language model has seen, only what is
/// new is written.
///
/// A session has any number of them, also in several threads. A clone goes on from the same state; what both hold is shared until one of
/// them writes. After an error a binding is as it was before the run.
///
/// ```
/// # use mlc_rewrite::{Model, ndarray::array};
/// let text = "def step(x: f32[s, 2], past: f32[p, 2]) -> y: f32[2], seen: f32[p + s, 2]
///   let seen = concat(past, x, axis=0)
///   = (sum(seen, axes=[0]), seen)
/// ";
/// let session = Model::from_rules(text)?.session()?;
/// let mut stream = session.bind();
/// stream.feed_back("seen", "past")?;
/// stream.set("past", array![[1.0f32, 2.0]])?;
/// stream.run([("x", array![[10.0f32, 20.0]])])?;
/// let outputs = stream.run([("x", array![[100.0f32, 200.0]])])?;
/// assert_eq!(outputs.array::<f32>("y")?, array![111.0, 222.0].into_dyn());
/// assert_eq!(stream.get("past")?.expect("it is there").shape(), [3, 2]);
/// # Ok::<(), mlc_rewrite::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Binding<'s> {
    session: &'s Session,
    /// What stays, by input.
    bound: Vec<Option<State>>,
    feeds: Vec<Feed>,
}

impl Session {
    /// A stream of runs that holds nothing yet.
    pub fn bind(&self) -> Binding<'_> {
        Binding { session: self, bound: vec![None; self.inputs.len()], feeds: vec![] }
    }

    /// The outputs that are an input with more after it along an axis, each with that input: what a cache is, by the model's operators and not by
    /// names. None if the device copies, or the data of each run decide the model.
    pub fn appended(&self) -> Vec<(&str, &str)> {
        let Runs::Planned(planned) = &self.runs else { return vec![] };
        let pairs = planned.executable.appended().into_iter();
        pairs.map(|(o, i)| (self.outputs[o].name(), self.inputs[i].name())).collect()
    }

    fn input(&self, name: &str) -> Result<usize, Error> {
        let known = || self.inputs.iter().map(TensorInfo::name).collect::<Vec<_>>();
        let at = self.inputs.iter().position(|i| i.name() == name);
        at.ok_or_else(|| unknown_input(name, &known()))
    }

    fn output(&self, name: &str) -> Result<usize, Error> {
        let at = self.outputs.iter().position(|o| o.name() == name);
        at.ok_or_else(|| {
            let known: Vec<&str> = self.outputs.iter().map(TensorInfo::name).collect();
            let place = format!("output `{}`", shown(name));
            let help =
                names::did_you_mean(name, &known, &format!("the outputs are {}", known.join(", ")));
            let error = Error::new(ErrorKind::Output, format!("the model has no {place}"));
            error.at(place).or_help(help)
        })
    }
}

impl Binding<'_> {
    /// From now on an output of each run is an input of the next one. What the first run reads is `set`, or given to it. An input that was fed
    /// by another output is fed by this one.
    ///
    /// # Errors
    /// There is no such output or input, or their element types or extents cannot be the same.
    pub fn feed_back(&mut self, output: &str, input: &str) -> Result<(), Error> {
        let (o, i) = (self.session.output(output)?, self.session.input(input)?);
        let (from, to) = (self.session.outputs[o].ty(), self.session.inputs[i].ty());
        let apart = |a: Option<i64>, b: Option<i64>| a.is_some() && b.is_some() && a != b;
        let differ = |(a, b): (&mlc_dsl::ir::Extent, &mlc_dsl::ir::Extent)| {
            apart(a.as_const(), b.as_const())
        };
        let unlike = from.rank() != to.rank() || from.shape.iter().zip(&to.shape).any(differ);
        if from.dtype != to.dtype || unlike {
            let place = format!("output `{}`", shown(output));
            let message = format!("{place} is {from}, and input `{}` is {to}", shown(input));
            return Err(Error::new(ErrorKind::Output, message)
                .at(place)
                .with_help("feed back an output of the input's type"));
        }
        self.feeds.retain(|f| f.input != i);
        let axis = self.session.growing(o, i);
        self.feeds.push(Feed { output: o, input: i, axis, limit: None });
        Ok(())
    }

    /// Feeds back those of [`Session::appended`] whose input has no other such output, and says which they are: look at them once.
    pub fn feed_back_appended(&mut self) -> Vec<(String, String)> {
        let pairs = self.session.appended();
        let alone =
            |(_, i): &&(&str, &str)| pairs.iter().filter(|(_, other)| other == i).count() == 1;
        let pairs: Vec<_> =
            pairs.iter().filter(alone).map(|(o, i)| (o.to_string(), i.to_string())).collect();
        pairs.into_iter().filter(|(o, i)| self.feed_back(o, i).is_ok()).collect()
    }

    /// The most that an input which is fed back may have along the axis in which it grows. A run that would take it further is refused, and no
    /// more memory is held for it.
    ///
    /// # Errors
    /// There is no such input, nothing is fed back to it, or it does not grow along one axis.
    pub fn limit(&mut self, input: &str, extent: usize) -> Result<(), Error> {
        let i = self.session.input(input)?;
        let feed = self.feeds.iter_mut().find(|f| f.input == i);
        match feed.filter(|f| f.axis.is_some()) {
            Some(feed) => feed.limit = Some(extent),
            None => {
                let place = format!("input `{}`", shown(input));
                let message = format!("{place} does not grow from run to run");
                return Err(Error::new(ErrorKind::Input, message).at(place).with_help(
                    "call `feed_back` before, with an output that is longer along one axis",
                ));
            }
        }
        Ok(())
    }

    /// Sets an input for all runs to come, or the state from which one that is fed back goes on.
    ///
    /// # Errors
    /// There is no such input, or its element type or shape does not fit.
    pub fn set(&mut self, input: &str, array: impl Into<AnyArray>) -> Result<(), Error> {
        let i = self.session.input(input)?;
        let info = &self.session.inputs[i];
        let tensor = array.into().into_tensor().with_codes_read(info.dtype());
        fits(info, tensor.dtype(), tensor.shape())?;
        self.bound[i] = Some(tensor.into());
        Ok(())
    }

    /// What an input is bound to: a copy where its memory has room between the elements.
    ///
    /// # Errors
    /// There is no such input.
    pub fn get(&self, input: &str) -> Result<Option<AnyArray>, Error> {
        let i = self.session.input(input)?;
        Ok(self.bound[i].as_ref().map(|s| s.tensor().into()))
    }

    /// The extents of what an input is bound to.
    ///
    /// # Errors
    /// There is no such input.
    pub fn shape(&self, input: &str) -> Result<Option<&[usize]>, Error> {
        let i = self.session.input(input)?;
        Ok(self.bound[i].as_ref().map(State::shape))
    }

    /// Forgets what the inputs that are fed back are; other inputs stay as they were set.
    pub fn reset(&mut self) {
        self.feeds.iter().for_each(|f| self.bound[f.input] = None);
    }

    /// Runs once on the inputs that are not bound; one that is given is taken in place of what is bound. Yields the outputs that are not
    /// fed back.
    ///
    /// # Errors
    /// As [`Session::run`]; a state would grow beyond its limit.
    pub fn run<N: AsRef<str>, A: Into<AnyArray>>(
        &mut self,
        inputs: impl IntoIterator<Item = (N, A)>,
    ) -> Result<Outputs, Error> {
        self.run_into(inputs, [] as [(&str, ArrayMut<'_>); 0])
    }

    /// The same, with outputs written to arrays of the caller: where kernels yield them, if they lie so. These are not among those that it
    /// yields.
    ///
    /// # Errors
    /// As [`run`](Self::run); there is no such output, it is fed back or given twice, or it has another element type or shape. What is
    /// in the arrays after an error is arbitrary.
    pub fn run_into<'a, N: AsRef<str>, A: Into<AnyArray>, O: AsRef<str>>(
        &mut self,
        inputs: impl IntoIterator<Item = (N, A)>,
        outputs: impl IntoIterator<Item = (O, ArrayMut<'a>)>,
    ) -> Result<Outputs, Error> {
        let given = Session::by_name(inputs)?;
        let mut memory: Vec<Option<ArrayMut<'_>>> = Vec::new();
        memory.resize_with(self.session.outputs.len(), || None);
        for (name, array) in outputs {
            let o = self.session.output(name.as_ref())?;
            let is_fed = self.feeds.iter().any(|f| f.output == o);
            if is_fed || memory[o].is_some() {
                let place = format!("output `{}`", shown(name.as_ref()));
                let what = if is_fed { "is fed back" } else { "is given twice" };
                return Err(Error::new(ErrorKind::Output, format!("{place} {what}"))
                    .at(place)
                    .with_help("give one array for each output that is not fed back"));
            }
            memory[o] = Some(array);
        }
        let session = self.session;
        let results = match &session.runs {
            Runs::Planned(planned) => self.planned(planned, given, memory)?,
            Runs::DataDependent(staged) => self.staged(staged, given, memory)?,
        };
        Ok(Outputs(results))
    }

    /// What the inputs are that a run is not given: those that are bound, then the model's own.
    fn kept(&self, name: &str, i: usize) -> Option<State> {
        let default = || self.session.defaults.iter().find(|(n, _)| n == name);
        let default = || default().map(|(_, t)| State::from(t.clone()));
        self.bound[i].clone().or_else(default)
    }

    fn planned(
        &mut self,
        planned: &Planned,
        mut given: HashMap<String, Tensor>,
        mut memory: Vec<Option<ArrayMut<'_>>>,
    ) -> Result<Vec<(String, AnyArray)>, Error> {
        let session = self.session;
        let mut states = Vec::with_capacity(session.inputs.len());
        for (i, info) in session.inputs.iter().enumerate() {
            let new = given.remove(info.name()).map(|t| t.with_codes_read(info.dtype()).into());
            let held = new.is_none() && self.bound[i].is_some();
            let state = new.or_else(|| self.kept(info.name(), i));
            let state = state.ok_or_else(|| missing(info.name(), info.ty()))?;
            fits(info, state.dtype(), state.shape())?;
            states.push((state, held));
        }
        if let Some(name) = given.keys().min() {
            session.input(name)?;
        }
        let (mut states, held): (Vec<State>, Vec<bool>) = states.into_iter().unzip();
        let shapes = states.iter().map(State::shape);
        let symbols = symbols_of_shapes(&planned.plan.program, shapes);
        planned.afford(&session.device, symbols.clone())?;
        self.in_limits(planned, &symbols)?;
        let mut late: Vec<Option<ArrayMut<'_>>> = Vec::new();
        late.resize_with(memory.len(), || None);
        for (o, array) in memory.iter_mut().enumerate() {
            let Some(own) = array else { continue };
            match known(planned.plan.program.ty(planned.plan.program.outputs[o].1), &symbols) {
                Some(ty) => lies_in(session.outputs[o].name(), own, &ty)?,
                None => late[o] = array.take(),
            }
        }
        let lent = memory.iter_mut().map(|m| m.as_mut().map(ArrayMut::bytes_mut)).collect();
        // No one else holds what is bound while it is written.
        self.bound.iter_mut().zip(&held).for_each(|(b, held)| drop(b.take_if(|_| *held)));
        let step = Step { inputs: &mut states, feeds: &self.feeds, memory: lent };
        let done = planned.executable.step(step);
        for ((b, state), held) in self.bound.iter_mut().zip(states).zip(held) {
            if held {
                *b = Some(state);
            }
        }
        let outputs = done?;
        planned.settle();
        for (o, array) in late.into_iter().enumerate() {
            if let Some(mut array) = array {
                fill(session.outputs[o].name(), &mut array, &outputs[o].tensor())?;
                memory[o] = Some(array);
            }
        }
        let named = |(o, state): (usize, &State)| {
            let elsewhere = memory[o].is_some() || self.feeds.iter().any(|f| f.output == o);
            let name = session.outputs[o].name().to_string();
            (!elsewhere).then(|| (name, AnyArray::from(state.tensor())))
        };
        let results = outputs.iter().enumerate().filter_map(named).collect();
        for f in &self.feeds {
            self.bound[f.input] = Some(outputs[f.output].clone());
        }
        Ok(results)
    }

    /// Refuses a run after which a state would be longer than it may be.
    fn in_limits(&self, planned: &Planned, symbols: &Symbols) -> Result<(), Error> {
        for f in &self.feeds {
            let (Some(limit), Some(axis)) = (f.limit, f.axis) else { continue };
            let ty = planned.plan.program.ty(planned.plan.program.outputs[f.output].1);
            let next = ty.shape[axis].eval(&|s| symbols.get(s).copied());
            let Some(next) = next.filter(|n| *n > limit as i64) else { continue };
            let place = format!("input `{}`", shown(self.session.inputs[f.input].name()));
            let message =
                format!("{place} would have {next} along axis {axis}, its limit is {limit}");
            return Err(Error::new(ErrorKind::Input, message)
                .at(place)
                .with_help("reset it, set a shorter state, or raise the limit"));
        }
        Ok(())
    }

    fn staged(
        &mut self,
        staged: &DataDependentRuns,
        mut given: HashMap<String, Tensor>,
        mut memory: Vec<Option<ArrayMut<'_>>>,
    ) -> Result<Vec<(String, AnyArray)>, Error> {
        let session = self.session;
        for (i, info) in session.inputs.iter().enumerate() {
            if let Some(kept) = self.kept(info.name(), i) {
                given.entry(info.name().to_string()).or_insert_with(|| kept.tensor());
            }
        }
        let mut results = staged.run(given)?;
        for (o, array) in memory.iter_mut().enumerate() {
            let name = session.outputs[o].name();
            if let Some(array) = array
                && let Some(at) = results.iter().position(|(n, _)| n == name)
            {
                fill(name, array, &results.remove(at).1)?;
            }
        }
        let fed = |f: &Feed| {
            let name = session.outputs[f.output].name();
            results.iter().find(|(n, _)| n == name).map(|(_, t)| (f.input, t.clone()))
        };
        let next: Vec<(usize, Tensor)> = self.feeds.iter().filter_map(fed).collect();
        next.into_iter().for_each(|(i, t)| self.bound[i] = Some(t.into()));
        let is_fed =
            |name: &str| self.feeds.iter().any(|f| session.outputs[f.output].name() == name);
        results.retain(|(name, _)| !is_fed(name));
        Ok(results.into_iter().map(|(name, t)| (name, t.into())).collect())
    }
}

impl Session {
    /// The axis in which an input grows that an output is fed back to.
    fn growing(&self, output: usize, input: usize) -> Option<usize> {
        match &self.runs {
            Runs::Planned(p) => growing_axis(&p.plan.program, output, input),
            Runs::DataDependent(_) => None,
        }
    }
}

/// A type whose extents are numbers, if the inputs decide them.
fn known(ty: &Type, symbols: &Symbols) -> Option<Type> {
    let extent =
        |e: &mlc_dsl::ir::Extent| usize::try_from(e.eval(&|s| symbols.get(s).copied())?).ok();
    let shape: Vec<usize> = ty.shape.iter().map(extent).collect::<Option<_>>()?;
    Some(Type::known(ty.dtype, &shape))
}

/// Refuses an array that an output does not fit.
fn lies_in(name: &str, array: &ArrayMut<'_>, ty: &Type) -> Result<(), Error> {
    let own = Type::known(array.dtype(), array.shape());
    if own == *ty {
        return Ok(());
    }
    let place = format!("output `{}`", shown(name));
    let message = format!("{place} is {ty}, the array for it {own}");
    Err(Error::new(ErrorKind::Output, message)
        .at(place)
        .with_help(format!("give an array of {ty}")))
}

/// Copies an output to an array.
fn fill(name: &str, array: &mut ArrayMut<'_>, from: &Tensor) -> Result<(), Error> {
    lies_in(name, array, &Type::known(from.dtype(), from.shape()))?;
    array.bytes_mut().copy_from_slice(from.bytes());
    Ok(())
}
