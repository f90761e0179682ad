//! Estimates the decoded size of a message from its bytes, before anything is decoded.
//!
//! An empty node takes two bytes on the wire and some hundred when decoded: a small hostile file could exhaust
//! the memory. Never allocates, and never trusts a length that exceeds the available bytes.

use crate::proto::*;
use crate::raw::error::OnnxError;

/// Most bytes that decoded structure (nodes, names, attributes) may take.
const STRUCTURE: u64 = 192 << 20;
/// Most bytes that numbers outside raw data may take decoded.
const NUMBERS: u64 = 512 << 20;
/// Deepest nesting of messages; prost stops at 100.
const DEPTH: usize = 90;

/// What a field holds, as far as its cost goes.
enum MessageKind {
    Message(&'static Shape),
    Text,
    /// Packed or single numbers: bytes per decoded element, and on the wire (0: a varint).
    Numbers(u64, u64),
}

/// The costly fields of a message and its own size decoded. Other fields cost nothing: they are
/// skipped, or part of the message's own size.
struct Shape {
    size: usize,
    fields: &'static [(u64, MessageKind)],
}

use MessageKind::{Message, Numbers, Text};

const I64: MessageKind = Numbers(8, 0);
const I32: MessageKind = Numbers(4, 0);

static MODEL: Shape = Shape {
    size: size_of::<ModelProto>(),
    fields: &[
        (8, Message(&PAIR)),
        (2, Text),
        (3, Text),
        (4, Text),
        (6, Text),
        (7, Message(&GRAPH)),
        (14, Message(&PAIR)),
        (20, Message(&TRAINING)),
        (25, Message(&FUNCTION)),
        (26, Message(&DEVICE)),
    ],
};
static GRAPH: Shape = Shape {
    size: size_of::<GraphProto>(),
    fields: &[
        (1, Message(&NODE)),
        (2, Text),
        (5, Message(&TENSOR)),
        (15, Message(&SPARSE)),
        (10, Text),
        (11, Message(&VALUE)),
        (12, Message(&VALUE)),
        (13, Message(&VALUE)),
        (14, Message(&ANNOTATION)),
        (16, Message(&PAIR)),
    ],
};
static NODE: Shape = Shape {
    size: size_of::<NodeProto>(),
    fields: &[
        (1, Text),
        (2, Text),
        (3, Text),
        (4, Text),
        (7, Text),
        (8, Text),
        (5, Message(&ATTRIBUTE)),
        (6, Text),
        (9, Message(&PAIR)),
        (10, Message(&PLACEMENT)),
    ],
};
static ATTRIBUTE: Shape = Shape {
    size: size_of::<AttributeProto>(),
    fields: &[
        (1, Text),
        (21, Text),
        (13, Text),
        (4, Text),
        (5, Message(&TENSOR)),
        (6, Message(&GRAPH)),
        (22, Message(&SPARSE)),
        (14, Message(&TYPE)),
        (7, Numbers(4, 4)),
        (8, I64),
        (9, Text),
        (10, Message(&TENSOR)),
        (11, Message(&GRAPH)),
        (23, Message(&SPARSE)),
        (15, Message(&TYPE)),
    ],
};
static TENSOR: Shape = Shape {
    size: size_of::<TensorProto>(),
    fields: &[
        (1, I64),
        (4, Numbers(4, 4)),
        (5, I32),
        (6, Text),
        (7, I64),
        (8, Text),
        (12, Text),
        (13, Message(&PAIR)),
        (10, Numbers(8, 8)),
        (11, I64),
        (16, Message(&PAIR)),
    ],
};
static SPARSE: Shape = Shape {
    size: size_of::<SparseTensorProto>(),
    fields: &[(1, Message(&TENSOR)), (2, Message(&TENSOR)), (3, I64)],
};
static VALUE: Shape = Shape {
    size: size_of::<ValueInfoProto>(),
    fields: &[(1, Text), (2, Message(&TYPE)), (3, Text), (4, Message(&PAIR))],
};
static TYPE: Shape = Shape {
    size: size_of::<TypeProto>(),
    fields: &[
        (1, Message(&TENSOR_TYPE)),
        (4, Message(&SEQUENCE)),
        (5, Message(&MAP)),
        (9, Message(&SEQUENCE)),
        (8, Message(&TENSOR_TYPE)),
        (7, Message(&PAIR)),
        (6, Text),
    ],
};
static TENSOR_TYPE: Shape =
    Shape { size: size_of::<type_proto::Tensor>(), fields: &[(2, Message(&DIMS))] };
static SEQUENCE: Shape = Shape { size: size_of::<TypeProto>(), fields: &[(1, Message(&TYPE))] };
static MAP: Shape = Shape { size: size_of::<TypeProto>(), fields: &[(2, Message(&TYPE))] };
static DIMS: Shape = Shape { size: size_of::<TensorShapeProto>(), fields: &[(1, Message(&DIM))] };
static DIM: Shape =
    Shape { size: size_of::<tensor_shape_proto::Dimension>(), fields: &[(2, Text), (3, Text)] };
/// A pair of texts, or of a text and a number.
static PAIR: Shape =
    Shape { size: size_of::<StringStringEntryProto>(), fields: &[(1, Text), (2, Text)] };
static ANNOTATION: Shape =
    Shape { size: size_of::<TensorAnnotation>(), fields: &[(1, Text), (2, Message(&PAIR))] };
static TRAINING: Shape = Shape {
    size: size_of::<TrainingInfoProto>(),
    fields: &[(1, Message(&GRAPH)), (2, Message(&GRAPH)), (3, Message(&PAIR)), (4, Message(&PAIR))],
};
static FUNCTION: Shape = Shape {
    size: size_of::<FunctionProto>(),
    fields: &[
        (1, Text),
        (4, Text),
        (5, Text),
        (6, Text),
        (11, Message(&ATTRIBUTE)),
        (7, Message(&NODE)),
        (8, Text),
        (9, Message(&PAIR)),
        (10, Text),
        (13, Text),
        (12, Message(&VALUE)),
        (14, Message(&PAIR)),
    ],
};
static DEVICE: Shape =
    Shape { size: size_of::<DeviceConfigurationProto>(), fields: &[(1, Text), (3, Text)] };
static PLACEMENT: Shape = Shape {
    size: size_of::<NodeDeviceConfigurationProto>(),
    fields: &[(1, Text), (2, Message(&SHARDING))],
};
static SHARDING: Shape = Shape {
    size: size_of::<ShardingSpecProto>(),
    fields: &[(1, Text), (2, I64), (3, Message(&INDEX_MAP)), (4, Message(&SHARDED_DIM))],
};
static INDEX_MAP: Shape = Shape { size: size_of::<IntIntListEntryProto>(), fields: &[(2, I64)] };
static SHARDED_DIM: Shape =
    Shape { size: size_of::<ShardedDimProto>(), fields: &[(2, Message(&SIMPLE_SHARDING))] };
static SIMPLE_SHARDING: Shape =
    Shape { size: size_of::<SimpleShardedDimProto>(), fields: &[(2, Text)] };

/// Refuses a model that would take too much memory or stack when decoded.
pub(crate) fn check(bytes: &[u8]) -> Result<(), OnnxError> {
    let mut scan = Scan { structure: 0, numbers: 0 };
    scan.message(bytes, &MODEL, 0)
}

struct Scan {
    structure: u64,
    numbers: u64,
}

impl Scan {
    fn message(&mut self, mut b: &[u8], shape: &Shape, depth: usize) -> Result<(), OnnxError> {
        if depth > DEPTH {
            return Err(OnnxError::TooDeep { place: "the model".into(), limit: DEPTH });
        }
        self.structure(shape.size as u64)?;
        while !b.is_empty() {
            let key = varint(&mut b)?;
            let kind = shape.fields.iter().find(|f| f.0 == key >> 3).map(|f| &f.1);
            match key & 7 {
                0 => {
                    varint(&mut b)?;
                    self.numbers(8)?;
                }
                1 => {
                    take(&mut b, 8)?;
                    self.numbers(8)?;
                }
                5 => {
                    take(&mut b, 4)?;
                    self.numbers(4)?;
                }
                2 => {
                    let n = varint(&mut b)?;
                    let body = take(&mut b, n)?;
                    match kind {
                        Some(MessageKind::Message(inner)) => {
                            self.message(body, inner, depth + 1)?
                        }
                        Some(MessageKind::Text) => self.structure(32 + body.len() as u64)?,
                        Some(&MessageKind::Numbers(size, 0)) => {
                            let ends = body.iter().filter(|&&c| c < 0x80).count() as u64;
                            self.numbers(ends * size)?;
                        }
                        Some(&MessageKind::Numbers(size, wire)) => {
                            self.numbers(body.len() as u64 / wire * size)?;
                        }
                        // Raw data stays in the file; what is unknown is skipped.
                        None => {}
                    }
                }
                other => {
                    return Err(malformed(format!("wire type {other} does not occur in ONNX")));
                }
            }
        }
        Ok(())
    }

