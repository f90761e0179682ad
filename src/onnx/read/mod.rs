//! Reads ONNX files as [`RawModel`]s.
//!
//! The file is memory-mapped: weights stay in the mapping. No input makes this panic,
//! loop, or allocate more than the size of the file justifies; every problem is reported as an error that
//! names the node or tensor.

mod budget;
pub(crate) mod data_files;
mod inline;
pub(crate) mod order;
mod sparse;
pub(crate) mod stored;

use super::proto::*;
use super::raw::error::OnnxError;
use super::raw::tensor;
use super::raw::{RawAttr, RawDim, RawGraph, RawModel, RawNode, RawType, RawValueInfo};
use attribute_proto::AttributeType;
use bytes::Bytes;
use data_files::DataFiles;
use indexmap::IndexMap;
use inline::{domain, inline_functions};
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::shown;
use mlc_files::{folder, is_input_stream, map};
use prost::Message;
use std::collections::BTreeMap;
use std::path::Path;

/// The newest file format known here.
const NEWEST_IR: i64 = 14;

/// Of a model with more bytes of external weights than this, none is looked at.
const MOST_READ: u64 = 8 << 30;

/// Reads the model in the file `path`, `-` for standard input; weights in other files must lie in the same folder.
pub fn read_onnx(path: impl AsRef<Path>) -> Result<RawModel, OnnxError> {
    let path = path.as_ref();
    let bytes = map(path).map_err(OnnxError::io("open", path))?;
    let base = (!is_input_stream(path)).then(|| folder(path));
    parse_onnx(bytes, base).map_err(|e| e.in_file(path))
}

/// Reads the model in `bytes`; `base_dir` is where its external data lies.
///
/// An input that is also an initialiser is a constant and no input of the result, whatever the IR
/// version: before version 4 initialisers had to be listed so, and later files often still do.
/// Documentation strings and metadata of graphs, nodes and tensors are dropped.
pub fn parse_onnx(bytes: Bytes, base_dir: Option<&Path>) -> Result<RawModel, OnnxError> {
    budget::check(&bytes)?;
    let mut model =
        ModelProto::decode(bytes).map_err(|e| OnnxError::Malformed { reason: e.to_string() })?;
    if model.graph.is_none() {
        return Err(OnnxError::Malformed { reason: "it holds no graph".into() });
    }
    let ir_version = model.ir_version.unwrap_or(0);
    if !(1..=NEWEST_IR).contains(&ir_version) {
        let reason = format!("IR version {ir_version} is not within 1..={NEWEST_IR}");
        return Err(OnnxError::invalid("the model", reason));
    }
    inline_functions(&mut model)?;
    let opset_imports = opsets(std::mem::take(&mut model.opset_import), ir_version)?;
    let graph = model.graph.take().unwrap_or_default();
    let mut reader = FileReader { files: DataFiles::new(base_dir), sparse_bytes: sparse::MOST };
    let mut graph = reader.graph(graph, 0, &|| "the graph".into())?;
    if reader.files.bytes() <= MOST_READ {
        let all = std::mem::take(&mut graph.initializers).into_iter();
        graph.initializers = all.map(|(n, t)| (n, t.into_read())).collect();
    }
    order::sort(&mut graph)?;
    order::verify(&graph)?;
    let pairs = model.metadata_props.into_iter();
    Ok(RawModel {
        ir_version,
        opset_imports,
        producer_name: model.producer_name.unwrap_or_default(),
        producer_version: model.producer_version.unwrap_or_default(),
        domain: model.domain.unwrap_or_default(),
        model_version: model.model_version.unwrap_or(0),
        doc_string: model.doc_string.unwrap_or_default(),
        metadata_props: pairs
            .map(|p| (p.key.unwrap_or_default(), p.value.unwrap_or_default()))
            .collect(),
        graph,
    })
}

