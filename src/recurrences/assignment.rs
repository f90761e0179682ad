//! Which operand of a recurrence is what of a scan: found by types, then tried.

use super::scan::{Scan, Seed, moving};
use super::trial::Trial;
use mlc_dsl::ir::{Extent, Type};
use mlc_dsl::library::{CallId, Dim, Name};
use mlc_onnx::{RecurrenceStep, recurrence_step};
use std::collections::HashMap;

/// Choices of operands whose types are compared, at most, and those that are tried.
const TYPED: usize = 4096;
const TRIED: usize = 64;

/// A scan as a recurrence.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub call: CallId,
    /// The operands; of one that is gone along, where its axis of the steps is, and where it belongs.
    pub operands: Vec<(Seed, Option<(usize, usize)>)>,
    /// Of each state of the scan: the result that it is the last of, and its axis of the steps.
    pub states: Vec<(usize, usize)>,
    /// Of each sequence that is made: the result that it is, where its axis of the steps is, and where it belongs.
    pub made: Vec<(usize, usize, usize)>,
    pub backwards: bool,
}

/// An operand, the axes that change places in it, and which sequence it is.
type Choice = (Seed, Option<(usize, usize)>, Option<usize>);

/// The choices of operands for one recurrence.
pub(super) struct Search<'s, 'a> {
    scan: &'s Scan<'a>,
    call: CallId,
    laws: &'s [u32],
    pool: Vec<Seed>,
    /// Of each parameter: the place of the axis of the steps, if it has it.
    places: Vec<Option<usize>>,
    typed: usize,
    tried: usize,
}

impl<'s, 'a> Search<'s, 'a> {
    /// Nothing if the recurrence cannot be this scan.
    pub fn new(scan: &'s Scan<'a>, call: CallId, laws: &'s [u32]) -> Option<Self> {
        let declared = scan.library.call(call);
        let recurrence = declared.recurrence.as_ref()?;
        let mut places = vec![];
        for input in &declared.inputs {
            let dims = input.ty.dims.as_ref()?;
            if dims.iter().any(|d| !matches!(d, Dim::Axis(_) | Dim::Value(_))) {
                return None;
            }
            let is_step = |d: &Dim| matches!(d, Dim::Axis(n) if *n == recurrence.axis);
            places.push(dims.iter().position(is_step));
        }
        let gone = places.iter().flatten().count();
        let fits = recurrence.backwards == scan.backwards
            && gone == scan.sequences.len()
            && declared.attrs.iter().all(|a| a.default.is_some());
        let pool = scan.pool();
        fits.then(|| Search { scan, call, laws, pool, places, typed: 0, tried: 0 })
    }

    pub fn found(mut self) -> Option<Assignment> {
        self.next(&mut vec![], &mut HashMap::new(), &mut vec![false; self.scan.sequences.len()])
    }

    /// Chooses the next operand in every way.
    fn next(
        &mut self,
        chosen: &mut Vec<(Seed, Option<(usize, usize)>)>,
        extents: &mut HashMap<Name, Extent>,
        used: &mut Vec<bool>,
    ) -> Option<Assignment> {
        let k = chosen.len();
        let Some(&place) = self.places.get(k) else { return self.attempt(chosen) };
        let choices: Vec<Choice> = match place {
            Some(to) => {
                let free = self.scan.sequences.iter().enumerate().filter(|(i, _)| !used[*i]);
                free.map(|(i, (s, from))| (s.clone(), Some((*from, to)), Some(i))).collect()
            }
            None => self.pool.iter().map(|s| (s.clone(), None, None)).collect(),
        };
        for (seed, moved, sequence) in choices {
            self.typed += 1;
            if self.typed > TYPED || self.tried > TRIED {
                return None;
            }
            let ty = moved_type(self.scan.type_of(&seed), moved);
            let mut bound = extents.clone();
            if !self.fits(k, &ty, &mut bound) {
                continue;
            }
            sequence.iter().for_each(|&i| used[i] = true);
            chosen.push((seed, moved));
            let found = self.next(chosen, &mut bound, used);
            chosen.pop();
            sequence.iter().for_each(|&i| used[i] = false);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// True if a parameter takes a type, whose extents are bound.
    fn fits(&self, k: usize, ty: &Type, extents: &mut HashMap<Name, Extent>) -> bool {
        let dims = self.scan.library.call(self.call).inputs[k].ty.dims.as_deref().unwrap_or(&[]);
        dims.len() == ty.rank()
            && dims.iter().zip(&ty.shape).all(|(d, e)| match d {
                Dim::Axis(n) => extents.entry(n.clone()).or_insert_with(|| e.clone()) == e,
                Dim::Seg(_) | Dim::Value(_) | Dim::Splice(_) => true,
            })
    }

    /// Tries a choice of operands with every order of the states.
    fn attempt(&mut self, chosen: &[(Seed, Option<(usize, usize)>)]) -> Option<Assignment> {
        let types = chosen.iter().map(|(s, m)| moved_type(self.scan.type_of(s), *m));
        let types: Vec<Type> = types.collect();
        let step = recurrence_step(self.scan.library, self.call, &types)?;
        let gone = self.places.iter().enumerate().filter_map(|(k, p)| Some((k, (*p)?)));
        if step.sequences != gone.collect::<Vec<_>>() || step.states.len() != self.scan.states.len()
        {
            return None;
        }
        for order in orders(step.states.len()) {
            self.tried += 1;
            if self.tried > TRIED {
                return None;
            }
            let trial = Trial { scan: self.scan, step: &step, chosen, order: &order };
            if let Some(made) = trial.proven(self.laws) {
                return Some(self.assignment(&step, chosen, &order, &made));
            }
        }
        None
    }

    fn assignment(
        &self,
        step: &RecurrenceStep,
        chosen: &[(Seed, Option<(usize, usize)>)],
        order: &[usize],
        made: &[usize],
    ) -> Assignment {
        let axis =
            |r: usize| step.made.iter().find(|(of, _)| *of == r).map_or(0, |(_, axis)| *axis);
        let makes = made.iter().zip(&self.scan.makes);
        Assignment {
            call: self.call,
            operands: chosen.to_vec(),
            states: order.iter().map(|&s| step.states[s]).map(|r| (r, axis(r))).collect(),
            made: makes.map(|(&r, &to)| (r, axis(r), to)).collect(),
            backwards: step.backwards,
        }
    }
}

fn moved_type(mut ty: Type, moved: Option<(usize, usize)>) -> Type {
    if let Some((from, to)) = moved {
        ty.shape = moving(ty.rank(), from, to).into_iter().map(|i| ty.shape[i].clone()).collect();
    }
    ty
}

/// All orders of so many things; of many, the given one alone.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count > 4 {
        return vec![(0..count).collect()];
    }
    let mut all: Vec<Vec<usize>> = vec![vec![]];
    for i in 0..count {
        let longer = |o: &Vec<usize>| {
            let o = o.clone();
            (0..=o.len()).map(move |at| [&o[..at], &[i], &o[at..]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all.sort();
    all
}
