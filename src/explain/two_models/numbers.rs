//! The numbers of two programs on seeded inputs: which values look alike. Only proposes: laws and the f64 judge decide.

use super::prove::copied;
use super::values::{Side, Values};
use crate::error::Error;
use crate::pipeline::options::Options;
use crate::pipeline::selfcheck;
use mlc_dsl::ir::{Node, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::Library;
use mlc_extract::resources;
use mlc_verify::random_inputs::{self, Style, Symbols};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Inputs for both programs.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// For people.
    pub name: String,
    pub inputs: Vec<Tensor>,
}

/// Samples by which values are told apart; the others only refute.
const TELLING: usize = 2;

/// Elements of a value that are looked at.
const LOOKED_AT: usize = 61;

/// Values are alike if elements differ by no more than this part of the largest.
const ALIKE: f64 = 1e-3;

/// Some elements of a value.
#[derive(Clone, Debug)]
struct Print {
    is_float: bool,
    len: usize,
    largest: f64,
    elements: Vec<f64>,
}

/// What both programs compute on samples.
#[derive(Default)]
pub(super) struct Numbers {
    pub samples: Vec<Sample>,
    prints: [HashMap<Value, Vec<Print>>; 2],
    /// For each sample the outputs of both, as they are, without anything decided.
    pub outputs: Vec<[Vec<Tensor>; 2]>,
    /// Why there are none.
    pub none: Option<String>,
    /// Samples on which a model does not run.
    pub refused: Vec<String>,
}

/// What runs need.
#[derive(Clone, Copy)]
pub(super) struct Runner<'a> {
    pub library: &'a Arc<Library>,
    pub options: &'a Options,
}

