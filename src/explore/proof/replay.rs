//! Replays a proof: both sides of every equation as values of one program.

use super::Proof;
use super::log::LogId;
use crate::graph::language::Head;
use crate::graph::lower::Explored;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::canon::Sink;
use mlc_dsl::ir::{Attr, Program, Value};
use mlc_dsl::typing::infer::TypeError;
use std::collections::{BTreeSet, HashMap};

/// The values of terms in a program, an application's one per output.
pub(crate) type TermValues = HashMap<LogId, Vec<Value>>;

impl Explored {
    /// A program over the source's inputs with two outputs per step of a proof: what was there, and what
    /// it equals. Running it checks every step numerically.
    pub fn replay(&self, proof: &Proof) -> Result<Program, TypeError> {
        let library = self.library().clone();
        let mut b = Builder::new(&library);
        let inputs: Vec<Value> =
            self.source.inputs.iter().map(|(n, t)| b.input(n, t.clone())).collect();
        let terms = proof.steps.iter().flat_map(|s| [s.left, s.right]);
        let values = self.built(&mut b, terms, &inputs, TermValues::new())?;
        let sides = proof.steps.iter().enumerate().flat_map(|(i, s)| {
            [(format!("{i}.left"), values[&s.left][0]), (format!("{i}.right"), values[&s.right][0])]
        });
        let sides = sides.collect();
        Ok(b.finish(sides))
    }

    /// Adds terms to a program, down to those that it has already.
    pub(crate) fn built(
        &self,
        b: &mut Builder<'_>,
        terms: impl Iterator<Item = LogId>,
        inputs: &[Value],
        mut values: TermValues,
    ) -> Result<TermValues, TypeError> {
        let mut wanted: BTreeSet<LogId> = BTreeSet::new();
        let mut stack: Vec<LogId> = terms.collect();
        while let Some(id) = stack.pop() {
            if !values.contains_key(&id) && wanted.insert(id) {
                stack.extend(self.graph.log.get(id).1);
            }
        }
        // A term is logged after its arguments.
        for id in wanted {
            let (head, args) = self.graph.log.get(id);
            let v = match head {
                Head::Input(i) => vec![inputs[i as usize]],
                Head::Const(_) | Head::PerCopyConstant(_) => {
                    vec![b.constant(self.constant(head, 0).clone())]
                }
                Head::Output(i) => vec![values[&args[0]][i as usize]],
                Head::Apply(call, attrs) => {
                    let attrs: Vec<Option<Attr>> =
                        self.graph.attrs(attrs).iter().cloned().map(Some).collect();
                    let args: Vec<Value> = args.iter().map(|a| values[a][0]).collect();
                    b.raw(call, &attrs, &args)?
                }
            };
            values.insert(id, v);
        }
        Ok(values)
    }
}
