//! Writes [`RawModel`]s as ONNX files.
//!
//! Equal models give equal bytes. Weights go from their own memory straight to the file, which gets
//! its name when it is complete: it may replace the very file that the weights are mapped from. At any moment a complete
//! model, old or new, is there.

mod data;
mod data_names;

use super::proto::*;
use super::raw::error::OnnxError;
use super::raw::{Container, RawAttr, RawDim, RawGraph, RawModel, RawNode, RawType, RawValueInfo};
use super::raw::{packed, tensor};
use super::read::order;
use attribute_proto::AttributeType;
use bytes::Bytes;
use data::{DataFile, FarFiles, Weights};
use mlc_dsl::ir::{DType, Tensor};
use mlc_files::AtomicFile;
use prost::Message;
use prost::encoding::encode_varint;
use std::io::Write;
use std::path::Path;

/// Most bytes of a protobuf message.
const MESSAGE: u64 = i32::MAX as u64;

/// When weights leave the model file for a data file beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalData {
    /// When all tensors together have more bytes than this.
    Above(u64),
    /// In any case.
    Always,
    /// In no case; a message cannot exceed 2 GiB.
    Never,
}

impl Default for ExternalData {
    fn default() -> ExternalData {
        ExternalData::Above(1 << 30)
    }
}

/// Writes `model` to `path`, with weights in a data file beside it if they exceed 1 GiB.
pub fn write_onnx(model: &RawModel, path: impl AsRef<Path>) -> Result<(), OnnxError> {
    write_onnx_with(model, path, ExternalData::default())
}

/// Writes `model` to `path`, `-` for standard output; weights of 1 KiB and more go to `<path>.data` if `external` says so,
/// or to `<path>.1.data` and so on, as no file is overwritten that another model may refer to.
///
/// The data file is complete before the model takes its name, and the data file of the model that stood there is removed
/// after that, if it was named so and no other model in the folder refers to it. Fails without a trace, also if a name is
/// used before its definition or defined twice.
pub fn write_onnx_with(
    model: &RawModel,
    path: impl AsRef<Path>,
    external: ExternalData,
) -> Result<(), OnnxError> {
    let path = path.as_ref();
    order::verify(&model.graph).map_err(|e| e.in_file(path))?;
    let external = match external {
        _ if mlc_files::is_output_stream(path) => false,
        ExternalData::Above(limit) => bytes_in(&model.graph) > limit,
        ExternalData::Always => true,
        ExternalData::Never => false,
    };
    let far = FarFiles::new(&model.graph, path)?;
    let mut data = Weights { far, file: external.then(|| DataFile::new(path)).transpose()? };
    let mut parts = messages(model, model.ir_version, &mut data);
    data.file = data.file.filter(|d| !d.is_empty());
    if data.file.as_mut().is_some_and(DataFile::settle) {
        parts = messages(model, model.ir_version, &mut data);
    }
    let help = "write the weights to an external data file";
    parts.check_length(help).map_err(|e| e.in_file(path))?;
    // Data files are complete before a model refers to them.
    data.far.link()?;
    let made = match &data.file {
        Some(d) => d.write().map_err(OnnxError::io("write", &d.path()))?.then(|| d.path()),
        None => None,
    };
    let write = || {
        let mut file = AtomicFile::create(path)?;
        parts.write(&mut file)?;
        let unneeded = data_names::owned(path);
        file.commit()?;
        data_names::sweep(path, &unneeded);
        std::io::Result::Ok(())
    };
    write().map_err(|e| {
        if let Some(data) = made {
            // The error that is told is the one that came first.
            let _ = mlc_files::remove(&data);
        }
        OnnxError::io("write", path)(e)
    })
}

/// The bytes of a model file that holds its weights.
///
/// # Errors
/// It would have 2 GiB or more, its weights are too large to be read, or a name is used before its definition or
/// defined twice.
pub fn to_bytes(model: &RawModel) -> Result<Vec<u8>, OnnxError> {
    const HELP: &str = "write it to a file, whose weights may lie in another one";
    order::verify(&model.graph)?;
    let unread = model.graph.initializers.values().any(|t| t.unread().is_some());
    if unread {
        let what = "the model with its weights".into();
        return Err(OnnxError::TooLarge { what, limit: MESSAGE >> 20, help: HELP });
    }
    let far = FarFiles::default();
    let parts = messages(model, model.ir_version, &mut Weights { far, file: None });
    parts.check_length(HELP)?;
    let mut out = Vec::new();
    parts.write(&mut out).map_err(OnnxError::io("write", Path::new("memory")))?;
    Ok(out)
}

/// The bytes of all tensors.
fn bytes_in(g: &RawGraph) -> u64 {
    let own = g.initializers.values().filter(|t| t.unread().is_none());
    let own: u64 = own.map(|t| t.bytes().len() as u64).sum();
    let attrs = g.nodes.iter().flat_map(|n| n.attrs.values());
    own + attrs
        .map(|a| match a {
            RawAttr::Tensor(t) => t.bytes().len() as u64,
            RawAttr::Tensors(ts) => ts.iter().map(|t| t.bytes().len() as u64).sum(),
            other => other.graphs().iter().map(bytes_in).sum(),
        })
        .sum::<u64>()
}

