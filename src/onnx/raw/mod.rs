//! An ONNX model as plain, validated data: the output of the reader and the input of the writer.
//!
//! Names are resolved, functions are inlined, constants are tensors and nodes are topologically
//! sorted. The semantics of operators is not known here, and no
//! protobuf type is visible: a `RawModel` is as easy to build from a program as from a file.

pub(crate) mod error;
pub(crate) mod packed;
pub(crate) mod tensor;

use bytes::Bytes;
use indexmap::IndexMap;
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::shown;
use std::collections::{BTreeMap, BTreeSet};

/// A whole model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawModel {
    /// Version of the file format.
    pub ir_version: i64,
    /// Operator set version by domain; `""` is the standard domain.
    pub opset_imports: BTreeMap<String, i64>,
    /// The tool that made the model.
    pub producer_name: String,
    /// The version of that tool.
    pub producer_version: String,
    /// The model's own namespace.
    pub domain: String,
    /// The model's own version.
    pub model_version: i64,
    /// Free text.
    pub doc_string: String,
    /// Free key-value pairs.
    pub metadata_props: BTreeMap<String, String>,
    /// Functions are inlined in it.
    pub graph: RawGraph,
}

/// A graph, or a subgraph held by an attribute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawGraph {
    /// As in the file; may be empty.
    pub name: String,
    /// What a caller gives; initialisers are not among them.
    pub inputs: Vec<RawValueInfo>,
    /// What a caller gets.
    pub outputs: Vec<RawValueInfo>,
    /// What is known of values in between.
    pub value_infos: Vec<RawValueInfo>,
    /// Initialisers that the file also lists as inputs: a caller may give another value.
    pub defaults: Vec<RawValueInfo>,
    /// Constants, those of `Constant` nodes among them.
    pub initializers: IndexMap<String, Tensor>,
    /// Operations; each value is defined before its use.
    pub nodes: Vec<RawNode>,
}

impl RawGraph {
    /// The domains of all nodes, those of bodies included.
    pub fn domains(&self) -> BTreeSet<&str> {
        let mut out: BTreeSet<&str> = self.nodes.iter().map(|n| n.domain.as_str()).collect();
        let subgraphs = self.nodes.iter().flat_map(|n| n.attrs.values().flat_map(RawAttr::graphs));
        out.extend(subgraphs.flat_map(RawGraph::domains));
        out
    }
}

/// A named value with what is known of its type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawValueInfo {
    /// The value's name.
    pub name: String,
    /// Its element type, if known.
    pub dtype: Option<DType>,
    /// Its extents, if the rank is known.
    pub dims: Option<Vec<RawDim>>,
    /// What holds tensors of this type, outermost first; empty for a tensor.
    pub containers: Vec<Container>,
}

impl RawValueInfo {
    /// Writes the extents of symbols into its shape.
    pub fn bind(&mut self, extents: &BTreeMap<String, u64>) {
        for d in self.dims.iter_mut().flatten() {
            if let RawDim::Symbol(s) = d
                && let Some(n) = extents.get(s)
            {
                *d = RawDim::Known(*n);
            }
        }
    }
}

/// What holds a tensor, or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// Tensors in an order.
    Sequence,
    /// One or none.
    Optional,
    /// Values by keys of this type.
    Map(DType),
}

/// One extent of a declared shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawDim {
    /// A number.
    Known(u64),
    /// A name; equal names are equal extents.
    Symbol(String),
    /// Nothing is known.
    Unknown,
}

impl std::fmt::Display for RawDim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RawDim::Known(n) => write!(f, "{n}"),
            RawDim::Symbol(s) => f.write_str(&shown(s)),
            RawDim::Unknown => f.write_str("?"),
        }
    }
}

/// One operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawNode {
    /// The operator, as `MatMul`.
    pub op_type: String,
    /// The operator's namespace; `""` is the standard one.
    pub domain: String,
    /// The node's name; may be empty and need not be unique.
    pub name: String,
    /// Values read, by position; `""` is an absent optional input.
    pub inputs: Vec<String>,
    /// Values defined, by position; `""` is an unused output.
    pub outputs: Vec<String>,
    /// Attributes by name.
    pub attrs: IndexMap<String, RawAttr>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum RawAttr {
    /// An integer.
    Int(i64),
    /// A number.
    Float(f32),
    /// Bytes, nearly always UTF-8: see [`RawAttr::as_str`].
    Str(Bytes),
    /// A constant.
    Tensor(Tensor),
    /// A nested graph, which sees the values of the graphs around it.
    Graph(Box<RawGraph>),
    /// A tensor type.
    Type(RawType),
    /// Integers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
    /// Several byte strings.
    Strs(Vec<Bytes>),
    /// Constants.
    Tensors(Vec<Tensor>),
    /// Nested graphs.
    Graphs(Vec<RawGraph>),
}