fn opsets(
    imports: Vec<OperatorSetIdProto>,
    ir_version: i64,
) -> Result<BTreeMap<String, i64>, OnnxError> {
    let mut out = BTreeMap::new();
    for o in imports {
        let name = domain(o.domain.as_deref()).to_string();
        let version = o.version.unwrap_or(0);
        if version < 1 {
            let reason = format!("operator set `{}` has version {version}", shown(&name));
            return Err(OnnxError::invalid("the model", reason));
        }
        if out.insert(name.clone(), version).is_some_and(|old| old != version) {
            let place = format!("another import of the operator set `{}`", shown(&name));
            return Err(OnnxError::Duplicate { name, place });
        }
    }
    // The first versions of the format had no imports.
    if out.is_empty() && ir_version < 3 {
        out.insert(String::new(), 1);
    }
    if out.is_empty() {
        return Err(OnnxError::invalid("the model", "it imports no operator set"));
    }
    Ok(out)
}

/// What messages call the current item; a function, as most models need no message.
type Place<'a> = &'a dyn Fn() -> String;

struct FileReader<'a> {
    files: DataFiles<'a>,
    /// Bytes that sparse constants may still take.
    sparse_bytes: u64,
}

impl FileReader<'_> {
    fn graph(
        &mut self,
        g: GraphProto,
        depth: usize,
        place: Place<'_>,
    ) -> Result<RawGraph, OnnxError> {
        if depth > order::DEPTH {
            return Err(OnnxError::TooDeep { place: place(), limit: order::DEPTH });
        }
        let mut out = RawGraph { name: g.name.unwrap_or_default(), ..RawGraph::default() };
        for mut t in g.initializer {
            let name = t.name.take().unwrap_or_default();
            let called = format!("initializer `{}`", shown(&name));
            let tensor = tensor::tensor(t, &mut self.files, &called)?;
            let tensor = if depth == 0 { tensor } else { tensor.into_read() };
            insert(&mut out.initializers, name, tensor, place)?;
        }
        for t in g.sparse_initializer {
            let called = || format!("a sparse initializer of {}", place());
            let (name, tensor) = self.sparse(t, &called)?;
            insert(&mut out.initializers, name, tensor, place)?;
        }
        for v in g.input {
            let v = strict(v, || format!("input of {}", place()))?;
            // Inputs of a subgraph are positional: there, such a name is a double definition.
            match out.initializers.get(&v.name) {
                None => out.inputs.push(v),
                Some(t) => {
                    fits(&v, t)?;
                    let list = if depth > 0 { &mut out.inputs } else { &mut out.defaults };
                    list.push(v);
                }
            }
        }
        for v in g.output {
            out.outputs.push(strict(v, || format!("output of {}", place()))?);
        }
        for v in g.value_info {
            if let Ok(v) = value(v, || format!("value of {}", place()))? {
                out.value_infos.push(v);
            }
        }
        for n in g.node {
            let node = self.node(n, depth)?;
            if node.op_type == "Constant" && node.domain.is_empty() {
                let (name, tensor) = constant(node)?;
                insert(&mut out.initializers, name, tensor, place)?;
            } else {
                out.nodes.push(node);
            }
        }
        Ok(out)
    }

    fn node(&mut self, n: NodeProto, depth: usize) -> Result<RawNode, OnnxError> {
        let mut node = RawNode {
            op_type: n.op_type.unwrap_or_default(),
            domain: domain(n.domain.as_deref()).to_string(),
            name: n.name.unwrap_or_default(),
            inputs: n.input,
            outputs: n.output,
            attrs: IndexMap::new(),
        };
        if node.op_type.is_empty() {
            return Err(OnnxError::invalid(node.label(), "it has no operator"));
        }
        for a in n.attribute {
            let name = a.name.clone().unwrap_or_default();
            let place = || format!("attribute `{}` of {}", shown(&name), node.label());
            let attr = self.attr(a, depth, &place)?;
            if node.attrs.contains_key(&name) {
                return Err(OnnxError::Duplicate { name, place: node.label() });
            }
            node.attrs.insert(name, attr);
        }
        Ok(node)
    }

    fn sparse(
        &mut self,
        t: SparseTensorProto,
        place: Place<'_>,
    ) -> Result<(String, Tensor), OnnxError> {
        sparse::written_out(t, &mut self.files, &mut self.sparse_bytes, &place())
    }

    fn attr(
        &mut self,
        a: AttributeProto,
        depth: usize,
        place: Place<'_>,
    ) -> Result<RawAttr, OnnxError> {
        if a.ref_attr_name.as_ref().is_some_and(|r| !r.is_empty()) {
            return Err(OnnxError::invalid(
                place(),
                "it refers to an attribute outside a function",
            ));
        }
        let code = a.r#type.unwrap_or(0);
        let kind = match AttributeType::try_from(code) {
            Ok(AttributeType::Undefined) => guess(&a),
            Ok(kind) => Some(kind),
            Err(_) => return Err(OnnxError::unsupported(place(), format!("kind {code}"))),
        };
        let empty = || OnnxError::invalid(place(), "it has no value");
        Ok(match kind.ok_or_else(empty)? {
            AttributeType::Undefined => return Err(empty()),
            AttributeType::Float => RawAttr::Float(a.f.unwrap_or(0.0)),
            AttributeType::Int => RawAttr::Int(a.i.unwrap_or(0)),
            AttributeType::String => RawAttr::Str(a.s.unwrap_or_default()),
            AttributeType::Tensor => {
                let t = *a.t.ok_or_else(empty)?;
                RawAttr::Tensor(tensor::tensor(t, &mut self.files, &place())?.into_read())
            }
            AttributeType::Graph => {
                RawAttr::Graph(Box::new(self.graph(*a.g.ok_or_else(empty)?, depth + 1, place)?))
            }
            AttributeType::TypeProto => {
                let t = tensor::value_type(Some(*a.tp.ok_or_else(empty)?), &place())?;
                let unsupported =
                    |type_name| OnnxError::UnsupportedType { place: place(), type_name };
                RawAttr::Type(t.map_err(unsupported)?)
            }
            AttributeType::Floats => RawAttr::Floats(a.floats),
            AttributeType::Ints => RawAttr::Ints(a.ints),
            AttributeType::Strings => RawAttr::Strs(a.strings),
            AttributeType::Tensors => {
                let mut out = Vec::with_capacity(a.tensors.len());
                for t in a.tensors {
                    out.push(tensor::tensor(t, &mut self.files, &place())?.into_read());
                }
                RawAttr::Tensors(out)
            }
            AttributeType::Graphs => {
                let mut out = Vec::with_capacity(a.graphs.len());
                for g in a.graphs {
                    out.push(self.graph(g, depth + 1, place)?);
                }
                RawAttr::Graphs(out)
            }
            AttributeType::SparseTensor => {
                let t = *a.sparse_tensor.ok_or_else(empty)?;
                RawAttr::Tensor(self.sparse(t, place)?.1)
            }
            AttributeType::SparseTensors => {
                return Err(OnnxError::unsupported(place(), "a list of sparse tensors"));
            }
            AttributeType::TypeProtos => {
                return Err(OnnxError::unsupported(place(), "a list of types"));
            }
        })
    }
}