    fn structure(&mut self, n: u64) -> Result<(), OnnxError> {
        self.structure += n;
        if self.structure <= STRUCTURE {
            return Ok(());
        }
        let help = "split the model: it has more nodes or longer names than any known network";
        let what = "the description of the graph".into();
        Err(OnnxError::TooLarge { what, limit: STRUCTURE >> 20, help })
    }

    fn numbers(&mut self, n: u64) -> Result<(), OnnxError> {
        self.numbers += n;
        if self.numbers <= NUMBERS {
            return Ok(());
        }
        let help = "store weights as raw or external data: load the model with the `onnx` package \
                    and save it with `save_as_external_data=True`";
        let what = "the number of elements outside raw data".into();
        Err(OnnxError::TooLarge { what, limit: NUMBERS >> 20, help })
    }
}

fn malformed(reason: String) -> OnnxError {
    OnnxError::Malformed { reason }
}

fn take<'a>(b: &mut &'a [u8], n: u64) -> Result<&'a [u8], OnnxError> {
    let split = usize::try_from(n).ok().and_then(|n| b.split_at_checked(n));
    let Some((head, tail)) = split else {
        let have = b.len();
        return Err(malformed(format!("a field of {n} bytes has only {have} bytes left")));
    };
    *b = tail;
    Ok(head)
}