impl Runner<'_> {
    /// Runs a program on this machine's processor.
    pub fn run(&self, program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
        selfcheck::run(program, self.library, inputs, self.options.threads)
            .map_err(|e| e.to_string())
    }

    /// These values of a program.
    pub fn values(
        &self,
        program: &Program,
        wanted: &[Value],
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, String> {
        let mut program = program.clone();
        let named = wanted.iter().enumerate().map(|(i, v)| (i.to_string(), *v));
        program.outputs = named.collect();
        self.run(&program.pruned(), inputs)
    }

    /// Draws samples, and runs both programs on them with all values kept.
    pub fn numbers(&self, programs: [&Program; 2]) -> Result<Numbers, Error> {
        let symbols = random_inputs::symbols(programs[0], self.library);
        let mut numbers = Numbers::default();
        for sample in self.samples(programs[0], &symbols) {
            let ran = [Side::A, Side::B].map(|side| {
                let program = programs[side as usize];
                Ok((self.run(program, &sample.inputs)?, self.all(program, &sample.inputs)?))
            });
            match ran {
                [Ok((x, a)), Ok((y, b))] => {
                    numbers.outputs.push([x, y]);
                    for (side, all) in [a, b].into_iter().enumerate() {
                        let prints = &mut numbers.prints[side];
                        all.into_iter().for_each(|(v, p)| prints.entry(v).or_default().push(p));
                    }
                    numbers.samples.push(sample);
                }
                [a, b] => {
                    let which = match (&a, &b) {
                        (Err(_), Err(_)) => "both fail",
                        (Ok(_), _) => "the second fails",
                        (_, Ok(_)) => "the first fails",
                    };
                    let why: String = a.err().or(b.err()).unwrap_or_default();
                    numbers.refused.push(format!("{}: {which}: {why}", sample.name));
                }
            }
        }
        if numbers.samples.is_empty() {
            let why = numbers.refused.first().cloned();
            numbers.none = Some(why.unwrap_or_else(|| "no inputs can be drawn".into()));
        }
        Ok(numbers)
    }

    /// Ordinary numbers, others, silence, and what shows more.
    fn samples(&self, program: &Program, symbols: &Symbols) -> Vec<Sample> {
        let (library, seed) = (self.library, self.options.seed);
        let drawn = |style: Style, seed: u64, name: &str| {
            let inputs = random_inputs::styled(program, library, style, seed, symbols)?;
            Some(Sample { name: name.to_string(), inputs })
        };
        let known = random_inputs::styles(program, library);
        let mut out = Vec::new();
        out.extend(drawn(Style::Ordinary, seed, Style::Ordinary.name()));
        out.extend(drawn(Style::Ordinary, seed ^ OTHER, "standard normal, others"));
        if let Some(first) = out.first() {
            let inputs = first.inputs.iter().map(zeros).collect();
            out.push(Sample { name: "zeros".into(), inputs });
        }
        let more = [Style::Zeros, Style::Tiny, Style::Large, Style::Others, Style::Ends];
        let more = more.into_iter().filter(|s| known.contains(s));
        out.extend(more.filter_map(|s| drawn(s, seed, s.name())));
        out
    }

    /// All values of a program that inputs decide.
    fn all(&self, program: &Program, inputs: &[Tensor]) -> Result<Vec<(Value, Print)>, String> {
        let mut varies = vec![false; program.nodes.len()];
        let mut wanted = Vec::new();
        for (i, node) in program.nodes.iter().enumerate() {
            let is_input = matches!(node.kind, NodeKind::Input(_));
            varies[i] = is_input || node.args.iter().any(|a| varies[a.node.0 as usize]);
            if varies[i] {
                let results = 0..node.types.len() as u32;
                wanted.extend(results.map(|output| Value { node: NodeId(i as u32), output }));
            }
        }
        self.in_parts(program, wanted, inputs)
    }

    /// These values of a program, as prints and outputs need them: so many at a time as memory holds.
    fn in_parts(
        &self,
        program: &Program,
        wanted: Vec<Value>,
        inputs: &[Tensor],
    ) -> Result<Vec<(Value, Print)>, String> {
        let symbols = resources::symbols_of(program, inputs);
        let mut out = Vec::with_capacity(wanted.len());
        let (mut part, mut bytes) = (Vec::new(), 0u64);
        let last = wanted.len().saturating_sub(1);
        for (i, v) in wanted.into_iter().enumerate() {
            bytes = bytes.saturating_add(resources::size(program.ty(v), &symbols, 8));
            part.push(v);
            if bytes > AT_ONCE || i == last {
                let tensors = self.values(program, &part, inputs)?;
                out.extend(part.drain(..).zip(tensors.iter().map(print)));
                bytes = 0;
            }
        }
        Ok(out)
    }
}

/// Bytes of values that are kept at once, as 64-bit numbers.
const AT_ONCE: u64 = 2 << 30;

/// Makes the second ordinary sample another one.
const OTHER: u64 = 0x7077;

/// As many zeros of the same type.
fn zeros(t: &Tensor) -> Tensor {
    match t.dtype().is_float() {
        true => Tensor::from_f64(t.dtype(), t.shape().to_vec(), &vec![0.0; t.len()]),
        false => Tensor::from_i64(t.dtype(), t.shape().to_vec(), &vec![0; t.len()]),
    }
}

fn print(t: &Tensor) -> Print {
    let is_float = t.dtype().is_float();
    let n = t.len();
    // A step that is coprime to usual extents meets all rows and columns.
    let at = |i: usize| if n <= LOOKED_AT { i } else { (i * 7919 + i * (n / LOOKED_AT)) % n };
    let elements: Vec<f64> = (0..n.min(LOOKED_AT)).map(|i| t.get_f64(at(i))).collect();
    let largest = elements.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    Print { is_float, len: n, largest, elements }
}

impl Print {
    fn is_like(&self, other: &Print) -> bool {
        if (self.is_float, self.len) != (other.is_float, other.len) {
            return false;
        }
        let allowed = if self.is_float { ALIKE * self.largest.max(other.largest) } else { 0.0 };
        let pairs = self.elements.iter().zip(&other.elements);
        pairs
            .into_iter()
            .all(|(x, y)| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= allowed)
    }
}

