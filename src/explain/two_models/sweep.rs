//! The sweep: goes through the values of the second program in order, and proves each equal to one of the first that
//! looks alike, from values that are proved already. Where that ends before the outputs, the place is judged by numbers,
//! its values are taken to be equal, and the sweep goes on behind it.
//!
//! Never takes values to be equal without a proof or a place in the result that says so.

use super::cone::{Cone, cone};
use super::judge::{Judge, Judged};
use super::numbers::{Numbers, Runner, by_type};
use super::partners::partners;
use super::prove::{Proved, Prover};
use super::values::{ClassId, CommonConstants, Side, Values};
use crate::error::Error;
use mlc_dsl::ir::{NodeId, NodeKind, Program, Value};
use mlc_explore::progress;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Nodes of a cone in which a proof is tried.
const PROVED: usize = 160;
/// Nodes of a place that is reported.
const REPORTED: usize = 4_000;
/// Values that are tried for one.
const TRIED: usize = 3;
/// Places that are reported at most.
const PLACES: usize = 24;
/// Values without a proof beneath one for which none is tried.
const UNPROVED: usize = 6;
/// How far a second try goes beyond the nearest common values.
const BEYOND: usize = 3;
/// Proofs that fail at most.
const FAILED: usize = 80;
/// Places that are weighed against each other.
const WEIGHED: usize = 12;

/// Why two values are taken to be equal.
pub(super) enum Held {
    Proved(Proved),
    Placed(Box<Place>),
}

/// Where two values are not proved equal.
pub(super) struct Place {
    pub cone: Cone,
    pub judged: Judged,
    /// The values, of the first program and the second.
    pub values: (Value, Value),
    /// What both are computed from, in the first program.
    pub from: Vec<Value>,
}

/// What a sweep found.
pub(super) struct Swept {
    /// For values of the second program that of the first which they equal, and why.
    pub held: BTreeMap<Value, (Value, Held)>,
    /// Outputs that are reached by no place, by number.
    pub open: Vec<usize>,
    /// Values of the second program that inputs decide, and those that are values of the first.
    pub counted: (usize, usize),
    /// Whether a limit ended it.
    pub is_cut_short: bool,
}

/// What is found where the outputs are equal as they are built, by no law: the same operators on the same values.
pub(super) fn as_built(programs: [&Program; 2], consts: &CommonConstants) -> Option<Swept> {
    let mut values = Values::new(programs, consts);
    programs[1].nodes.iter().for_each(|_| drop(values.enter(Side::B)));
    let is_one = values.open_outputs().next().is_none();
    let counted = values.counted();
    let held = BTreeMap::new();
    is_one.then_some(Swept { held, open: vec![], counted, is_cut_short: false })
}

/// A sweep under way.
pub(super) struct Sweep<'a> {
    programs: [&'a Program; 2],
    consts: &'a CommonConstants,
    prover: Prover<'a>,
    runner: Runner<'a>,
    numbers: &'a mut Numbers,
    held: BTreeMap<Value, (Value, Held)>,
    partners: BTreeMap<Value, Vec<Value>>,
    /// What cones looked like that were not proved.
    failed: HashSet<String>,
    failures: usize,
}

impl<'a> Sweep<'a> {
    pub fn new(
        programs: [&'a Program; 2],
        consts: &'a CommonConstants,
        prover: Prover<'a>,
        runner: Runner<'a>,
        numbers: &'a mut Numbers,
    ) -> Sweep<'a> {
        let partners = partners(programs[0], programs[1]);
        let held = BTreeMap::new();
        Sweep {
            programs,
            consts,
            prover,
            runner,
            numbers,
            held,
            partners,
            failed: HashSet::new(),
            failures: 0,
        }
    }

    /// Goes on until the outputs are reached or too many places are found.
    ///
    /// # Errors
    /// A law that must not fire is unknown.
    pub fn run(mut self) -> Result<Swept, Error> {
        let mut places = 0;
        loop {
            let values = self.pass()?;
            let open: Vec<usize> = values.open_outputs().collect();
            let placed = match open.is_empty() || places == PLACES {
                true => None,
                false => self.place(&values),
            };
            let Some((v, partner, place)) = placed else {
                let counted = values.counted();
                let is_cut_short = self.failures >= FAILED || places == PLACES;
                return Ok(Swept { held: self.held, open, counted, is_cut_short });
            };
            places += 1;
            let differs = matches!(place.judged, Judged::Differs(_));
            self.held.insert(v, (partner, Held::Placed(Box::new(place))));
            if differs && self.numbers.none.is_none() {
                self.look_behind();
            }
        }
    }

