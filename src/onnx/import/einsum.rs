//! Sums of products of more than two operands: the first two become one, and so on, each sum as early as it can be.

use super::Importer;
use super::control::Read;
use super::error::ImportError;
use super::value::NodeValue;
use crate::raw::{RawAttr, RawNode};

/// What stands for the axes without a letter.
const REST: &str = "...";

impl Importer<'_> {
    /// Reads a node of several operands as a chain of nodes of two.
    pub(crate) fn products(&mut self, node: &RawNode, depth: usize) -> Read<Vec<NodeValue>> {
        let fail = |reason: &str| ImportError::node(node, reason);
        let equation = node.attrs.get("equation").and_then(RawAttr::as_str);
        let equation = equation.ok_or_else(|| fail("it has no `equation`"))?;
        let (operands, result) = terms(equation);
        if operands.len() != node.inputs.len() {
            return Err(fail("its equation has another number of operands than it has inputs"));
        }
        let (mut left, mut so_far) = (node.inputs[0].clone(), operands[0].clone());
        let last = operands.len() - 1;
        // A name that no model has: theirs hold no such character.
        let name =
            |i: usize| format!("{}\u{0}{i}", node.outputs.first().map_or("", String::as_str));
        for i in 1..=last {
            let wanted = match i == last {
                true => result.clone(),
                false => {
                    let later: Vec<&String> = operands[i + 1..].iter().chain([&result]).collect();
                    needed(&so_far, &operands[i], &later)
                }
            };
            let equation = format!("{so_far},{}->{wanted}", operands[i]);
            let pair = RawNode {
                inputs: vec![left, node.inputs[i].clone()],
                outputs: vec![name(i)],
                attrs: [("equation".to_string(), RawAttr::Str(equation.into()))].into(),
                ..node.clone()
            };
            self.node(&pair, depth + 1)?;
            (left, so_far) = (name(i), wanted);
        }
        let value = self.values.get(&left).cloned().ok_or_else(|| fail("it has no result"))?;
        (1..=last).for_each(|i| drop(self.values.remove(&name(i))));
        Ok(vec![value])
    }
}

/// The labels of the operands and of the result, without white space. A result that is not written has the labels that stand once, in
/// alphabetical order, after the axes without a letter.
fn terms(equation: &str) -> (Vec<String>, String) {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (operands, result) = match equation.split_once("->") {
        Some((operands, result)) => (operands, Some(result.to_string())),
        None => (equation.as_str(), None),
    };
    let implied = || {
        let letters = || operands.chars().filter(|c| c.is_alphabetic());
        let mut once: Vec<char> =
            letters().filter(|c| letters().filter(|d| d == c).count() == 1).collect();
        once.sort_unstable();
        let rest = if operands.contains(REST) { REST } else { "" };
        format!("{rest}{}", once.into_iter().collect::<String>())
    };
    let result = result.unwrap_or_else(implied);
    (operands.split(',').map(str::to_string).collect(), result)
}

/// The labels of two operands that later ones or the result have.
fn needed(a: &str, b: &str, later: &[&String]) -> String {
    let mut out = String::new();
    if a.contains(REST) || b.contains(REST) {
        out.push_str(REST);
    }
    for c in a.chars().chain(b.chars()).filter(|c| *c != '.') {
        if !out.contains(c) && later.iter().any(|l| l.contains(c)) {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_fall_apart() {
        for (equation, operands, result) in [
            ("ab, bc ,cd -> ad", &["ab", "bc", "cd"][..], "ad"),
            ("...i,ij,jk", &["...i", "ij", "jk"], "...k"),
            ("b,a,b", &["b", "a", "b"], "a"),
        ] {
            assert_eq!(
                terms(equation),
                (operands.iter().map(|s| s.to_string()).collect(), result.into())
            );
        }
        let later = ["cd".to_string(), "ad".to_string()];
        assert_eq!(needed("ab", "bc", &later.iter().collect::<Vec<_>>()), "ac");
        assert_eq!(needed("...b", "b", &[]), "...");
    }
}