/// The kind of an attribute that does not tell, as in early versions of the format.
fn guess(a: &AttributeProto) -> Option<AttributeType> {
    let full = [
        (AttributeType::Float, a.f.is_some()),
        (AttributeType::Int, a.i.is_some()),
        (AttributeType::String, a.s.is_some()),
        (AttributeType::Tensor, a.t.is_some()),
        (AttributeType::Graph, a.g.is_some()),
        (AttributeType::SparseTensor, a.sparse_tensor.is_some()),
        (AttributeType::TypeProto, a.tp.is_some()),
        (AttributeType::Floats, !a.floats.is_empty()),
        (AttributeType::Ints, !a.ints.is_empty()),
        (AttributeType::Strings, !a.strings.is_empty()),
        (AttributeType::Tensors, !a.tensors.is_empty()),
        (AttributeType::Graphs, !a.graphs.is_empty()),
    ];
    full.into_iter().find(|k| k.1).map(|k| k.0)
}

fn insert(
    into: &mut IndexMap<String, Tensor>,
    name: String,
    tensor: Tensor,
    place: Place<'_>,
) -> Result<(), OnnxError> {
    if name.is_empty() {
        return Err(OnnxError::invalid(place(), "an initializer has no name"));
    }
    if into.contains_key(&name) {
        let place = format!("an initializer of {}", place());
        return Err(OnnxError::Duplicate { name, place });
    }
    into.insert(name, tensor);
    Ok(())
}