/// A type as an attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawType {
    /// Element type, if known.
    pub dtype: Option<DType>,
    /// Extents, if the rank is known.
    pub dims: Option<Vec<RawDim>>,
    /// What holds tensors of this type, outermost first; empty for a tensor.
    pub containers: Vec<Container>,
}

impl RawAttr {
    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        if let RawAttr::Int(v) = self { Some(*v) } else { None }
    }

    /// The number, if it is one.
    pub fn as_float(&self) -> Option<f32> {
        if let RawAttr::Float(v) = self { Some(*v) } else { None }
    }

    /// The text, if it is a string in UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        if let RawAttr::Str(v) = self { std::str::from_utf8(v).ok() } else { None }
    }

    /// The integers, if they are a list of them.
    pub fn as_ints(&self) -> Option<&[i64]> {
        if let RawAttr::Ints(v) = self { Some(v) } else { None }
    }

    /// The numbers, if they are a list of them.
    pub fn as_floats(&self) -> Option<&[f32]> {
        if let RawAttr::Floats(v) = self { Some(v) } else { None }
    }

    /// The constant, if it is one.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        if let RawAttr::Tensor(v) = self { Some(v) } else { None }
    }

    /// The tensor that it is or stands for: a list is a tensor with one axis. `None` if it is neither, or if strings are
    /// not in UTF-8 or take too much memory.
    pub fn to_tensor(&self) -> Option<Tensor> {
        let texts = |shape, all: &[Bytes]| {
            let texts: Result<Vec<&str>, _> = all.iter().map(|s| std::str::from_utf8(s)).collect();
            Tensor::from_strings(shape, texts.ok()?).ok()
        };
        match self {
            RawAttr::Tensor(t) => Some(t.clone()),
            RawAttr::Int(v) => Some(Tensor::from_i64(DType::I64, vec![], &[*v])),
            RawAttr::Ints(v) => Some(Tensor::from_i64(DType::I64, vec![v.len()], v)),
            RawAttr::Float(v) => Some(Tensor::from_f32(vec![], vec![*v])),
            RawAttr::Floats(v) => Some(Tensor::from_f32(vec![v.len()], v.clone())),
            RawAttr::Str(s) => texts(vec![], std::slice::from_ref(s)),
            RawAttr::Strs(all) => texts(vec![all.len()], all),
            RawAttr::Graph(_) | RawAttr::Graphs(_) => None,
            RawAttr::Type(_) | RawAttr::Tensors(_) => None,
        }
    }

    /// The graphs it holds: none, one or several.
    pub fn graphs(&self) -> &[RawGraph] {
        match self {
            RawAttr::Graph(g) => std::slice::from_ref(g),
            RawAttr::Graphs(gs) => gs,
            RawAttr::Int(_) | RawAttr::Float(_) | RawAttr::Str(_) | RawAttr::Tensor(_) => &[],
            RawAttr::Ints(_) | RawAttr::Floats(_) | RawAttr::Strs(_) => &[],
            RawAttr::Type(_) | RawAttr::Tensors(_) => &[],
        }
    }

    /// The graphs it holds, to be changed.
    pub fn graphs_mut(&mut self) -> &mut [RawGraph] {
        match self {
            RawAttr::Graph(g) => std::slice::from_mut(g),
            RawAttr::Graphs(gs) => gs,
            RawAttr::Int(_) | RawAttr::Float(_) | RawAttr::Str(_) | RawAttr::Tensor(_) => &mut [],
            RawAttr::Ints(_) | RawAttr::Floats(_) | RawAttr::Strs(_) => &mut [],
            RawAttr::Type(_) | RawAttr::Tensors(_) => &mut [],
        }
    }
}

impl From<&str> for RawAttr {
    fn from(text: &str) -> RawAttr {
        RawAttr::Str(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl RawNode {
    /// The operator with its domain, if that is not the standard one: `MatMul`, `com.microsoft.Gelu`.
    pub fn operator(&self) -> String {
        match self.domain.as_str() {
            "" => self.op_type.clone(),
            domain => format!("{domain}.{}", self.op_type),
        }
    }

    /// How messages call the node: its name, or what it defines.
    pub fn label(&self) -> String {
        label(&self.op_type, &self.name, &self.outputs)
    }
}

/// How messages call a node of this operator, name and outputs.
pub(super) fn label(op_type: &str, name: &str, outputs: &[String]) -> String {
    let op_type = shown(op_type);
    match outputs.iter().find(|o| !o.is_empty()) {
        _ if !name.is_empty() => format!("node `{}` ({op_type})", shown(name)),
        Some(out) => format!("the {op_type} node that defines `{}`", shown(out)),
        None => format!("an unnamed {op_type} node"),
    }
}
