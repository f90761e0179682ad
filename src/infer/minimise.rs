//! Which candidates the laws found so far derive: equality saturation of both sides, many candidates in one e-graph.
//!
//! Never says whether a candidate holds.

use super::establish::Established;
use super::statement::Candidate;
use super::terms::{Alike, Bank, Node, TermId};
use crate::derivation::bounded;
use crate::stdlib;
use crate::threads;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, Tensor, Type, Value};
use mlc_dsl::library::{CallId, CallKind, ErrorClass, Law, LawOrigin, Library};
use mlc_explore::{Limits, explore};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Candidates of one e-graph.
const TOGETHER: usize = 36;

/// Rounds of it: what takes more to derive stands for itself.
const ROUNDS: u32 = 4;

/// Nodes of an e-graph, and more for each candidate in it.
const NODES: usize = 2_000;
const NODES_EACH: usize = 60;

/// Laws that derive others.
pub struct Known {
    library: Arc<Library>,
    /// By index, without those that keep no error class.
    strict: Vec<u32>,
    /// All of them.
    all: Vec<u32>,
}

impl Known {
    /// These laws, and the definitions of the operators that are asked for; all laws of the texts, if they are to be left out.
    pub fn new(texts: &[(String, String)], laws: String, ops: &[String], beyond: bool) -> Known {
        let mut texts = texts.to_vec();
        texts.push(("found".into(), laws));
        let read = if beyond { stdlib::with } else { stdlib::operators_with };
        let (library, _) = read(&texts);
        let last = library.sources.len() as u32 - 1;
        let ops: Vec<CallId> = ops.iter().filter_map(|n| library.find(n)).collect();
        let known = |l: &Law| beyond || l.source.file == last || is_definition(&library, l, &ops);
        let of = |passes: &dyn Fn(&Law) -> bool| {
            let all = (0u32..).zip(&library.laws);
            all.filter(|(_, l)| known(l) && passes(l)).map(|(i, _)| i).collect::<Vec<u32>>()
        };
        let strict = of(&|l| !matches!(l.error, ErrorClass::Approx { .. }));
        let all = of(&|_| true);
        Known { library: Arc::new(library), strict, all }
    }

    /// For each candidate whether its sides are found equal.
    pub fn derives(&self, banks: &[Bank], candidates: &[Candidate], threads: usize) -> Vec<bool> {
        let chunks: Vec<&[Candidate]> = candidates.chunks(TOGETHER).collect();
        let found =
            threads::map(threads, chunks.len(), &|i| self.derive(banks, chunks[i], &self.strict));
        found.concat()
    }

    /// Whether the laws derive an established one, without those of these numbers among the found.
    pub fn derives_without(&self, banks: &[Bank], law: &Established, left_out: &[String]) -> bool {
        let approx = law.variant.class.starts_with("approx");
        let laws = if approx { &self.all } else { &self.strict };
        let name = |i: &u32| {
            let law = &self.library.laws[*i as usize];
            left_out.iter().all(|n| law.declared_name() != n)
        };
        let laws: Vec<u32> = laws.iter().copied().filter(name).collect();
        self.derive(banks, std::slice::from_ref(&law.candidate), &laws)[0]
    }

    fn derive(&self, banks: &[Bank], candidates: &[Candidate], laws: &[u32]) -> Vec<bool> {
        let mut lowering = Lowering::new(&self.library, banks);
        let sides: Vec<Option<(Value, Value)>> =
            candidates.iter().map(|c| lowering.sides(c)).collect();
        let outputs = sides.iter().flatten().flat_map(|(l, r)| [*l, *r]);
        let outputs = outputs.enumerate().map(|(i, v)| (format!("y{i}"), v)).collect();
        let program = lowering.builder.finish(outputs);
        let values: Vec<Value> = program.outputs.iter().map(|(_, v)| *v).collect();
        let limits = Limits {
            nodes: NODES + NODES_EACH * candidates.len(),
            rounds: ROUNDS,
            time: Duration::from_secs(10),
            ..Limits::default()
        };
        let explored = explore(self.library.clone(), program, laws, &limits);
        let mut pairs = values.chunks_exact(2);
        let equal = |s: &Option<(Value, Value)>| {
            s.is_some() && pairs.next().is_some_and(|p| explored.are_equal(p[0], p[1]))
        };
        sides.iter().map(equal).collect()
    }
}

/// True of the two laws of the definition of an operator that is asked for.
pub fn is_definition(library: &Library, law: &Law, ops: &[CallId]) -> bool {
    let defined = |c: &CallId| {
        let call = library.call(*c);
        matches!(call.kind, CallKind::Def(_)) && law.declared_name() == &*call.name
    };
    matches!(law.origin, LawOrigin::Fold | LawOrigin::Unfold) && ops.iter().any(defined)
}