/// A value with its type: the inner `Err` carries the name of an unsupported type.
fn value(
    v: ValueInfoProto,
    place: impl Fn() -> String,
) -> Result<Result<RawValueInfo, OnnxError>, OnnxError> {
    let name = v.name.unwrap_or_default();
    if name.is_empty() {
        return Err(OnnxError::invalid(place(), "it has no name"));
    }
    let place = format!("`{}`, {}", shown(&name), place());
    Ok(match tensor::value_type(v.r#type, &place)? {
        Ok(RawType { dtype, dims, containers }) => {
            Ok(RawValueInfo { name, dtype, dims, containers })
        }
        Err(type_name) => Err(OnnxError::UnsupportedType { place, type_name }),
    })
}

fn strict(v: ValueInfoProto, place: impl Fn() -> String) -> Result<RawValueInfo, OnnxError> {
    value(v, place)?
}

/// An initializer that is also an input is the input's default: it has its type.
fn fits(v: &RawValueInfo, t: &Tensor) -> Result<(), OnnxError> {
    let other = |(d, n): (&RawDim, &usize)| matches!(d, RawDim::Known(k) if *k != *n as u64);
    let dims = v.dims.as_deref().unwrap_or_default();
    let known = v.dims.is_some();
    let wrong = known && (dims.len() != t.shape().len() || dims.iter().zip(t.shape()).any(other));
    if v.dtype.is_some_and(|d| d != t.dtype()) || wrong {
        let dtype = v.dtype.map_or("?", DType::name);
        let shape: Vec<String> = dims.iter().map(ToString::to_string).collect();
        let found = format!("{}{:?}", t.dtype(), t.shape());
        let reason = format!("it is declared as {dtype}[{}], and is {found}", shape.join(", "));
        return Err(OnnxError::invalid(format!("initializer `{}`", shown(&v.name)), reason));
    }
    Ok(())
}

/// The value of a `Constant` node, and its name.
fn constant(mut node: RawNode) -> Result<(String, Tensor), OnnxError> {
    let label = node.label();
    if node.outputs.len() != 1 || node.attrs.len() != 1 || !node.inputs.is_empty() {
        let reason = "a Constant has one attribute, one output and no input";
        return Err(OnnxError::invalid(label, reason));
    }
    let (key, attr) = node.attrs.pop().unwrap_or((String::new(), RawAttr::Int(0)));
    let fits = matches!(
        (key.as_str(), &attr),
        ("value" | "sparse_value", RawAttr::Tensor(_))
            | ("value_float", RawAttr::Float(_))
            | ("value_floats", RawAttr::Floats(_))
            | ("value_int", RawAttr::Int(_))
            | ("value_ints", RawAttr::Ints(_))
            | ("value_string", RawAttr::Str(_))
            | ("value_strings", RawAttr::Strs(_))
    );
    if !fits {
        let reason = format!("attribute `{}` is not its value", shown(&key));
        return Err(OnnxError::invalid(label, reason));
    }
    let tensor = attr.to_tensor().ok_or_else(|| {
        OnnxError::invalid(label, "its strings are not in UTF-8, or take more than 1 GiB")
    })?;
    Ok((node.outputs.remove(0), tensor))
}

#[cfg(test)]
mod tests;
