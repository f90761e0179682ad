//! What reading a file makes of a node that the program lacks: which step of reading removed it, and what stands for it.

use mlc_dsl::shown;
use mlc_onnx::{RawModel, RawNode, ReadAs, origin};
use std::collections::{BTreeSet, HashMap};

/// What a result of a node is read as.
pub(crate) struct Became {
    /// The step of reading that removed the node.
    pub step: &'static str,
    /// What the result is, in words.
    pub is: String,
    /// The node of the program that computes its value, if there is one.
    pub node: Option<String>,
}

/// Nodes of a file by the values that they yield.
pub(crate) struct Makers<'a> {
    raw: &'a RawModel,
    of: HashMap<&'a str, &'a RawNode>,
}

impl<'a> Makers<'a> {
    pub fn new(raw: &'a RawModel) -> Makers<'a> {
        let nodes = raw.graph.nodes.iter();
        Makers { raw, of: nodes.flat_map(|n| n.outputs.iter().map(move |o| (&**o, n))).collect() }
    }

    /// The node that yields a value.
    pub fn of(&self, value: &str) -> Option<&'a RawNode> {
        self.of.get(value).copied()
    }

    /// What is to be said of a node's result; `known` are the nodes of the program.
    pub fn became(&self, node: &RawNode, read: &ReadAs, known: &dyn Fn(&str) -> bool) -> Became {
        let said = |step, is| Became { step, is, node: None };
        match read {
            ReadAs::Constant(ty) if self.varies(node) => said(
                "shapes are computed when the file is read",
                format!("a constant, {ty}: it is computed from extents, which are known"),
            ),
            ReadAs::Constant(ty) => said(
                "constants are folded when the file is read",
                format!("a constant, {ty}: it is computed from constants alone"),
            ),
            ReadAs::Input(name) => said(
                "what changes nothing is left out",
                format!("the input `{}` itself: it changes nothing", shown(name)),
            ),
            ReadAs::Node(name) if known(name) => {
                let reads = |i: &String| self.of(i).is_some_and(|n| origin(n) == name);
                let (step, how) = match node.inputs.iter().any(reads) {
                    true => (
                        "what changes nothing is left out",
                        "it changes nothing, or is read as part of that node",
                    ),
                    false => (
                        "nodes that compute the same are read once",
                        "it is read as part of that node, or computes the same",
                    ),
                };
                let is = format!("what `{}` computes: {how}", shown(name));
                Became { step, is, node: Some(name.clone()) }
            }
            ReadAs::Node(_) => said(
                "what no output needs is not read",
                "no part of what the outputs are computed from".to_string(),
            ),
            ReadAs::Nothing => said(
                "shapes are computed when the file is read",
                "made of extents alone".to_string(),
            ),
        }
    }

    /// True if a node is computed from inputs of the model.
    fn varies(&self, node: &RawNode) -> bool {
        let inputs: BTreeSet<&str> = self.raw.graph.inputs.iter().map(|v| &*v.name).collect();
        let (mut open, mut seen) = (vec![node], BTreeSet::new());
        while let Some(at) = open.pop() {
            for value in at.inputs.iter().filter(|v| seen.insert(v.as_str())) {
                if inputs.contains(value.as_str()) {
                    return true;
                }
                open.extend(self.of(value));
            }
        }
        false
    }
}
