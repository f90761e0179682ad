//! Whether a scan is a recurrence over chosen operands: samples tell at once where it is not, and laws prove that it is.

use super::assignment::Operand;
use super::copies::copied;
use super::scan::{Outside, Scan, Seed};
use mlc_backends::reference;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{NodeId, NodeKind, Program, Tensor, Value};
use mlc_explore::{Limits, explore};
use mlc_onnx::RecurrenceStep;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How far values of equal programs may differ, in parts of the largest one. Wrong operands are off by far more.
const APART: f64 = 1e-4;

/// Bytes of samples, at most.
const SAMPLED: usize = 1 << 20;

/// A choice of operands and of an order of the states.
pub(super) struct Trial<'t, 'a> {
    pub scan: &'t Scan<'a>,
    pub step: &'t RecurrenceStep,
    pub chosen: &'t [Operand],
    /// Of each state of the scan, which state of the recurrence it is.
    pub order: &'t [usize],
}

/// What is compared: a program that yields the results of the scan and those of the recurrence.
struct Compared {
    program: Program,
    states: usize,
    made: usize,
}

/// A choice that samples do not refute: what is compared, and of each result that the scan makes, those of the recurrence that it may be.
pub(super) struct Agreeing {
    compared: Compared,
    choices: Vec<Vec<usize>>,
}

impl Agreeing {
    /// The results of the recurrence that the scan makes, if all of its are proven to be.
    pub fn proven(&self, trial: &Trial<'_, '_>, laws: &[u32]) -> Option<Vec<usize>> {
        let Agreeing { compared, choices } = self;
        let limits =
            Limits { nodes: 6000, rounds: 24, time: Duration::from_secs(60), ..Limits::default() };
        let library = trial.scan.library.clone();
        let explored = explore(library, compared.program.clone(), laws, &limits);
        let value = |i: usize| compared.program.outputs[i].1;
        let equal = |a: usize, b: usize| explored.are_equal(value(a), value(b));
        if !compared.fixed().into_iter().all(|(a, b)| equal(a, b)) {
            return None;
        }
        let made = choices.iter().enumerate().map(|(m, all)| {
            let (own, first) = (compared.of_scan(m), compared.of_recurrence());
            let r = all.iter().find(|r| equal(own, first + *r))?;
            Some(trial.step.made[*r].0)
        });
        made.collect()
    }
}

impl Trial<'_, '_> {
    /// Samples that refute the choice yield the last operand that the refuted result reads.
    pub fn agreeing(&self) -> Result<Agreeing, usize> {
        let last = self.chosen.len().saturating_sub(1);
        let compared = self.compared().ok_or(last)?;
        let sampled = compared.sampled(self);
        let may_be = |a: usize, b: usize| sampled.as_ref().is_none_or(|s| near(&s[a], &s[b]));
        let refuted =
            compared.fixed().into_iter().enumerate().filter(|(_, (a, b))| !may_be(*a, *b));
        if let Some(last) = refuted.map(|(i, _)| self.last_read(i)).min() {
            return Err(last);
        }
        let choices: Vec<Vec<usize>> = (0..compared.made)
            .map(|m| {
                let (own, first) = (compared.of_scan(m), compared.of_recurrence());
                (0..self.step.made.len()).filter(|r| may_be(own, first + r)).collect()
            })
            .collect();
        if choices.iter().any(Vec::is_empty) {
            return Err(last);
        }
        Ok(Agreeing { compared, choices })
    }

