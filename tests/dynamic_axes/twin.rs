//! A builder of graphs that are exported twice: with numbers as extents, and with symbols from which nodes compute shapes, as PyTorch's
//! exporter writes them (`Shape`, `Gather`, `Unsqueeze`, `Concat`, `Reshape`).

use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::{RawAttr, RawDim, RawGraph, RawModel, RawNode, RawValueInfo};
use std::slice::from_ref;

/// A graph under construction, with numbers or with symbols as extents.
pub struct Twin {
    symbolic: bool,
    sizes: Vec<(&'static str, u64)>,
    graph: RawGraph,
    next: usize,
    weights: usize,
}

/// The extent of an axis.
#[derive(Clone, Debug)]
pub enum Dim {
    /// A number.
    Fixed(i64),
    /// A scalar that the graph computes.
    Computed(String),
}

impl From<i64> for Dim {
    fn from(v: i64) -> Dim {
        Dim::Fixed(v)
    }
}

impl Twin {
    /// An empty graph whose symbols have these extents, or are free.
    pub fn new(symbolic: bool, sizes: &[(&'static str, u64)]) -> Twin {
        let graph = RawGraph { name: "twin".into(), ..RawGraph::default() };
        Twin { symbolic, sizes: sizes.to_vec(), graph, next: 0, weights: 0 }
    }

    fn size(&self, symbol: &str) -> u64 {
        let found = self.sizes.iter().find(|(s, _)| *s == symbol);
        found.unwrap_or_else(|| panic!("`{symbol}` has no size")).1
    }

    /// An input; its axes are numbers or names of symbols.
    pub fn input(&mut self, name: &str, dtype: DType, axes: &[&str]) -> String {
        let axis = |a: &&str| match a.parse() {
            Ok(n) => RawDim::Known(n),
            Err(_) if self.symbolic => RawDim::Symbol(a.to_string()),
            Err(_) => RawDim::Known(self.size(a)),
        };
        let dims = Some(axes.iter().map(axis).collect());
        let dtype = Some(dtype);
        let info = RawValueInfo { name: name.into(), dtype, dims, ..RawValueInfo::default() };
        self.graph.inputs.push(info);
        name.into()
    }

    fn name(&mut self, what: &str) -> String {
        self.next += 1;
        format!("{what}_{}", self.next)
    }

    fn constant(&mut self, tensor: Tensor) -> String {
        let name = self.name("c");
        self.graph.initializers.insert(name.clone(), tensor);
        name
    }

    /// Weights of a shape, different for each.
    pub fn weight(&mut self, shape: &[usize]) -> String {
        self.weights += 1;
        let (n, from) = (shape.iter().product::<usize>(), self.weights as f32);
        let v = (0..n).map(|i| (i as f32 * 0.37 + from).sin() * 0.3).collect();
        self.constant(Tensor::from_f32(shape.to_vec(), v))
    }

    /// A number.
    pub fn scalar(&mut self, v: f32) -> String {
        self.constant(Tensor::from_f32(vec![], vec![v]))
    }

    /// A list of integers.
    pub fn ints(&mut self, v: &[i64]) -> String {
        self.constant(Tensor::from_i64(DType::I64, vec![v.len()], v))
    }

    /// An integer.
    pub fn integer(&mut self, v: i64) -> String {
        self.constant(Tensor::from_i64(DType::I64, vec![], &[v]))
    }

    /// The result of an operator.
    pub fn op(&mut self, op: &str, inputs: &[&str]) -> String {
        self.op_with(op, inputs, &[])
    }

    /// The same with attributes.
    pub fn op_with(&mut self, op: &str, inputs: &[&str], attrs: &[(&str, RawAttr)]) -> String {
        let name = self.name("v");
        self.graph.nodes.push(RawNode {
            op_type: op.into(),
            inputs: inputs.iter().map(|i| i.to_string()).collect(),
            outputs: vec![name.clone()],
            attrs: attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
            ..RawNode::default()
        });
        name
    }

    /// The extent of an axis of a value, which is that of a symbol.
    pub fn dim(&mut self, value: &str, axis: i64, symbol: &str) -> Dim {
        if !self.symbolic {
            return Dim::Fixed(self.size(symbol) as i64);
        }
        let (shape, axis) = (self.op("Shape", &[value]), self.integer(axis));
        Dim::Computed(self.op_with("Gather", &[&shape, &axis], &[("axis", RawAttr::Int(0))]))
    }

    /// Arithmetic on extents.
    pub fn calc(&mut self, op: &str, a: &Dim, b: &Dim) -> Dim {
        if let (Dim::Fixed(a), Dim::Fixed(b)) = (a, b) {
            return Dim::Fixed(match op {
                "Add" => a + b,
                "Sub" => a - b,
                "Mul" => a * b,
                "Div" => a / b,
                _ => panic!("`{op}` is no arithmetic on extents"),
            });
        }
        let (a, b) = (self.as_scalar(a), self.as_scalar(b));
        Dim::Computed(self.op(op, &[&a, &b]))
    }

    /// An extent as a scalar of the graph.
    pub fn as_scalar(&mut self, d: &Dim) -> String {
        match d {
            Dim::Fixed(n) => self.integer(*n),
            Dim::Computed(name) => name.clone(),
        }
    }

    /// Extents as a list of the graph.
    pub fn list(&mut self, dims: &[Dim]) -> String {
        let known: Option<Vec<i64>> =
            dims.iter().map(|d| if let Dim::Fixed(n) = d { Some(*n) } else { None }).collect();
        if let Some(known) = known {
            return self.ints(&known);
        }
        let mut parts = vec![];
        for d in dims {
            parts.push(match d {
                Dim::Fixed(n) => self.ints(&[*n]),
                Dim::Computed(name) => {
                    let first = self.ints(&[0]);
                    self.op("Unsqueeze", &[name, &first])
                }
            });
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        self.op_with("Concat", &parts, &[("axis", RawAttr::Int(0))])
    }

    /// A value in another shape.
    pub fn reshape(&mut self, x: &str, dims: &[Dim]) -> String {
        let shape = self.list(dims);
        self.op("Reshape", &[x, &shape])
    }

    /// `torch.expand`: -1 keeps an extent, which the exporter replaces by 1.
    pub fn expand(&mut self, x: &str, dims: &[Dim]) -> String {
        let shape = self.list(dims);
        let rank = self.ints(&[dims.len() as i64]);
        let one = Tensor::from_i64(DType::I64, vec![1], &[1]);
        let ones = self.op_with("ConstantOfShape", &[&rank], &[("value", RawAttr::Tensor(one))]);
        let minus = self.integer(-1);
        let open = self.op("Mul", &[&ones, &minus]);
        let keeps = self.op("Equal", &[&shape, &open]);
        let target = self.op("Where", &[&keeps, &ones, &shape]);
        self.op("Expand", &[x, &target])
    }

    /// A part of an axis.
    pub fn slice(&mut self, x: &str, axis: i64, from: &Dim, to: &Dim) -> String {
        let (from, to) = (self.list(from_ref(from)), self.list(from_ref(to)));
        let (axis, step) = (self.ints(&[axis]), self.ints(&[1]));
        self.op("Slice", &[x, &from, &to, &axis, &step])
    }

    /// 0, 1, 2, … up to an extent.
    pub fn range(&mut self, to: &Dim) -> String {
        let (from, to, step) = (self.integer(0), self.as_scalar(to), self.integer(1));
        self.op("Range", &[&from, &to, &step])
    }

    /// The axes in another order.
    pub fn transpose(&mut self, x: &str, perm: &[i64]) -> String {
        self.op_with("Transpose", &[x], &[("perm", RawAttr::Ints(perm.to_vec()))])
    }

    /// More axes of extent 1.
    pub fn unsqueeze(&mut self, x: &str, axes: &[i64]) -> String {
        let axes = self.ints(axes);
        self.op("Unsqueeze", &[x, &axes])
    }

    /// The graph with this result, which it calls `y`.
    pub fn finish(mut self, y: &str) -> RawModel {
        let dtype = Some(DType::F32);
        self.graph.nodes.push(RawNode {
            op_type: "Identity".into(),
            inputs: vec![y.into()],
            outputs: vec!["y".into()],
            ..RawNode::default()
        });
        self.graph.outputs =
            vec![RawValueInfo { name: "y".into(), dtype, dims: None, ..RawValueInfo::default() }];
        let opset_imports = [(String::new(), 17)].into();
        RawModel { ir_version: 8, opset_imports, graph: self.graph, ..RawModel::default() }
    }
}
