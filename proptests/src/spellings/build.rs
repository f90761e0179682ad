//! A builder of small ONNX graphs in which every degree of freedom is a decision.
//!
//! Knows how operators changed between operator sets; knows no layer.

use super::choices::Choices;
use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::{RawAttr, RawDim, RawGraph, RawModel, RawNode, RawValueInfo};

/// A value of the graph under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(u32);

/// A graph under construction.
pub struct Build {
    /// Version of the standard operator set.
    pub opset: i64,
    /// Element type of the layer.
    pub dtype: DType,
    /// True if the first extent of inputs is a symbol.
    pub symbolic: bool,
    choices: Choices,
    graph: RawGraph,
    next: u32,
    drawn: u32,
    contrib: bool,
    unstable: bool,
}

/// An integer attribute.
pub fn int(v: i64) -> RawAttr {
    RawAttr::Int(v)
}

/// An attribute that is a list of integers.
pub fn ints(v: &[i64]) -> RawAttr {
    RawAttr::Ints(v.to_vec())
}

/// A real attribute.
pub fn float(v: f64) -> RawAttr {
    RawAttr::Float(v as f32)
}

/// A word.
pub fn word(v: &str) -> RawAttr {
    RawAttr::from(v)
}

impl Build {
    /// An empty graph.
    pub fn new(opset: i64, dtype: DType, symbolic: bool, choices: Choices) -> Build {
        let graph = RawGraph { name: "spelling".into(), ..RawGraph::default() };
        Build {
            opset,
            dtype,
            symbolic,
            choices,
            graph,
            next: 0,
            drawn: 0,
            contrib: false,
            unstable: false,
        }
    }

    /// The spelling overflows, or loses infinities or digits, where the layer does not: it is another function in floating
    /// point, and becomes the layer only where the caller allows approximations.
    pub fn unstable(&mut self) {
        self.unstable = true;
    }

    /// Whether it is such a spelling.
    pub fn is_unstable(&self) -> bool {
        self.unstable
    }

    /// One of `n` decisions.
    pub fn pick(&mut self, n: usize) -> usize {
        self.choices.pick(n)
    }

    /// Yes or no; no comes first.
    pub fn flip(&mut self) -> bool {
        self.choices.flip()
    }