/// Terms of banks as a program, at the extents of the first environment.
struct Lowering<'a> {
    builder: Builder<'a>,
    banks: &'a [Bank],
    known: HashMap<(usize, TermId, Alike), Option<Value>>,
}

impl<'a> Lowering<'a> {
    fn new(library: &'a Library, banks: &'a [Bank]) -> Lowering<'a> {
        Lowering { builder: Builder::new(library), banks, known: HashMap::new() }
    }

    fn sides(&mut self, c: &Candidate) -> Option<(Value, Value)> {
        // What is asked of elements is the same for both.
        let asks = match c.alike {
            Alike::Everywhere | Alike::Finite => Alike::Everywhere,
            asked @ (Alike::Scaled | Alike::Nonnegative | Alike::Moderate) => asked,
        };
        let bank = &self.banks[c.bank];
        let whole: Vec<u8> = (0..bank.world.dims.len() as u8).collect();
        let shape = bank.world.shape(&whole, 0);
        Some((
            self.operand(c.bank, c.left, asks, &shape)?,
            self.operand(c.bank, c.right, asks, &shape)?,
        ))
    }

    /// A term; a number has the shape of what is beside it.
    fn operand(
        &mut self,
        bank: usize,
        term: TermId,
        asks: Alike,
        shape: &[usize],
    ) -> Option<Value> {
        let b = &self.banks[bank];
        let Node::Number(i) = b.term(term).node else { return self.term(bank, term, asks) };
        let number = b.exprs[i].number(asks.environment())?;
        self.number(b.term(term).dtype, number, shape)
    }

    fn number(&mut self, dtype: DType, number: f64, shape: &[usize]) -> Option<Value> {
        let scalar = self.builder.constant(Tensor::from_f64(dtype, vec![], &[number]));
        let shape: Vec<Extent> = shape.iter().map(|n| Extent::from(*n as i64)).collect();
        self.builder.broadcast(scalar, &[], &shape).ok()
    }

    fn term(&mut self, bank: usize, term: TermId, asks: Alike) -> Option<Value> {
        if let Some(v) = self.known.get(&(bank, term, asks)) {
            return *v;
        }
        let made = self.made(bank, term, asks);
        self.known.insert((bank, term, asks), made);
        made
    }

    fn made(&mut self, bank: usize, term: TermId, asks: Alike) -> Option<Value> {
        let b = &self.banks[bank];
        match &b.term(term).node {
            Node::Number(_) => None,
            Node::Var(i) => {
                let v = &b.world.vars[*i];
                let shape = b.world.shape(&v.dims, 0);
                let ty = Type::known(v.dtype, &shape);
                let input = self.builder.input(&format!("{bank} {} {asks:?}", v.name), ty);
                match v.dtype.is_float() {
                    true => asked(&mut self.builder, input, asks),
                    false => Some(input),
                }
            }
            Node::Apply(op, args, attrs) => {
                let places = b.places(args)?;
                let mut values = Vec::new();
                let tensor =
                    args.iter().position(|a| !matches!(b.term(*a).node, Node::Number(_)))?;
                let first = self.term(bank, args[tensor], asks)?;
                let shape = match &places[tensor] {
                    Some(dims) => b.world.shape(dims, 0),
                    None => self.builder.ty(first).known_shape()?,
                };
                for (a, place) in args.iter().zip(&places) {
                    let v = self.operand(bank, *a, asks, &shape)?;
                    values.push(match place {
                        Some(to) => self.broadcast(bank, *a, v, to)?,
                        None => v,
                    });
                }
                let attrs: Vec<Option<Attr>> = attrs
                    .iter()
                    .map(|a| b.attribute(*a, args[0], environment_of_attrs(b, *a, asks)))
                    .collect::<Option<_>>()?;
                self.builder.apply(b.ops[*op].call, &attrs, &values).ok()?.first().copied()
            }
        }
    }

    fn broadcast(&mut self, bank: usize, term: TermId, v: Value, to: &[u8]) -> Option<Value> {
        let (map, shape) = self.banks[bank].broadcast(term, to, 0)?;
        let shape: Vec<Extent> = shape.iter().map(|n| Extent::from(*n as i64)).collect();
        self.builder.broadcast(v, &map, &shape).ok()
    }
}

/// An input whose elements are known to be as is asked, by how it is computed.
fn asked(builder: &mut Builder<'_>, v: Value, asks: Alike) -> Option<Value> {
    match asks {
        Alike::Everywhere | Alike::Finite | Alike::Scaled => Some(v),
        Alike::Nonnegative => bounded(builder, v, (0.0, f64::INFINITY)),
        Alike::Moderate => bounded(builder, v, (0.25, 7.0)),
    }
}

/// The environment in which an attribute is looked up: numbers meet what is asked, lists belong to the extents of the first one.
fn environment_of_attrs(b: &Bank, expr: Option<usize>, asks: Alike) -> usize {
    match expr {
        Some(i) if b.exprs[i].is_number() => asks.environment(),
        _ => 0,
    }
}
