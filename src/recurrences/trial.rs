//! Whether a scan is a recurrence over chosen operands: samples tell at once where it is not, and laws prove that it is.

use super::scan::{Outside, Scan, Seed};
use mlc_backends::reference;
use mlc_dsl::build::Builder;
use mlc_dsl::canon::ARITHMETIC;
use mlc_dsl::ir::{Attr, Extent, NodeKind, Program, Tensor, Value};
use mlc_explore::{Limits, explore};
use mlc_onnx::RecurrenceStep;
use std::collections::HashMap;
use std::time::Duration;

/// How far values of equal programs may differ, in parts of the largest one. Wrong operands are off by far more.
const APART: f64 = 1e-4;

/// Bytes of samples, at most.
const SAMPLED: usize = 1 << 20;

/// A choice of operands and of an order of the states.
pub(super) struct Trial<'t, 'a> {
    pub scan: &'t Scan<'a>,
    pub step: &'t RecurrenceStep,
    pub chosen: &'t [(Seed, Option<(usize, usize)>)],
    /// Of each state of the scan, which state of the recurrence it is.
    pub order: &'t [usize],
}

/// What is compared: a program that yields the results of the scan and those of the recurrence.
struct Compared {
    program: Program,
    states: usize,
    made: usize,
}

impl Trial<'_, '_> {
    /// The results of the recurrence that the scan makes, if all of its are proven to be.
    pub fn proven(&self, laws: &[u32]) -> Option<Vec<usize>> {
        let compared = self.compared()?;
        let sampled = compared.sampled(self);
        let may_be = |a: usize, b: usize| sampled.as_ref().is_none_or(|s| near(&s[a], &s[b]));
        if !compared.fixed().into_iter().all(|(a, b)| may_be(a, b)) {
            return None;
        }
        let choices: Vec<Vec<usize>> = (0..compared.made)
            .map(|m| {
                let (own, first) = (compared.of_scan(m), compared.of_recurrence());
                (0..self.step.made.len()).filter(|r| may_be(own, first + r)).collect()
            })
            .collect();
        if choices.iter().any(Vec::is_empty) {
            return None;
        }
        let limits =
            Limits { nodes: 6000, rounds: 12, time: Duration::from_secs(60), ..Limits::default() };
        let explored = explore(self.scan.library.clone(), compared.program.clone(), laws, &limits);
        let value = |i: usize| compared.program.outputs[i].1;
        let equal = |a: usize, b: usize| explored.are_equal(value(a), value(b));
        if !compared.fixed().into_iter().all(|(a, b)| equal(a, b)) {
            return None;
        }
        let made = choices.iter().enumerate().map(|(m, all)| {
            let (own, first) = (compared.of_scan(m), compared.of_recurrence());
            let r = all.iter().find(|r| equal(own, first + *r))?;
            Some(self.step.made[*r].0)
        });
        made.collect()
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

/// A matrix product as a sum of products, which is the same in whatever form a step has it.
fn summed(builder: &mut Builder<'_>, a: Value, b: Value) -> Option<Value> {
    let (left, right) = (builder.ty(a).shape.clone(), builder.ty(b).shape.clone());
    let h = left.len().checked_sub(2)?;
    let (rows, columns, depth) = (left[h].clone(), right[h + 1].clone(), left[h + 1].clone());
    let swapped: Vec<i64> = (0..h as i64).chain([h as i64 + 1, h as i64]).collect();
    let transpose = builder.structural().transpose?;
    let b = *builder.apply(transpose, &[Some(Attr::ints(swapped))], &[b]).ok()?.first()?;
    // An axis of one place is none.
    let wide = |e: &Extent| e.as_const() != Some(1);
    let sides: Vec<Extent> = [&rows, &columns].into_iter().filter(|e| wide(e)).cloned().collect();
    let whole = [&left[..h], sides.as_slice(), std::slice::from_ref(&depth)].concat();
    let end = whole.len() - 1;
    let mut factor = |v: Value, side: &Extent, place: usize| {
        let own = if wide(side) { vec![side.clone()] } else { vec![] };
        let shape = [&left[..h], own.as_slice(), std::slice::from_ref(&depth)].concat();
        let v = builder.reshape(v, &shape).ok()?;
        let side = wide(side).then_some(place);
        let map: Vec<i64> = (0..h).chain(side).chain([end]).map(|i| i as i64).collect();
        builder.broadcast(v, &map, &whole).ok()
    };
    let a = factor(a, &rows, h)?;
    let b = factor(b, &columns, h + usize::from(wide(&rows)))?;
    let mul = ARITHMETIC.iter().position(|n| *n == "mul")?;
    let mul = builder.structural().arithmetic[mul]?;
    let product = *builder.apply(mul, &[], &[a, b]).ok()?.first()?;
    let sum = builder.library.find("sum")?;
    let axes = Some(Attr::ints([end as i64]));
    let sum = *builder.apply(sum, &[axes], &[product]).ok()?.first()?;
    builder.reshape(sum, &[&left[..h], &[rows, columns]].concat()).ok()
}

/// The outputs of a program over values in the place of its inputs.
fn copied(
    builder: &mut Builder<'_>,
    program: &Program,
    inputs: &HashMap<String, Value>,
) -> Option<Vec<Value>> {
    let mut new: Vec<Option<Vec<Value>>> = vec![];
    for node in &program.nodes {
        let made = match &node.kind {
            NodeKind::Input(k) => inputs.get(&program.inputs[*k as usize].0).map(|&v| vec![v]),
            NodeKind::Const(c) => Some(vec![builder.constant(program.consts.get(*c).clone())]),
            NodeKind::Apply(call, attrs) => {
                let arg =
                    |a: &Value| new[a.node.0 as usize].as_ref()?.get(a.output as usize).copied();
                let args = node.args.iter().map(arg).collect::<Option<Vec<Value>>>()?;
                if let ([a, b], Some(product)) = (args.as_slice(), builder.library.find("matmul"))
                    && *call == product
                {
                    new.push(Some(vec![summed(builder, *a, *b)?]));
                    continue;
                }
                let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                Some(builder.apply(*call, &attrs, &args).ok()?)
            }
        };
        new.push(made);
    }
    let value =
        |(_, v): &(String, Value)| new[v.node.0 as usize].as_ref()?.get(v.output as usize).copied();
    program.outputs.iter().map(value).collect()
}