    /// The numbers of the second program as if what differs were the same.
    fn look_behind(&mut self) {
        let differs =
            |h: &Held| matches!(h, Held::Placed(p) if matches!(p.judged, Judged::Differs(_)));
        let same = self.held.iter().filter(|(_, (_, h))| differs(h));
        let same: BTreeMap<Value, Value> = same.map(|(b, (a, _))| (*b, *a)).collect();
        if let Err(why) = self.numbers.assume(&self.runner, self.programs, &same) {
            self.numbers.refused.push(format!("behind a difference: {why}"));
        }
    }

    /// Goes through the second program once, from what is held already.
    fn pass(&mut self) -> Result<Values<'a>, Error> {
        let mut values = Values::new(self.programs, self.consts);
        let known = by_type(&values);
        let mut unproved: BTreeSet<Value> = BTreeSet::new();
        let count = self.programs[1].nodes.len();
        for n in 0..count {
            progress::report("comparing", Some(n as f64 / count as f64));
            let classes = values.enter(Side::B);
            for (output, class) in classes.into_iter().enumerate() {
                let v = Value { node: NodeId(n as u32), output: output as u32 };
                if let Some((partner, _)) = self.held.get(&v) {
                    let partner = values.class_of(Side::A, *partner);
                    values.join(v, partner);
                    continue;
                }
                let found = values.class(class);
                if found.is_shared() || found.b != Some(v) || !found.varies && !self.is_output(v) {
                    continue;
                }
                let alike =
                    self.alike(v, known.get(values.ty(Side::B, v)).map_or(&[], Vec::as_slice));
                if alike.is_empty() {
                    continue;
                }
                match self.proved(&values, class, &alike, &unproved)? {
                    Some((partner, proof)) => {
                        let there = values.class_of(Side::A, partner);
                        values.join(v, there);
                        self.held.insert(v, (partner, Held::Proved(proof)));
                    }
                    None => drop(unproved.insert(v)),
                }
            }
        }
        Ok(values)
    }

    fn is_output(&self, v: Value) -> bool {
        self.programs[1].outputs.iter().any(|(_, o)| *o == v)
    }

    /// Values of the first program that a value of the second may equal, the likeliest first.
    fn alike(&self, v: Value, known: &[Value]) -> Vec<Value> {
        let mine: &[Value] = self.partners.get(&v).map_or(&[], Vec::as_slice);
        if self.numbers.none.is_some() || !self.varies(v) {
            return mine.to_vec();
        }
        let all = mine.iter().chain(known).copied();
        let mut found: Vec<Value> = all.filter(|a| self.numbers.are_alike(*a, v)).collect();
        let [a, b] = self.programs;
        let rank = |x: &Value| {
            let (p, q) = (a.node(x.node), b.node(v.node));
            let same = match (&p.kind, &q.kind) {
                (NodeKind::Apply(f, _), NodeKind::Apply(g, _)) => f == g,
                _ => false,
            };
            let everywhere = self.numbers.are_alike_everywhere(*x, v);
            let is_named = p.origin == q.origin && !p.origin.is_empty();
            (!everywhere, !mine.contains(x), !is_named, !same, *x)
        };
        found.sort_by_key(rank);
        found.dedup();
        found.truncate(TRIED);
        found
    }

    fn varies(&self, v: Value) -> bool {
        !matches!(self.programs[1].node(v.node).kind, NodeKind::Const(_))
    }

    /// The first of these values that is proved equal.
    fn proved(
        &mut self,
        values: &Values<'_>,
        class: ClassId,
        alike: &[Value],
        unproved: &BTreeSet<Value>,
    ) -> Result<Option<(Value, Proved)>, Error> {
        for (i, &partner) in alike.iter().enumerate() {
            let there = values.class_of(Side::A, partner);
            for depth in [0, BEYOND] {
                if depth > 0 && i > 0 {
                    continue;
                }
                let Some(cone) = cone(values, (there, class), depth, PROVED) else { break };
                let of_b: BTreeSet<_> = cone.nodes[1].iter().collect();
                let beneath = unproved.iter().filter(|v| of_b.contains(&v.node)).count();
                let shape = cone.shape();
                if beneath >= UNPROVED || self.failures >= FAILED || self.failed.contains(&shape) {
                    continue;
                }
                match self.prover.prove(&cone)? {
                    Some(proof) => return Ok(Some((partner, proof))),
                    None => {
                        self.failures += 1;
                        self.failed.insert(shape);
                    }
                }
            }
        }
        Ok(None)
    }

    /// The place to report next: two values that stand in each other's place, behind which the most is equal if they are.
    fn place(&self, values: &Values<'_>) -> Option<(Value, Value, Place)> {
        let mut weighed: Vec<_> = Vec::new();
        for v in self.open_values(values) {
            let class = values.class_of(Side::B, v);
            for partner in self.candidates(values, v) {
                let there = values.class_of(Side::A, partner);
                let Some(cone) = cone(values, (there, class), 0, REPORTED) else { continue };
                let behind = self.behind(v, partner);
                let alike = self.numbers.are_alike(partner, v);
                let everywhere = self.numbers.are_alike_everywhere(partner, v);
                let key = (std::cmp::Reverse(behind), !everywhere, !alike, cone.size(), v);
                weighed.push((key, partner, cone));
            }
            if weighed.len() >= WEIGHED {
                break;
            }
        }
        let best = weighed.into_iter().min_by(|x, y| x.0.cmp(&y.0))?;
        let ((_, _, _, _, v), partner, cone) = best;
        let judge = Judge { runner: self.runner, values, numbers: self.numbers };
        let judged = judge.judge(&cone);
        let from = cone.cuts.iter().map(|c| values.definition(*c).1).collect();
        Some((v, partner, Place { cone, judged, values: (partner, v), from }))
    }

    /// Values of the second program that are not known to be equal to one of the first and decide an output by way of such
    /// values alone, in order.
    fn open_values(&self, values: &Values<'_>) -> Vec<Value> {
        let b = self.programs[1];
        let is_open = |v: Value| !values.class(values.class_of(Side::B, v)).is_shared();
        let mut open: BTreeSet<Value> = BTreeSet::new();
        let outputs = values.open_outputs().map(|i| b.outputs[i].1);
        let mut work: Vec<Value> = outputs.collect();
        while let Some(v) = work.pop() {
            if open.insert(v) {
                let args = b.node(v.node).args.iter().copied();
                work.extend(args.filter(|a| is_open(*a)));
            }
        }
        open.into_iter().collect()
    }

    /// What a value may be held against.
    fn candidates(&self, values: &Values<'_>, v: Value) -> Vec<Value> {
        let mut out: Vec<Value> = self.partners.get(&v).cloned().unwrap_or_default();
        if self.numbers.none.is_none() && self.varies(v) {
            let ty = values.ty(Side::B, v);
            let known = by_type(values);
            let more = known.get(ty).map_or(&[][..], Vec::as_slice);
            out.extend(self.alike(v, more));
        }
        let class = values.class_of(Side::B, v);
        let mut seen = BTreeSet::new();
        out.retain(|a| seen.insert(*a) && values.class_of(Side::A, *a) != class);
        let is_output = self.is_output(v);
        // A constant, or a value that another one of the second program equals already, is no place of its own.
        out.retain(|a| {
            let found = values.class(values.class_of(Side::A, *a));
            is_output || found.varies && !found.is_shared()
        });
        out
    }

    /// How many more values of the second program would be values of the first if these two were equal.
    fn behind(&self, v: Value, partner: Value) -> usize {
        let held = |at: Value| match at == v {
            true => Some(partner),
            false => self.held.get(&at).map(|(a, _)| *a),
        };
        settled(self.programs, self.consts, &held).counted().1
    }
}

/// The values of both programs where these of the second are taken to be values of the first.
pub(super) fn settled<'p>(
    programs: [&'p Program; 2],
    consts: &'p CommonConstants,
    held: &dyn Fn(Value) -> Option<Value>,
) -> Values<'p> {
    let mut values = Values::new(programs, consts);
    for n in 0..programs[1].nodes.len() {
        for output in 0..values.enter(Side::B).len() {
            let at = Value { node: NodeId(n as u32), output: output as u32 };
            if let Some(a) = held(at) {
                let there = values.class_of(Side::A, a);
                values.join(at, there);
            }
        }
    }
    values
}