    /// The last operand that is read by one of the [fixed](Compared::fixed) results.
    fn last_read(&self, fixed: usize) -> usize {
        let Trial { step, order, .. } = self;
        let r = step.states[order[fixed / 2]];
        let (program, name) = match fixed % 2 {
            0 => (&step.program, format!("/next{r}")),
            _ => (&step.first, format!("/first{r}")),
        };
        let operand = |name: &str| {
            let is_slice = |(k, axis): &&(usize, usize)| name == format!("/slice{k:04}_{axis:02}");
            let slice = step.sequences.iter().find(is_slice).map(|(k, _)| *k);
            slice.or_else(|| name.strip_prefix("/param")?.parse().ok())
        };
        let output = program.outputs.iter().find(|(n, _)| *n == name);
        let mut open: Vec<NodeId> = output.map(|(_, v)| v.node).into_iter().collect();
        let mut seen: HashSet<NodeId> = HashSet::new();
        let mut last = 0;
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                let node = program.node(id);
                if let NodeKind::Input(k) = node.kind {
                    last = last.max(operand(&program.inputs[k as usize].0).unwrap_or(0));
                }
                open.extend(node.args.iter().map(|v| v.node));
            }
        }
        last
    }

    fn compared(&self) -> Option<Compared> {
        let Trial { scan, step, chosen, order } = self;
        let mut builder = Builder::new(scan.library);
        let mut outside = Outside::new(scan);
        let mut of_body: HashMap<String, Value> = HashMap::new();
        let mut of_step: HashMap<String, Value> = HashMap::new();
        let body_type = |name: &str| {
            let input = scan.body.inputs.iter().find(|(n, _)| n == name);
            input.map(|(_, ty)| ty.clone())
        };
        for (name, &s) in scan.states.iter().zip(*order) {
            let v = builder.input(&format!("/own/{name}"), body_type(name)?);
            of_body.insert(name.clone(), v);
            of_step.insert(format!("/state{}", step.states[s]), v);
        }
        let mut slices = vec![];
        for name in &scan.slices {
            let v = builder.input(&format!("/own/{name}"), body_type(name)?);
            of_body.insert(name.clone(), v);
            slices.push(v);
        }
        for (name, seed) in &scan.captured {
            of_body.insert(name.clone(), outside.value(&mut builder, seed)?);
        }
        for &(k, axis) in &step.sequences {
            let is_it = |(s, _): &(Seed, usize)| *s == chosen[k].0;
            let i = scan.sequences.iter().position(is_it)?;
            of_step.insert(format!("/slice{k:04}_{axis:02}"), slices[i]);
        }
        for (k, (seed, moved)) in chosen.iter().enumerate().filter(|(_, (_, m))| m.is_none()) {
            debug_assert!(moved.is_none());
            of_step.insert(format!("/param{k}"), outside.value(&mut builder, seed)?);
        }
        let body = copied(&mut builder, &scan.body, &of_body)?;
        let results = copied(&mut builder, &step.program, &of_step)?;
        let first = copied(&mut builder, &step.first, &of_step)?;
        let named = |program: &Program, values: &[Value], name: String| {
            let at = program.outputs.iter().position(|(n, _)| *n == name)?;
            values.get(at).copied()
        };
        let mut outputs = vec![];
        let states = scan.states.len();
        for (j, &s) in order.iter().enumerate() {
            let r = step.states[s];
            outputs.push(*body.get(j)?);
            outputs.push(named(&step.program, &results, format!("/next{r}"))?);
            outputs.push(outside.value(&mut builder, &scan.initial[j])?);
            outputs.push(named(&step.first, &first, format!("/first{r}"))?);
        }
        let made = body.len().checked_sub(states)?;
        outputs.extend(&body[states..]);
        for (r, _) in &step.made {
            outputs.push(named(&step.program, &results, format!("/made{r}"))?);
        }
        let types = |v: &Value| builder.ty(*v).clone();
        if outputs[..4 * states].chunks(2).any(|pair| types(&pair[0]) != types(&pair[1])) {
            return None;
        }
        let outputs = outputs.into_iter().enumerate().map(|(i, v)| (format!("{i}"), v));
        let program = builder.finish(outputs.collect());
        Some(Compared { program, states, made })
    }
}

impl Compared {
    /// The outputs that must be equal: next states and first ones.
    fn fixed(&self) -> Vec<(usize, usize)> {
        (0..2 * self.states).map(|i| (2 * i, 2 * i + 1)).collect()
    }

    /// The output that is what the scan makes.
    fn of_scan(&self, m: usize) -> usize {
        4 * self.states + m
    }

    /// The first output that is what the recurrence makes.
    fn of_recurrence(&self) -> usize {
        4 * self.states + self.made
    }

    /// All outputs on sampled inputs; nothing where an extent is open or there would be much to compute.
    fn sampled(&self, trial: &Trial<'_, '_>) -> Option<Vec<Tensor>> {
        let mut seed = 1u64;
        let mut next = move || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 40) as f64 / (1u64 << 24) as f64 - 0.5
        };
        let mut inputs = vec![];
        let mut bytes = 0;
        for (_, ty) in &self.program.inputs {
            let shape = ty.known_shape()?;
            let count: usize = shape.iter().product();
            bytes += 8 * count;
            if bytes > SAMPLED {
                return None;
            }
            let values: Vec<f64> = (0..count).map(|_| next()).collect();
            inputs.push(Tensor::from_f64(ty.dtype, shape, &values));
        }
        let values = reference::run_values(&self.program, trial.scan.library, &inputs).ok()?;
        Some(values.iter().map(reference::Array::to_tensor).collect())
    }
}

fn near(a: &Tensor, b: &Tensor) -> bool {
    if a.shape() != b.shape() || a.dtype() != b.dtype() {
        return false;
    }
    let largest = (0..a.len()).map(|i| a.get_f64(i).abs()).fold(0.0, f64::max);
    (0..a.len()).all(|i| {
        let (a, b) = (a.get_f64(i), b.get_f64(i));
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= APART * largest
    })
}
