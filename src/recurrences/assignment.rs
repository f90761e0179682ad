//! Which operand of a recurrence is what of a scan: found by types, then tried.

use super::scan::{Scan, Seed, moving};
use super::trial::Trial;
use mlc_dsl::ir::{Extent, Type};
use mlc_dsl::library::{CallId, Dim, Name};
use mlc_onnx::{RecurrenceStep, recurrence_step};
use std::collections::HashMap;

/// Choices of operands whose types are compared, at most, and those that are tried on samples.
const TYPED: usize = 1 << 16;
const TRIED: usize = 2048;

/// Proofs that are searched for, at most.
const PROOFS: usize = 16;

/// A scan as a recurrence.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub call: CallId,
    pub operands: Vec<Operand>,
    /// Of each state of the scan: the result that it is the last of, and its axis of the steps.
    pub states: Vec<(usize, usize)>,
    /// Of each sequence that is made: the result that it is, where its axis of the steps is, and where it belongs.
    pub made: Vec<(usize, usize, usize)>,
    pub backwards: bool,
}

/// An operand; of one that is gone along, where its axis of the steps is, and where it belongs.
pub(super) type Operand = (Seed, Option<(usize, usize)>);

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
    /// Operands may repeat each other, and leave out what the scan reads.
    any: bool,
    typed: usize,
    tried: usize,
    proofs: usize,
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
        let any = false;
        fits.then(|| Search { scan, call, laws, pool, places, any, typed: 0, tried: 0, proofs: 0 })
    }

    /// First operands of which none follows from the others and from which all follows that the scan reads, then any.
    pub fn found(mut self) -> Option<Assignment> {
        [false, true].into_iter().find_map(|any| {
            (self.any, self.typed, self.tried) = (any, 0, 0);
            let used = &mut vec![false; self.scan.sequences.len()];
            self.next(&mut vec![], &mut HashMap::new(), used).ok()
        })
    }

    /// Chooses the next operand in every way. An error is the last operand that another choice must change.
    fn next(
        &mut self,
        chosen: &mut Vec<Operand>,
        extents: &mut HashMap<Name, Extent>,
        used: &mut Vec<bool>,
    ) -> Result<Assignment, usize> {
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
            if self.typed > TYPED || self.tried > TRIED || self.proofs > PROOFS {
                return Err(0);
            }
            let ty = moved_type(self.scan.type_of(&seed), moved);
            let mut bound = extents.clone();
            if !self.fits(k, &ty, &mut bound) || !self.any && !self.is_new(chosen, &seed) {
                continue;
            }
            sequence.iter().for_each(|&i| used[i] = true);
            chosen.push((seed, moved));
            let found = self.next(chosen, &mut bound, used);
            chosen.pop();
            sequence.iter().for_each(|&i| used[i] = false);
            if found.is_ok() || found.as_ref().is_err_and(|&last| last < k) {
                return found;
            }
        }
        Err(k.saturating_sub(1))
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

    /// True if an operand does not follow from those that are chosen, and none of them from it and the others.
    fn is_new(&self, chosen: &[Operand], seed: &Seed) -> bool {
        let all: Vec<&Seed> = chosen.iter().map(|(s, _)| s).chain([seed]).collect();
        (0..all.len()).all(|i| {
            let others = [&all[..i], &all[i + 1..]].concat();
            self.scan.is_constant(all[i]) || !self.scan.follows(all[i], &others)
        })
    }

    /// True if all that the scan reads follows from the operands.
    fn is_whole(&self, chosen: &[Operand]) -> bool {
        let all: Vec<&Seed> = chosen.iter().map(|(s, _)| s).collect();
        self.scan.captured.values().chain(&self.scan.initial).all(|s| self.scan.follows(s, &all))
    }

    /// Tries a choice of operands with every order of the states.
    fn attempt(&mut self, chosen: &[Operand]) -> Result<Assignment, usize> {
        let last = self.places.len().saturating_sub(1);
        if !self.any && !self.is_whole(chosen) {
            return Err(last);
        }
        let types = chosen.iter().map(|(s, m)| moved_type(self.scan.type_of(s), *m));
        let types: Vec<Type> = types.collect();
        let step = recurrence_step(self.scan.library, self.call, &types).ok_or(last)?;
        let gone = self.places.iter().enumerate().filter_map(|(k, p)| Some((k, (*p)?)));
        if step.sequences != gone.collect::<Vec<_>>() || step.states.len() != self.scan.states.len()
        {
            return Err(last);
        }
        let mut deepest = 0;
        for order in orders(step.states.len()) {
            self.tried += 1;
            let trial = Trial { scan: self.scan, step: &step, chosen, order: &order };
            let agreeing = match trial.agreeing() {
                Ok(agreeing) => agreeing,
                Err(refuted) => {
                    deepest = deepest.max(refuted);
                    continue;
                }
            };
            self.proofs += 1;
            if let Some(made) = agreeing.proven(&trial, self.laws) {
                return Ok(self.assignment(&step, chosen, &order, &made));
            }
            deepest = last;
        }
        Err(deepest)
    }

    fn assignment(
        &self,
        step: &RecurrenceStep,
        chosen: &[Operand],
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