/// Tag and length of a field that has a length.
fn prefix(field: u64, length: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(12);
    encode_varint(field << 3 | 2, &mut out);
    encode_varint(length, &mut out);
    out
}

/// A tensor's message without its raw data, which follows.
struct TensorMessage {
    head: Vec<u8>,
    raw: Option<Bytes>,
}

impl TensorMessage {
    fn len(&self) -> u64 {
        let raw = |r: &Bytes| (prefix(9, r.len() as u64).len() + r.len()) as u64;
        self.head.len() as u64 + self.raw.as_ref().map_or(0, raw)
    }

    fn field_len(&self) -> u64 {
        let len = self.len();
        prefix(5, len).len() as u64 + len
    }
}

/// The messages that a model file is put together from.
struct ModelMessages {
    /// The model without its graph.
    head: Vec<u8>,
    /// The graph without its initialisers.
    graph: Vec<u8>,
    /// The initialisers.
    tensors: Vec<TensorMessage>,
}

impl ModelMessages {
    /// Bytes of the graph and its initialisers.
    fn graph_len(&self) -> u64 {
        self.graph.len() as u64 + self.tensors.iter().map(TensorMessage::field_len).sum::<u64>()
    }

    fn check_length(&self, help: &'static str) -> Result<(), OnnxError> {
        if self.head.len() as u64 + self.graph_len() + 16 > MESSAGE {
            let what = "the model file".into();
            return Err(OnnxError::TooLarge { what, limit: MESSAGE >> 20, help });
        }
        Ok(())
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        out.write_all(&self.head)?;
        out.write_all(&prefix(7, self.graph_len()))?;
        out.write_all(&self.graph)?;
        for part in &self.tensors {
            out.write_all(&prefix(5, part.len()))?;
            out.write_all(&part.head)?;
            if let Some(raw) = &part.raw {
                out.write_all(&prefix(9, raw.len() as u64))?;
                out.write_all(raw)?;
            }
        }
        Ok(())
    }
}

fn messages(model: &RawModel, ir_version: i64, data: &mut Weights) -> ModelMessages {
    let head = ModelProto {
        ir_version: Some(ir_version),
        opset_import: model
            .opset_imports
            .iter()
            .map(|(d, &v)| OperatorSetIdProto { domain: Some(d.clone()), version: Some(v) })
            .collect(),
        producer_name: text(&model.producer_name),
        producer_version: text(&model.producer_version),
        domain: text(&model.domain),
        model_version: (model.model_version != 0).then_some(model.model_version),
        doc_string: text(&model.doc_string),
        metadata_props: model.metadata_props.iter().map(|(k, v)| pair(k, v)).collect(),
        ..ModelProto::default()
    };
    let mut tensors = Vec::with_capacity(model.graph.initializers.len());
    for (name, t) in &model.graph.initializers {
        let mut message = tensor(t, Some(name), Some(data));
        let raw = message.raw_data.take();
        tensors.push(TensorMessage { head: message.encode_to_vec(), raw });
    }
    let mut g = graph(&model.graph, data);
    // Version 3 wants every initialiser declared as an input.
    if ir_version < 4 {
        g.input.extend(model.graph.initializers.iter().map(|(name, t)| {
            let dims = t.shape().iter().map(|&d| RawDim::Known(d as u64)).collect();
            let (name, dtype) = (name.clone(), Some(t.dtype()));
            value(&RawValueInfo { name, dtype, dims: Some(dims), ..RawValueInfo::default() })
        }));
    }
    ModelMessages { head: head.encode_to_vec(), graph: g.encode_to_vec(), tensors }
}

fn text(s: &str) -> Option<String> {
    (!s.is_empty()).then(|| s.to_string())
}

fn pair(key: &str, value: &str) -> StringStringEntryProto {
    StringStringEntryProto { key: Some(key.to_string()), value: Some(value.to_string()) }
}

/// All of a graph but its initialisers.
fn graph(g: &RawGraph, data: &mut Weights) -> GraphProto {
    GraphProto {
        node: g.nodes.iter().map(|n| node(n, data)).collect(),
        // A graph must have a name.
        name: Some(if g.name.is_empty() { "graph".into() } else { g.name.clone() }),
        input: g.inputs.iter().chain(&g.defaults).map(value).collect(),
        output: g.outputs.iter().map(value).collect(),
        value_info: g.value_infos.iter().map(value).collect(),
        ..GraphProto::default()
    }
}

fn subgraph(g: &RawGraph, data: &mut Weights) -> GraphProto {
    let mut out = graph(g, data);
    let tensors = g.initializers.iter();
    out.initializer = tensors.map(|(n, t)| tensor(t, Some(n), Some(data))).collect();
    out
}