    /// One of several values.
    pub fn any<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.choices.pick(of.len())].clone()
    }

    fn fresh(&mut self) -> Value {
        self.next += 1;
        Value(self.next - 1)
    }

    fn info(&self, v: Value, dtype: DType, dims: Option<Vec<RawDim>>) -> RawValueInfo {
        RawValueInfo { name: name(v), dtype: Some(dtype), dims, ..RawValueInfo::default() }
    }

    /// An input of the layer's element type; its first extent is a symbol where the setup says so.
    pub fn input(&mut self, shape: &[i64]) -> Value {
        self.input_of(self.dtype, shape)
    }

    /// An input of any element type.
    pub fn input_of(&mut self, dtype: DType, shape: &[i64]) -> Value {
        let v = self.fresh();
        let dim = |(i, &d): (usize, &i64)| match self.symbolic && i == 0 {
            true => RawDim::Symbol("batch".into()),
            false => RawDim::Known(d as u64),
        };
        let dims = shape.iter().enumerate().map(dim).collect();
        let info = self.info(v, dtype, Some(dims));
        self.graph.inputs.push(info);
        v
    }

    /// A constant, as an initialiser or as a `Constant` node.
    pub fn constant(&mut self, tensor: Tensor) -> Value {
        let v = self.fresh();
        if self.choices.pick(3) == 2 {
            let attrs = [("value".to_string(), RawAttr::Tensor(tensor))].into_iter().collect();
            let outputs = vec![name(v)];
            let op_type = "Constant".into();
            self.graph.nodes.push(RawNode { op_type, outputs, attrs, ..RawNode::default() });
        } else {
            self.graph.initializers.insert(name(v), tensor);
        }
        v
    }

    /// A constant of integers.
    pub fn integers(&mut self, values: &[i64]) -> Value {
        self.constant(Tensor::from_i64(DType::I64, vec![values.len()], values))
    }

    /// A number of the layer's element type: without axes, or with one or two unit axes.
    pub fn scalar(&mut self, v: f64) -> Value {
        let shape = match self.choices.pick(6) {
            4 => vec![1],
            5 => vec![1, 1],
            _ => vec![],
        };
        self.constant(Tensor::from_f64(self.dtype, shape, &[v]))
    }

    /// A tensor of given elements.
    pub fn tensor(&mut self, shape: &[usize], values: &[f64]) -> Value {
        self.constant(Tensor::from_f64(self.dtype, shape.to_vec(), values))
    }

    /// Weights: seeded numbers around zero.
    pub fn weight(&mut self, shape: &[usize]) -> Value {
        self.weight_in(shape, -1.0, 1.0)
    }

    /// Weights between two bounds.
    pub fn weight_in(&mut self, shape: &[usize], low: f64, high: f64) -> Value {
        let values = self.numbers(shape.iter().product(), low, high);
        self.tensor(shape, &values)
    }

    /// Seeded numbers between two bounds.
    pub fn numbers(&mut self, n: usize, low: f64, high: f64) -> Vec<f64> {
        self.drawn += 1;
        let mut state = 0x1234_5678_9abc_def1u64 ^ (u64::from(self.drawn) << 32 | n as u64);
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            low + (high - low) * ((state >> 11) as f64 / (1u64 << 53) as f64)
        };
        (0..8).for_each(|_| {
            next();
        });
        (0..n).map(|_| next()).collect()
    }

    /// An operator without attributes.
    pub fn op<const N: usize>(&mut self, op: &str, inputs: [Value; N]) -> Value {
        self.node(op, &inputs, &[])
    }

    /// An operator with attributes and one output.
    pub fn node(&mut self, op: &str, inputs: &[Value], attrs: &[(&str, RawAttr)]) -> Value {
        self.nodes(op, inputs, attrs, 1)[0]
    }

    /// An operator with several outputs.
    pub fn nodes(
        &mut self,
        op: &str,
        inputs: &[Value],
        attrs: &[(&str, RawAttr)],
        outputs: usize,
    ) -> Vec<Value> {
        let inputs: Vec<Option<Value>> = inputs.iter().copied().map(Some).collect();
        self.full("", op, &inputs, attrs, outputs)
    }

    /// An operator of ONNX Runtime's domain.
    pub fn contrib(&mut self, op: &str, inputs: &[Value], attrs: &[(&str, RawAttr)]) -> Value {
        self.contrib = true;
        let inputs: Vec<Option<Value>> = inputs.iter().copied().map(Some).collect();
        self.full("com.microsoft", op, &inputs, attrs, 1)[0]
    }

    /// An operator of any domain, some inputs absent.
    pub fn full(
        &mut self,
        domain: &str,
        op: &str,
        inputs: &[Option<Value>],
        attrs: &[(&str, RawAttr)],
        outputs: usize,
    ) -> Vec<Value> {
        let values: Vec<Value> = (0..outputs).map(|_| self.fresh()).collect();
        self.graph.nodes.push(RawNode {
            op_type: op.into(),
            domain: domain.into(),
            inputs: inputs.iter().map(|v| v.map_or(String::new(), name)).collect(),
            outputs: values.iter().map(|&v| name(v)).collect(),
            attrs: attrs.iter().map(|(n, a)| (n.to_string(), a.clone())).collect(),
            ..RawNode::default()
        });
        values
    }

    /// The model with these outputs, and the decisions that made it.
    pub fn finish(mut self, outputs: &[Value], dtype: DType) -> (RawModel, Choices) {
        self.graph.outputs = outputs.iter().map(|&v| self.info(v, dtype, None)).collect();
        let mut domains = vec![(String::new(), self.opset)];
        if self.contrib {
            domains.push(("com.microsoft".into(), 1));
        }
        let model = RawModel {
            ir_version: 8,
            opset_imports: domains.into_iter().collect(),
            producer_name: "spellings".into(),
            graph: self.graph,
            ..RawModel::default()
        };
        (model, self.choices)
    }
}

fn name(v: Value) -> String {
    format!("v{}", v.0)
}
