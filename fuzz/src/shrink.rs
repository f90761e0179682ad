//! Shrinks failing cases, and finds the laws that are to blame.

use crate::primitive::{Noise, trace, with_inputs};
use mlc_dsl::ir::{Node, NodeId, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::Library;

/// A program and its inputs.
#[derive(Clone, Debug)]
pub struct FailingProgram {
    /// What fails.
    pub program: Program,
    /// One tensor per input.
    pub inputs: Vec<Tensor>,
}

/// The smallest case found that still fails, trying at most `budget` others.
pub fn shrink(
    case: FailingProgram,
    library: &Library,
    budget: usize,
    fails: &dyn Fn(&FailingProgram) -> bool,
) -> FailingProgram {
    let mut s = Shrinker { best: case, library, left: budget, fails };
    while s.outputs() || s.inputs() || s.arguments() {}
    s.best
}

struct Shrinker<'a> {
    best: FailingProgram,
    library: &'a Library,
    left: usize,
    fails: &'a dyn Fn(&FailingProgram) -> bool,
}

impl Shrinker<'_> {
    /// Takes a case if it fails.
    fn offer(&mut self, program: &Program, inputs: &[Tensor]) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let (program, kept) = with_inputs(&program.pruned());
        let inputs = kept.iter().map(|&i| inputs[i].clone()).collect();
        let case = FailingProgram { program, inputs };
        let smaller = operators(&case.program) < operators(&self.best.program)
            || case.program.outputs.len() < self.best.program.outputs.len();
        if smaller && (self.fails)(&case) {
            self.best = case;
            return true;
        }
        false
    }

    /// One value as the only output, early ones first.
    fn outputs(&mut self) -> bool {
        let p = self.best.program.clone();
        let inputs = self.best.inputs.clone();
        for (i, n) in p.nodes.iter().enumerate() {
            if !matches!(n.kind, NodeKind::Apply(..)) {
                continue;
            }
            for output in 0..n.types.len() as u32 {
                let v = Value { node: NodeId(i as u32), output };
                let mut q = p.clone();
                q.outputs = vec![("y".into(), v)];
                if self.offer(&q, &inputs) {
                    return true;
                }
            }
        }
        false
    }

    /// A node becomes an input that holds its value.
    fn inputs(&mut self) -> bool {
        let p = self.best.program.clone();
        let Ok(values) = trace(&p, self.library, &self.best.inputs, Noise::None) else {
            return false;
        };
        for i in (0..p.nodes.len()).rev() {
            let n = &p.nodes[i];
            if !matches!(n.kind, NodeKind::Apply(..)) || n.types.len() != 1 {
                continue;
            }
            let mut q = p.clone();
            let kind = NodeKind::Input(q.inputs.len() as u32);
            q.nodes[i] = Node { kind, args: vec![], types: n.types.clone(), origin: String::new() };
            q.inputs.push((format!("held{i}"), n.types[0].clone()));
            let mut inputs = self.best.inputs.clone();
            inputs.push(values.values[i][0].to_tensor());
            if self.offer(&q, &inputs) {
                return true;
            }
        }
        false
    }

    /// A node is left out: an argument of its type takes its place.
    fn arguments(&mut self) -> bool {
        let p = self.best.program.clone();
        let inputs = self.best.inputs.clone();
        for (i, n) in p.nodes.iter().enumerate() {
            if !matches!(n.kind, NodeKind::Apply(..)) || n.types.len() != 1 {
                continue;
            }
            for arg in n.args.iter().filter(|a| p.ty(**a) == &n.types[0]) {
                let mut q = p.clone();
                let swap = |v: &mut Value| {
                    if v.node.0 as usize == i {
                        *v = *arg;
                    }
                };
                q.nodes.iter_mut().flat_map(|n| &mut n.args).for_each(swap);
                q.outputs.iter_mut().for_each(|(_, v)| swap(v));
                if self.offer(&q, &inputs) {
                    return true;
                }
            }
        }
        false
    }
}

/// Operator applications of a program.
pub fn operators(program: &Program) -> usize {
    program.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Apply(..))).count()
}

/// The laws to blame: those of `fired` without which alone the failure disappears; if there is none,
/// a set without which it does; if there is none either, no law is.
pub fn blame(fired: &[String], fails: &dyn Fn(&[String]) -> bool) -> Vec<String> {
    if fired.is_empty() || fails(fired) {
        return Vec::new();
    }
    let alone: Vec<String> =
        fired.iter().filter(|l| !fails(std::slice::from_ref(l))).cloned().collect();
    if !alone.is_empty() {
        return alone;
    }
    // Several laws lead to the failure: keep only those that are needed to prevent it.
    let mut off = fired.to_vec();
    for law in fired {
        let fewer: Vec<String> = off.iter().filter(|l| *l != law).cloned().collect();
        if !fails(&fewer) {
            off = fewer;
        }
    }
    off
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blame_finds_one_several_or_none() {
        let fired: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let has = |off: &[String], l: &str| off.iter().any(|o| o == l);
        assert_eq!(blame(&fired, &|off| !has(off, "b")), ["b"]);
        assert_eq!(blame(&fired, &|off| !(has(off, "a") && has(off, "c"))), ["a", "c"]);
        assert!(blame(&fired, &|_| true).is_empty());
    }
}
