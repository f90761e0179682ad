//! Converts chosen nodes to programs, logged terms, proofs and texts.

use super::{Choice, Extracted, Producer};
use crate::graph::language::Head;
use crate::graph::lower::Explored;
use crate::proof::log::LogId;
use crate::proof::{CongruenceClosure, Proof, ProofStep};
use egg::Id;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::canon::Sink;
use mlc_dsl::ir::{Attr, NodeId, Tensor, Value};
use mlc_dsl::typing::infer::TypeError;
use std::collections::HashMap;

impl Explored {
    /// Adds the chosen nodes to a program, for the copy of that number, and returns the values of the part's roots.
    /// Each kernel is a group of its nodes. `inputs` are those of the explored program, `leaves` those of the part.
    /// A node that computes a value of the explored program inherits the origin that `origin` has for it.
    pub fn emit(
        &self,
        choice: &Choice,
        b: &mut Builder<'_>,
        inputs: &dyn Fn(u32) -> Value,
        leaves: &[Value],
        copy: usize,
        origin: &dyn Fn(NodeId) -> String,
    ) -> Result<Vec<Value>, TypeError> {
        let origins = self.origins();
        let mut values: HashMap<Id, Vec<Value>> = HashMap::new();
        for kernel in &choice.kernels {
            // What a kernel has inside is its own: another may compute the same class otherwise.
            let mut inside: HashMap<Id, Vec<Value>> = HashMap::new();
            let mut computed: Vec<NodeId> = Vec::new();
            for (id, chosen) in kernel {
                let arg = |a: &Id| {
                    let a = self.graph.egg.find(*a);
                    inside.get(&a).unwrap_or_else(|| &values[&a])
                };
                let value = match chosen {
                    Producer::Leaf(i) => vec![leaves[*i]],
                    Producer::Node(n) => match n.head {
                        Head::Input(i) => vec![inputs(i)],
                        Head::Const(_) | Head::PerCopyConstant(_) => {
                            vec![b.constant(self.constant(n.head, copy).clone())]
                        }
                        Head::Output(i) => vec![arg(&n.args[0])[i as usize]],
                        Head::Apply(call, attrs) => {
                            let attrs: Vec<Option<Attr>> =
                                self.graph.attrs(attrs).iter().cloned().map(Some).collect();
                            let args: Vec<Value> = n.args.iter().map(|a| arg(a)[0]).collect();
                            b.set_origin(&origins.get(id).map(|n| origin(*n)).unwrap_or_default());
                            let made = b.raw(call, &attrs, &args)?;
                            computed.extend(made.first().map(|v| v.node));
                            made
                        }
                    },
                };
                inside.insert(*id, value);
            }
            b.group(computed.into_iter());
            let root = kernel.last().and_then(|(id, _)| inside.remove_entry(id));
            values.extend(root);
        }
        Ok(choice.roots.iter().map(|r| values[r][0]).collect())
    }

    /// The constant of a head, as the copy of that number has it.
    ///
    /// # Panics
    /// If the head is no constant.
    pub(crate) fn constant(&self, head: Head, copy: usize) -> &Tensor {
        match head {
            Head::Const(c) => self.graph.consts.get(c),
            Head::PerCopyConstant(s) => {
                let all = self.graph.per_copy_values(s);
                self.graph.consts.get(*all.get(copy).unwrap_or(&all[0]))
            }
            _ => unreachable!("only constants are asked for"),
        }
    }

    /// The roots of a part as logged terms over its leaves.
    pub fn logged(&mut self, choice: &Choice) -> Vec<LogId> {
        let mut logs: HashMap<Id, LogId> = HashMap::new();
        for kernel in &choice.kernels {
            let mut inside: HashMap<Id, LogId> = HashMap::new();
            for (id, chosen) in kernel {
                let log = match chosen {
                    Producer::Leaf(_) => self.graph.facts(*id).rep,
                    Producer::Node(n) => {
                        let arg = |a: &Id| {
                            let a = self.graph.egg.find(*a);
                            *inside.get(&a).unwrap_or_else(|| &logs[&a])
                        };
                        let args = n.args.iter().map(arg).collect();
                        self.graph.log.term(n.head, args)
                    }
                };
                inside.insert(*id, log);
            }
            let root = kernel.last().and_then(|(id, _)| inside.remove_entry(id));
            logs.extend(root);
        }
        choice.roots.iter().map(|r| logs[r]).collect()
    }

    /// Why the extracted program equals the source: `None` only if the log is incomplete.
    pub fn prove(&self, extracted: &Extracted) -> Option<Proof> {
        CongruenceClosure::new(&self.graph.log).prove_all(&self.ends(extracted))
    }

    /// The source's outputs, each with the term that was extracted for it.
    pub(crate) fn ends(&self, extracted: &Extracted) -> Vec<(LogId, LogId)> {
        extracted.ends.iter().map(|&(v, end)| (self.source_log(v), end)).collect()
    }

    /// The earlier equations on values that one side of a step may be computed from.
    pub fn beneath(&self, step: &ProofStep) -> Proof {
        CongruenceClosure::of_first(&self.graph.log, step.step).beneath(step.left, step.step)
    }

    /// The logged term of a value of the source.
    pub(crate) fn source_log(&self, v: Value) -> LogId {
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
            Head::Const(_) | Head::PerCopyConstant(_) => {
                let t = self.constant(head, 0);
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
