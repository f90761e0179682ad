//! E-graphs from files in the JSON format of egraph-serialize, plain or gzipped, as a view to extract from.
//!
//! Bytes yield a view or an error, in bounded memory. Nothing is guessed: an unknown child, a duplicate node or a negative
//! cost is an error that names it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::marker::PhantomData;

use flate2::read::MultiGzDecoder;
use indexmap::IndexSet;
use mlc_extract::{ClassId, Cost, EGraphView, EGraphViewBuilder};
use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use thiserror::Error;

/// Bytes of JSON that are read; a larger e-graph is refused.
pub const LARGEST: u64 = 64 << 20;

/// Costs that add up to this are refused: sums of more could overflow, and nothing be proven of them.
const IMMENSE: f64 = 1e300;

/// What a gzipped file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// An e-graph and the names in its file.
#[derive(Debug)]
pub struct EGraph {
    /// Classes, nodes, costs, roots.
    pub view: EGraphView,
    /// Names of the classes, by id.
    pub classes: Vec<String>,
    /// Names of the nodes, by id.
    pub nodes: Vec<String>,
}

/// Why bytes are no e-graph.
#[derive(Debug, Error)]
pub enum EGraphError {
    /// The bytes cannot be read or unpacked.
    #[error("cannot read the e-graph: {0}")]
    Io(#[from] std::io::Error),
    /// More than [`LARGEST`].
    #[error("the e-graph has more than {} MiB of JSON", LARGEST >> 20)]
    TooLarge,
    /// No JSON of this form.
    #[error("this is no e-graph in the JSON form of egraph-serialize: {0}")]
    Json(#[from] serde_json::Error),
    /// A child that is no node.
    #[error("node `{node}` has the child `{child}`, which is no node")]
    NoChild {
        /// The node.
        node: String,
        /// What it names.
        child: String,
    },
    /// A cost below zero.
    #[error("node `{node}` costs {cost}, which is negative")]
    Negative {
        /// The node.
        node: String,
        /// Its cost.
        cost: f64,
    },
    /// A cost, or the sum of all, beyond what can be added up.
    #[error(
        "the costs of the nodes add up to {total:e} with node `{node}`, which is not less than 1e300"
    )]
    Immense {
        /// The node.
        node: String,
        /// The sum.
        total: f64,
    },
    /// Nothing to extract.
    #[error("`root_eclasses` is empty")]
    NoRoots,
    /// A root without nodes.
    #[error("root `{0}` is the `eclass` of no node")]
    NoRoot(String),
    /// The view refuses it.
    #[error(transparent)]
    EGraphView(#[from] mlc_extract::EGraphViewError),
}

impl EGraphError {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            EGraphError::Io(_) => "give the text as it is, or one that `gzip` has packed",
            EGraphError::TooLarge => "give a smaller one",
            EGraphError::Json(_) => {
                "it has `nodes` (each by its name, with `op`, `children`, `eclass` and `cost`) and `root_eclasses`"
            }
            EGraphError::NoChild { .. } => "children are names of nodes, not of classes",
            EGraphError::Negative { .. } => "a cost is zero or more",
            EGraphError::Immense { .. } => "give costs in a larger unit",
            EGraphError::NoRoots => "name the classes to extract",
            EGraphError::NoRoot(_) => "roots are names of classes, not of nodes",
            EGraphError::EGraphView(_) => "`nodes` and `root_eclasses` must go together",
        }
    }
}

/// A name where it stands in the text; a copy only if it is written with escapes.
#[derive(Deserialize, PartialEq, Eq, Hash)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Node<'a> {
    #[serde(borrow)]
    eclass: Name<'a>,
    #[serde(borrow, default)]
    children: Vec<Name<'a>>,
    #[serde(default = "one")]
    cost: f64,
}

fn one() -> f64 {
    1.0
}

#[derive(Deserialize)]
struct EGraphFile<'a> {
    #[serde(borrow)]
    nodes: Nodes<'a>,
    #[serde(borrow)]
    root_eclasses: Roots<'a>,
}

/// Different roots, in the order of the file.
struct Roots<'a>(IndexSet<Name<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Roots<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Different<'a>(PhantomData<&'a str>);
        impl<'de: 'a, 'a> Visitor<'de> for Different<'a> {
            type Value = Roots<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of classes")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Roots<'a>, A::Error> {
                let mut roots = IndexSet::new();
                while let Some(root) = list.next_element()? {
                    roots.insert(root);
                }
                Ok(Roots(roots))
            }
        }
        deserializer.deserialize_seq(Different(PhantomData))
    }
}

/// Nodes in the order of the file.
struct Nodes<'a>(Vec<(Name<'a>, Node<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Nodes<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<'a>(PhantomData<&'a str>);
        impl<'de: 'a, 'a> Visitor<'de> for InOrder<'a> {
            type Value = Nodes<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from names to nodes")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Nodes<'a>, A::Error> {
                let mut nodes = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    nodes.push(entry);
                }
                Ok(Nodes(nodes))
            }
        }
        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

/// Reads an e-graph; ids are given in the order of the file.
///
/// # Errors
/// The bytes are no e-graph, or too large a one.
pub fn parse(bytes: &[u8]) -> Result<EGraph, EGraphError> {
    let mut unpacked = Vec::new();
    let text = if bytes.starts_with(&GZIP) {
        MultiGzDecoder::new(bytes).take(LARGEST + 1).read_to_end(&mut unpacked)?;
        unpacked.as_slice()
    } else {
        bytes
    };
    if text.len() as u64 > LARGEST {
        return Err(EGraphError::TooLarge);
    }
    view(serde_json::from_slice(text)?)
}

fn view(file: EGraphFile<'_>) -> Result<EGraph, EGraphError> {
    let Nodes(nodes) = file.nodes;
    let mut builder = EGraphViewBuilder::new();
    let mut classes: HashMap<&str, ClassId> = HashMap::new();
    let mut names = Vec::new();
    let mut class_of: HashMap<&str, ClassId> = HashMap::with_capacity(nodes.len());
    for (Name(name), node) in &nodes {
        let class = *classes.entry(&node.eclass.0).or_insert_with(|| {
            names.push(node.eclass.0.to_string());
            builder.add_class()
        });
        if class_of.insert(name, class).is_some() {
            let twice = format!("node `{name}` is given twice");
            return Err(EGraphError::Json(serde::de::Error::custom(twice)));
        }
    }
    let mut children = Vec::new();
    let mut total = 0.0;
    for (Name(name), node) in &nodes {
        children.clear();
        for Name(child) in &node.children {
            let Some(&class) = class_of.get(child.as_ref()) else {
                let (node, child) = (name.to_string(), child.to_string());
                return Err(EGraphError::NoChild { node, child });
            };
            children.push(class);
        }
        if node.cost < 0.0 {
            return Err(EGraphError::Negative { node: name.to_string(), cost: node.cost });
        }
        total += node.cost;
        if total >= IMMENSE {
            return Err(EGraphError::Immense { node: name.to_string(), total });
        }
        builder.add_node(class_of[name.as_ref()], &children, Cost::new(node.cost));
    }
    if file.root_eclasses.0.is_empty() {
        return Err(EGraphError::NoRoots);
    }
    for Name(root) in &file.root_eclasses.0 {
        let class = classes.get(root.as_ref());
        let class = class.ok_or_else(|| EGraphError::NoRoot(root.to_string()))?;
        builder.add_root(*class);
    }
    let view = builder.build()?;
    Ok(EGraph {
        view,
        classes: names,
        nodes: nodes.into_iter().map(|(Name(name), _)| name.into_owned()).collect(),
    })
}
