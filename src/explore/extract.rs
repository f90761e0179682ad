//! From the e-graph to the cheapest program: the neutral view, the choice, the program.

use super::language::{ENode, Head};
use super::log::LogId;
use super::lower::Explored;
use super::proof::{Closure, Proof};
use egg::Id;
use mlc_dsl::ir::{Attr, NodeKind, Program, Type, Value};
use mlc_dsl::library::CallId;
use mlc_extract::{ClassId, Cost, Extractor, NodeId, Solution, View, ViewBuilder};
use std::collections::HashMap;
use thiserror::Error;

/// Prices of operator applications on a target.
pub trait Prices {
    /// Seconds of one application; `None` if the target does not have the operator.
    fn seconds(
        &self,
        call: CallId,
        attrs: &[Attr],
        args: &[&Type],
        results: &[Type],
    ) -> Option<f64>;
}

/// Why no program was extracted.
#[derive(Debug, Error)]
pub enum ExtractionError {
    /// An output cannot be computed with the target's operators.
    #[error(transparent)]
    Extract(#[from] mlc_extract::ExtractError),
    /// The e-graph is inconsistent.
    #[error("the extracted program does not type: {0}")]
    Type(#[from] mlc_dsl::infer::TypeError),
    /// The view was not accepted.
    #[error(transparent)]
    View(#[from] mlc_extract::ViewError),
}

/// What extraction chose.
pub struct Extracted {
    /// The program.
    pub program: Program,
    /// Its outputs as logged terms, for proofs.
    outputs: Vec<LogId>,
    /// The sum of its operators' prices, each once, and of its constants' bytes.
    pub cost: f64,
    /// The same of the program that was explored, if the target has all its operators.
    pub source_cost: Option<f64>,
}

/// A view, the e-nodes behind its nodes, and the view's class of each e-class.
type Indexed = (View, Vec<ENode>, HashMap<Id, ClassId>);

/// Constants are computed once, before the first run: their price only breaks ties.
const CONSTANT: f64 = 1e-7;

/// Seconds per byte of a constant, before [`CONSTANT`].
const BYTE: f64 = 1e-9;

impl Explored {
    /// The cheapest program under these prices.
    pub fn extract(
        &mut self,
        prices: &dyn Prices,
        extractor: &dyn Extractor,
    ) -> Result<Extracted, ExtractionError> {
        let (view, nodes, index) = self.view(prices)?;
        let incumbent = self.incumbent(&view, &nodes, &index);
        let solution = extractor.extract(&view, incumbent.as_ref())?;
        let cost = solution.dag_cost(&view).seconds();
        let source_cost = incumbent.map(|i| i.dag_cost(&view).seconds());
        let (program, outputs) = self.program(&view, &solution, &nodes, &index)?;
        Ok(Extracted { program, outputs, cost, source_cost })
    }

    /// Classes and nodes that the outputs can reach, priced.
    fn view(&self, prices: &dyn Prices) -> Result<Indexed, ExtractionError> {
        let egg = &self.graph.egg;
        let mut b = ViewBuilder::new();
        let mut index: HashMap<Id, ClassId> = HashMap::new();
        let mut order: Vec<Id> = Vec::new();
        let mut stack: Vec<Id> = self.roots.iter().map(|&r| egg.find(r)).collect();
        while let Some(id) = stack.pop() {
            if index.contains_key(&id) {
                continue;
            }
            index.insert(id, b.add_class());
            order.push(id);
            for n in &egg[id].nodes {
                stack.extend(n.args.iter().map(|&a| egg.find(a)));
            }
        }
        let mut nodes: Vec<ENode> = Vec::new();
        let mut by_node: HashMap<(Id, ENode), NodeId> = HashMap::new();
        for id in order {
            let mut list: Vec<&ENode> = egg[id].nodes.iter().collect();
            list.sort();
            for n in list {
                let Some(price) = self.price(id, n, prices) else { continue };
                let args: Vec<ClassId> = n.args.iter().map(|&a| index[&egg.find(a)]).collect();
                let node = b.add_node(index[&id], &args, Cost::new(price));
                by_node.insert((id, n.clone()), node);
                nodes.push(n.clone());
            }
        }
        for &r in &self.roots {
            b.add_root(index[&egg.find(r)]);
        }
        for bundle in self.bundles(&by_node) {
            b.add_bundle(bundle);
        }
        Ok((b.build()?, nodes, index))
    }

    /// Nodes that pay only together: each family's slices.
    fn bundles(&self, by_node: &HashMap<(Id, ENode), NodeId>) -> Vec<Vec<NodeId>> {
        let egg = &self.graph.egg;
        let slice = self.graph.structural.slice;
        let mut out = Vec::new();
        for classes in &self.bundles {
            let mut bundle: Vec<(Id, NodeId)> = Vec::new();
            for &c in classes {
                let c = egg.find(c);
                let part = egg[c]
                    .nodes
                    .iter()
                    .find(|n| matches!(n.head, Head::Apply(call, _) if Some(call) == slice));
                let node = part.and_then(|n| by_node.get(&(c, n.clone())));
                if let Some(&n) = node
                    && !bundle.iter().any(|(d, _)| *d == c)
                {
                    bundle.push((c, n));
                }
            }
            if bundle.len() >= 2 {
                out.push(bundle.into_iter().map(|(_, n)| n).collect());
            }
        }
        out
    }

    /// Seconds of a node; `None` if it may not be chosen.
    fn price(&self, class: Id, n: &ENode, prices: &dyn Prices) -> Option<f64> {
        let graph = &self.graph;
        let (call, attrs) = match n.head {
            Head::Apply(call, attrs) => (call, attrs),
            // Of equal constants the smaller one is kept: a repetition is read, not stored.
            Head::Const(c) => {
                return Some(CONSTANT * BYTE * graph.consts.get(c).bytes().len() as f64);
            }
            Head::Input(_) | Head::Output(_) => return Some(0.0),
        };
        let args: Vec<&Type> = n.args.iter().map(|&a| graph.type_of(a)).collect();
        let results = &graph.facts(class).types;
        let fed = graph.facts(class).fed_by_constants;
        if fed && !n.args.iter().all(|&a| graph.facts(a).fed_by_constants) {
            return None;
        }
        let price = prices.seconds(call, graph.attrs(attrs), &args, results);
        if fed {
            // Whatever computes a constant, the judge can evaluate it.
            return Some(CONSTANT * price.unwrap_or(1e-3));
        }
        price
    }

    /// The program that was explored, as a choice.
    fn incumbent(
        &self,
        view: &View,
        nodes: &[ENode],
        index: &HashMap<Id, ClassId>,
    ) -> Option<Solution> {
        let egg = &self.graph.egg;
        let mut choice: Vec<Option<NodeId>> = vec![None; view.class_count()];
        for (node, (classes, _)) in self.source.nodes.iter().zip(&self.places) {
            for &class in classes {
                let class = egg.find(class);
                let Some(&c) = index.get(&class) else { continue };
                if choice[c.index()].is_some() {
                    continue;
                }
                let wanted = |n: &ENode| match (&node.kind, n.head) {
                    (NodeKind::Input(i), Head::Input(j)) => *i == j,
                    (NodeKind::Const(a), Head::Const(b)) => *a == b,
                    (NodeKind::Apply(call, attrs), Head::Apply(c, id)) => {
                        *call == c
                            && **self.graph.attrs(id) == **attrs
                            && node.args.iter().zip(&n.args).all(|(v, &a)| {
                                let arg = self.places[v.node.0 as usize].0[v.output as usize];
                                egg.find(arg) == egg.find(a)
                            })
                    }
                    (NodeKind::Apply(..), Head::Output(_)) => classes.len() > 1,
                    _ => false,
                };
                choice[c.index()] =
                    view.nodes(c).iter().copied().find(|&n| wanted(&nodes[n.index()]));
            }
        }
        // The applications behind the outputs of operators with several.
        for i in 0..choice.len() {
            if let Some(n) = choice[i]
                && matches!(nodes[n.index()].head, Head::Output(_))
            {
                let whole = view.children(n)[0];
                if choice[whole.index()].is_none() {
                    choice[whole.index()] = view.nodes(whole).first().copied();
                }
            }
        }
        let solution = Solution::new(choice);
        solution.validate(view).is_ok().then_some(solution)
    }

    /// The chosen program and its outputs as logged terms.
    fn program(
        &mut self,
        view: &View,
        solution: &Solution,
        nodes: &[ENode],
        index: &HashMap<Id, ClassId>,
    ) -> Result<(Program, Vec<LogId>), ExtractionError> {
        let order = solution.topological(view).unwrap_or_default();
        let library = self.graph.library.clone();
        let mut b = mlc_dsl::build::Builder::new(&library);
        let inputs: Vec<Value> =
            self.source.inputs.iter().map(|(n, t)| b.input(n, t.clone())).collect();
        let mut values: HashMap<ClassId, (Vec<Value>, LogId)> = HashMap::new();
        for n in order {
            let node = &nodes[n.index()];
            let args: Vec<(Vec<Value>, LogId)> =
                view.children(n).iter().map(|c| values[c].clone()).collect();
            let log = self.graph.log.term(node.head, args.iter().map(|a| a.1).collect());
            let value = match node.head {
                Head::Input(i) => vec![inputs[i as usize]],
                Head::Const(c) => vec![b.constant(self.graph.consts.get(c).clone())],
                Head::Output(i) => vec![args[0].0[i as usize]],
                Head::Apply(call, attrs) => {
                    let attrs: Vec<Option<Attr>> =
                        self.graph.attrs(attrs).iter().cloned().map(Some).collect();
                    let args: Vec<Value> = args.iter().map(|a| a.0[0]).collect();
                    mlc_dsl::canon::Sink::raw(&mut b, call, &attrs, &args)?
                }
            };
            values.insert(view.class_of(n), (value, log));
        }
        let class = |r: &Id| &index[&self.graph.egg.find(*r)];
        let outputs: Vec<&(Vec<Value>, LogId)> =
            self.roots.iter().map(|r| &values[class(r)]).collect();
        let logs = outputs.iter().map(|o| o.1).collect();
        let names = self.source.outputs.iter().map(|(n, _)| n.clone());
        let outputs = names.zip(outputs).map(|(n, o)| (n, o.0[0])).collect();
        Ok((b.finish(outputs), logs))
    }

    /// Why the extracted program equals the source: `None` only if the log is incomplete.
    pub fn prove(&self, extracted: &Extracted) -> Option<Proof> {
        let mut closure = Closure::new(&self.graph.log);
        let from = self.source.outputs.iter().map(|(_, v)| self.source_log(*v));
        let pairs: Vec<(LogId, LogId)> = from.zip(extracted.outputs.iter().copied()).collect();
        closure.prove_all(&pairs)
    }

    /// The logged term of a value of the source.
    fn source_log(&self, v: Value) -> LogId {
        let (classes, log) = &self.places[v.node.0 as usize];
        if classes.len() > 1 { self.graph.facts(classes[v.output as usize]).rep } else { *log }
    }
}

impl Explored {
    /// A logged term as text: its operator, and its arguments two levels deep.
    pub fn term(&self, id: LogId) -> String {
        self.term_to(id, 3)
    }

    fn term_to(&self, id: LogId, depth: usize) -> String {
        let (head, args) = self.graph.log.get(id);
        let args: Vec<String> = match depth {
            0 if !args.is_empty() => vec!["…".into()],
            _ => args.iter().map(|&a| self.term_to(a, depth - 1)).collect(),
        };
        match head {
            Head::Input(i) => self.source.inputs[i as usize].0.clone(),
            Head::Const(c) => {
                let t = self.graph.consts.get(c);
                if t.shape().is_empty() {
                    format!("{}", t.get_f64(0))
                } else {
                    format!("{}{:?}", t.dtype(), t.shape())
                }
            }
            Head::Output(i) => format!("{}.{i}", args.join(", ")),
            Head::Apply(call, attrs) => {
                let c = self.graph.library.call(call);
                let attrs = c.attrs.iter().zip(self.graph.attrs(attrs).iter());
                let attrs = attrs.map(|(d, a)| format!("{}={a}", d.name));
                let list: Vec<String> = args.into_iter().chain(attrs).collect();
                format!("{}({})", c.name, list.join(", "))
            }
        }
    }
}
