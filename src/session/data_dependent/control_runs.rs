//! Loops and branches that are run as they are: what their bodies compute is decided anew each time, or they are too long to be
//! written out.
//!
//! A body is a part like any other, imported and compiled once for extents that it has met before, so that one more repetition costs
//! what it computes.

use crate::error::{Error, ErrorKind};
use crate::session::data_dependent::part::Part;
use crate::session::data_dependent::{Context, Yielded};
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::shown;
use mlc_onnx::{DeferredControl, RawNode};
use std::collections::HashMap;
use std::sync::Arc;

/// Repetitions of one loop, which ends by its condition otherwise.
const MOST: i64 = 1 << 20;

/// A node whose bodies are run.
pub(crate) struct ControlRun {
    node: RawNode,
    constants: HashMap<String, Tensor>,
    bodies: Vec<Arc<Part>>,
    /// True if data decide what its bodies compute.
    of_data: bool,
}

/// The body of a loop, and the names of its own inputs and of what it reads from outside.
struct Body<'a> {
    part: &'a Arc<Part>,
    own: Vec<&'a str>,
    captured: HashMap<String, Tensor>,
}

/// What a body yields, and whether another run decides its extents otherwise.
struct Results {
    values: Vec<Tensor>,
    is_volatile: bool,
}

impl ControlRun {
    /// A node of a part.
    pub fn new(control: DeferredControl, part: &Part) -> ControlRun {
        let DeferredControl { node, constants, subgraphs, data_dependent } = control;
        let first = node.outputs.iter().find(|o| !o.is_empty()).cloned().unwrap_or_default();
        let body = |(i, raw)| Arc::new(Part::new(raw, part.body(&first, i)));
        let bodies = subgraphs.into_iter().enumerate().map(body).collect();
        ControlRun { node, constants, bodies, of_data: data_dependent }
    }

    /// What it reads.
    pub fn reads(&self) -> Vec<String> {
        let captured = self.bodies.iter().flat_map(|b| b.inputs().iter().map(|i| &i.name));
        self.node.inputs.iter().chain(captured).cloned().collect()
    }

    /// What it defines, by name.
    ///
    /// # Errors
    /// A body fails, or does not fit the node.
    pub fn run(
        &self,
        context: &Context,
        values: &HashMap<String, Tensor>,
        is_volatile: bool,
    ) -> Result<Yielded, Error> {
        let Results { values: results, is_volatile } = match self.bodies.as_slice() {
            [body] => self.repeat(body, context, values, is_volatile)?,
            [then, otherwise] => {
                let taken = self.input(0, values).is_some_and(is_true);
                let body = self.body(if taken { then } else { otherwise }, 0, values);
                body.run(context, vec![], is_volatile)?
            }
            _ => return Err(self.fails("it has no body".into())),
        };
        if results.len() < self.node.outputs.len() {
            let (has, yields) = (self.node.outputs.len(), results.len());
            return Err(self.fails(format!("it has {has} outputs, and yields {yields}")));
        }
        let named = self.node.outputs.iter().cloned().zip(results);
        let values = named.filter(|(name, _)| !name.is_empty()).collect();
        Ok(Yielded { values, is_volatile })
    }

    fn input<'v>(&'v self, i: usize, values: &'v HashMap<String, Tensor>) -> Option<&'v Tensor> {
        let name = self.node.inputs.get(i).filter(|n| !n.is_empty())?;
        values.get(name).or_else(|| self.constants.get(name))
    }