fn varint(b: &mut &[u8]) -> Result<u64, OnnxError> {
    let mut value = 0;
    for i in 0..10 {
        let Some((&c, rest)) = b.split_first() else {
            return Err(malformed("the file ends within a number".into()));
        };
        *b = rest;
        value |= u64::from(c & 0x7f) << (7 * i);
        if c < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed("a number has more than ten bytes".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of wire type 2.
    fn field(number: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        prost::encode_length_delimiter(body.len(), &mut out).expect("a vector grows");
        out.extend(body);
        out
    }

    #[test]
    fn a_million_empty_nodes_are_refused() {
        let graph = [field(1, &[])].concat().repeat(1 << 20);
        assert!(matches!(check(&field(7, &graph)), Err(OnnxError::TooLarge { .. })));
    }

    #[test]
    fn lengths_beyond_the_end_are_refused() {
        assert!(matches!(check(&[7 << 3 | 2, 200]), Err(OnnxError::Malformed { .. })));
        let max = [&[7 << 3 | 2][..], &[0xff; 9], &[1]].concat();
        assert!(matches!(check(&max), Err(OnnxError::Malformed { .. })));
    }

    #[test]
    fn deep_nesting_is_refused() {
        let mut b = Vec::new();
        for _ in 0..40 {
            b = field(1, &field(5, &field(6, &b)));
        }
        assert!(matches!(check(&field(7, &b)), Err(OnnxError::TooDeep { .. })));
    }

    #[test]
    fn raw_data_costs_nothing() {
        let tensor = field(9, &vec![0; 1 << 20]);
        let mut scan = Scan { structure: 0, numbers: 0 };
        scan.message(&field(7, &field(5, &tensor)), &MODEL, 0).expect("well-formed");
        assert!(scan.structure < 4096 && scan.numbers == 0);
    }
}