impl Numbers {
    /// Whether a value of the first program and one of the second look alike on ordinary inputs.
    pub fn are_alike(&self, a: Value, b: Value) -> bool {
        self.alike_on(a, b, TELLING)
    }

    /// The same on all samples.
    pub fn are_alike_everywhere(&self, a: Value, b: Value) -> bool {
        self.alike_on(a, b, usize::MAX)
    }

    fn alike_on(&self, a: Value, b: Value, samples: usize) -> bool {
        let (Some(x), Some(y)) = (self.prints[0].get(&a), self.prints[1].get(&b)) else {
            return false;
        };
        x.iter().zip(y).take(samples).all(|(x, y)| x.is_like(y))
    }

    /// Runs the second program again, with values of the first in the place of some of its own.
    pub fn assume(
        &mut self,
        runner: &Runner<'_>,
        programs: [&Program; 2],
        same: &BTreeMap<Value, Value>,
    ) -> Result<(), String> {
        let (program, moved) = with_inputs(programs[1], same);
        let wanted: Vec<Value> = same.values().copied().collect();
        let own: BTreeSet<Value> = self.prints[1].keys().copied().collect();
        let mut prints: HashMap<Value, Vec<Print>> = HashMap::new();
        for sample in &self.samples {
            let mut inputs = sample.inputs.clone();
            inputs.extend(runner.values(programs[0], &wanted, &sample.inputs)?);
            let there: Vec<Value> = own.iter().map(|v| moved[v]).collect();
            let found = runner.in_parts(&program, there, &inputs)?;
            for (v, (_, print)) in own.iter().zip(found) {
                prints.entry(*v).or_default().push(print);
            }
        }
        self.prints[1] = prints;
        Ok(())
    }
}

/// A program that reads some of its values as inputs, in the order of the map; and where its values are there.
fn with_inputs(
    program: &Program,
    same: &BTreeMap<Value, Value>,
) -> (Program, HashMap<Value, Value>) {
    let mut out = Program { inputs: program.inputs.clone(), ..Program::default() };
    let first = out.inputs.len();
    let types: Vec<Type> = same.keys().map(|v| program.ty(*v).clone()).collect();
    out.inputs.extend(types.into_iter().enumerate().map(|(i, t)| (format!("assumed {i}"), t)));
    let mut new: Vec<NodeId> = Vec::new();
    let mut moved: HashMap<Value, Value> = HashMap::new();
    for (i, node) in program.nodes.iter().enumerate() {
        let args: Vec<Value> = node.args.iter().map(|a| moved[a]).collect();
        let mut plain = node.clone();
        plain.args.clear();
        let id = copied(&mut out, program, &plain, &new);
        out.nodes[id.0 as usize].args = args;
        new.push(id);
        for output in 0..node.types.len() as u32 {
            let own = Value { node: NodeId(i as u32), output };
            let value = match same.keys().position(|v| *v == own) {
                Some(at) => {
                    let kind = NodeKind::Input((first + at) as u32);
                    let types = vec![program.ty(own).clone()];
                    let node = Node { kind, args: vec![], types, origin: String::new() };
                    Value { node: out.push(node), output: 0 }
                }
                None => Value { node: id, output },
            };
            moved.insert(own, value);
        }
    }
    out.outputs = program.outputs.iter().map(|(n, v)| (n.clone(), moved[v])).collect();
    (out, moved)
}

/// For each value of the second program those of the first of the same type, to look for ones that are alike.
pub(super) fn by_type(values: &Values<'_>) -> HashMap<Type, Vec<Value>> {
    let mut out: HashMap<Type, Vec<Value>> = HashMap::new();
    let program = values.programs[0];
    for (i, node) in program.nodes.iter().enumerate() {
        for (output, ty) in node.types.iter().enumerate() {
            let v = Value { node: NodeId(i as u32), output: output as u32 };
            let class = values.class(values.class_of(Side::A, v));
            if class.varies && class.a == Some(v) {
                out.entry(ty.clone()).or_default().push(v);
            }
        }
    }
    out
}