    /// A body with so many inputs of its own.
    fn body<'a>(
        &self,
        part: &'a Arc<Part>,
        own: usize,
        values: &HashMap<String, Tensor>,
    ) -> Body<'a> {
        let names = || part.inputs().iter().map(|i| i.name.as_str());
        let outside = names().skip(own);
        let captured = outside.filter_map(|n| Some((n.to_string(), values.get(n)?.clone())));
        Body { part, own: names().take(own).collect(), captured: captured.collect() }
    }

    /// The states of a loop after its last repetition, and what it made each time.
    fn repeat(
        &self,
        part: &Arc<Part>,
        context: &Context,
        values: &HashMap<String, Tensor>,
        mut is_volatile: bool,
    ) -> Result<Results, Error> {
        let trips = self.input(0, values).map_or(i64::MAX, |t| t.get_i64(0));
        let mut goes_on = self.input(1, values).is_none_or(is_true);
        let missing = || self.fails("a value that it begins with is missing".into());
        let states = (2..self.node.inputs.len()).map(|i| self.input(i, values).cloned());
        let mut states: Vec<Tensor> = states.collect::<Option<_>>().ok_or_else(missing)?;
        let body = self.body(part, 2 + states.len(), values);
        let extents = |states: &[Tensor]| -> Vec<Vec<usize>> {
            states.iter().map(|t| t.shape().to_vec()).collect()
        };
        let begun = extents(&states);
        let mut made: Vec<Vec<Tensor>> = vec![];
        let mut i = 0;
        while goes_on && i < trips {
            if i == MOST {
                return Err(self.fails(format!("it does not end within {MOST} repetitions")));
            }
            let head = [
                Tensor::from_i64(DType::I64, vec![], &[i]),
                Tensor::from_i64(DType::Bool, vec![], &[1]),
            ];
            let own = head.into_iter().chain(std::mem::take(&mut states)).collect();
            let yielded = body.run(context, own, is_volatile)?;
            is_volatile |= yielded.is_volatile;
            let mut results = yielded.values;
            if results.len() < body.own.len() - 1 {
                return Err(self.fails("its body yields fewer values than it is given".into()));
            }
            let each = results.split_off(body.own.len() - 1);
            made.resize(each.len(), vec![]);
            made.iter_mut().zip(each).for_each(|(all, one)| all.push(one));
            goes_on = is_true(&results.remove(0));
            states = results;
            i += 1;
        }
        // How often it runs is in the extents of what it makes.
        is_volatile |= self.of_data && (!made.is_empty() || extents(&states) != begun);
        for all in made {
            states.push(stacked(&all).ok_or_else(|| {
                self.fails("what it makes has another type from one repetition to the next".into())
            })?);
        }
        Ok(Results { values: states, is_volatile })
    }

    fn fails(&self, reason: String) -> Error {
        let place = shown(&self.node.label()).to_string();
        Error::new(ErrorKind::Model, format!("{place}: {reason}")).at(place)
    }
}

impl Body<'_> {
    fn run(
        &self,
        context: &Context,
        own: Vec<Tensor>,
        is_volatile: bool,
    ) -> Result<Results, Error> {
        let mut given = self.captured.clone();
        given.extend(self.own.iter().map(|n| (*n).to_string()).zip(own));
        // It need not read what it is given.
        let seen = given.keys().cloned().collect();
        let Yielded { values, is_volatile } = context.run(self.part, given, seen, is_volatile)?;
        Ok(Results { values: values.into_iter().map(|(_, t)| t).collect(), is_volatile })
    }
}

fn is_true(t: &Tensor) -> bool {
    !t.is_empty() && t.get_i64(0) != 0
}

/// Tensors of one type along a new first axis.
fn stacked(all: &[Tensor]) -> Option<Tensor> {
    let first = all.first()?;
    let is_same = |t: &Tensor| t.dtype() == first.dtype() && t.shape() == first.shape();
    if !all.iter().all(is_same) {
        return None;
    }
    let shape: Vec<usize> = [all.len()].into_iter().chain(first.shape().iter().copied()).collect();
    if first.dtype() == DType::Str {
        let texts = all.iter().flat_map(|t| (0..t.len()).map(|i| t.get_str(i)));
        return Tensor::from_strings(shape, texts).ok();
    }
    let bytes: Vec<u8> = all.iter().flat_map(|t| t.bytes().iter().copied()).collect();
    Tensor::new(first.dtype(), shape, bytes.into()).ok()
}