fn node(n: &RawNode, data: &mut Weights) -> NodeProto {
    NodeProto {
        input: n.inputs.clone(),
        output: n.outputs.clone(),
        name: text(&n.name),
        op_type: Some(n.op_type.clone()),
        domain: text(&n.domain),
        attribute: n.attrs.iter().map(|(name, a)| attr(name, a, data)).collect(),
        ..NodeProto::default()
    }
}

fn attr(name: &str, a: &RawAttr, data: &mut Weights) -> AttributeProto {
    let mut out = AttributeProto { name: Some(name.to_string()), ..AttributeProto::default() };
    let kind = match a {
        RawAttr::Int(v) => {
            out.i = Some(*v);
            AttributeType::Int
        }
        RawAttr::Float(v) => {
            out.f = Some(*v);
            AttributeType::Float
        }
        RawAttr::Str(v) => {
            out.s = Some(v.clone());
            AttributeType::String
        }
        RawAttr::Tensor(t) => {
            // Attributes stay inside: not every reader looks for them elsewhere.
            out.t = Some(Box::new(tensor(t, None, None)));
            AttributeType::Tensor
        }
        RawAttr::Graph(g) => {
            out.g = Some(Box::new(subgraph(g, data)));
            AttributeType::Graph
        }
        RawAttr::Type(t) => {
            out.tp = Some(Box::new(type_proto(t)));
            AttributeType::TypeProto
        }
        RawAttr::Ints(v) => {
            out.ints = v.clone();
            AttributeType::Ints
        }
        RawAttr::Floats(v) => {
            out.floats = v.clone();
            AttributeType::Floats
        }
        RawAttr::Strs(v) => {
            out.strings = v.clone();
            AttributeType::Strings
        }
        RawAttr::Tensors(v) => {
            out.tensors = v.iter().map(|t| tensor(t, None, None)).collect();
            AttributeType::Tensors
        }
        RawAttr::Graphs(v) => {
            out.graphs = v.iter().map(|g| subgraph(g, data)).collect();
            AttributeType::Graphs
        }
    };
    out.r#type = Some(kind as i32);
    out
}

fn tensor(t: &Tensor, name: Option<&str>, data: Option<&mut Weights>) -> TensorProto {
    let mut out = TensorProto {
        dims: t.shape().iter().map(|&d| d as i64).collect(),
        data_type: Some(tensor::code(t.dtype())),
        name: name.map(str::to_string),
        ..TensorProto::default()
    };
    if t.dtype() == DType::Str {
        out.string_data = (0..t.len()).map(|i| t.get_str(i).as_bytes().to_vec().into()).collect();
        return out;
    }
    let stored = packed::stored(t);
    match data.and_then(|d| d.place(t, &stored)) {
        Some((location, offset)) => {
            out.external_data = vec![
                pair("location", &location),
                pair("offset", &offset.to_string()),
                pair("length", &stored.len().to_string()),
            ];
            out.data_location = Some(tensor_proto::DataLocation::External as i32);
        }
        None => out.raw_data = Some(stored),
    }
    out
}

fn value(v: &RawValueInfo) -> ValueInfoProto {
    let known = v.dtype.is_some() || v.dims.is_some() || !v.containers.is_empty();
    let in_tensor = || tensor_type(v.dtype, v.dims.as_deref());
    ValueInfoProto {
        name: Some(v.name.clone()),
        r#type: known.then(|| contained(in_tensor(), &v.containers)),
        ..ValueInfoProto::default()
    }
}

fn type_proto(t: &RawType) -> TypeProto {
    contained(tensor_type(t.dtype, t.dims.as_deref()), &t.containers)
}

fn contained(tensor: TypeProto, containers: &[Container]) -> TypeProto {
    containers.iter().rev().fold(tensor, |inner, container| {
        let elem_type = Some(Box::new(inner));
        let value = match container {
            Container::Sequence => {
                type_proto::Value::SequenceType(Box::new(type_proto::Sequence { elem_type }))
            }
            Container::Optional => {
                type_proto::Value::OptionalType(Box::new(type_proto::Optional { elem_type }))
            }
            Container::Map(key) => type_proto::Value::MapType(Box::new(type_proto::Map {
                key_type: Some(tensor::code(*key)),
                value_type: elem_type,
            })),
        };
        TypeProto { value: Some(value), denotation: None }
    })
}

fn tensor_type(dtype: Option<DType>, dims: Option<&[RawDim]>) -> TypeProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dim = |d: &RawDim| Dimension {
        value: match d {
            RawDim::Known(n) => Some(Value::DimValue(i64::try_from(*n).unwrap_or(i64::MAX))),
            RawDim::Symbol(s) => Some(Value::DimParam(s.clone())),
            RawDim::Unknown => None,
        },
        denotation: None,
    };
    let shape = dims.map(|dims| TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let elem_type = dtype.map(tensor::code);
    TypeProto {
        value: Some(type_proto::Value::TensorType(type_proto::Tensor { elem_type, shape })),
        denotation: None,
    }
}
