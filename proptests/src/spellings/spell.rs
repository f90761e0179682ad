//! What exporters write in several ways: arithmetic, reductions, movement.
//!
//! Each function has one meaning and decides only how it is spelled. The first spelling is the plain one.

use super::build::{Build, Value, int, ints};

impl Build {
    /// A product, in either order.
    pub fn mul(&mut self, a: Value, b: Value) -> Value {
        if self.flip() { self.op("Mul", [b, a]) } else { self.op("Mul", [a, b]) }
    }

    /// A sum, in either order.
    pub fn add(&mut self, a: Value, b: Value) -> Value {
        if self.flip() { self.op("Add", [b, a]) } else { self.op("Add", [a, b]) }
    }

    /// A difference.
    pub fn sub(&mut self, a: Value, b: Value) -> Value {
        match self.pick(6) {
            4 => {
                let n = self.neg(b);
                self.add(a, n)
            }
            5 => {
                let d = self.op("Sub", [b, a]);
                self.neg(d)
            }
            _ => self.op("Sub", [a, b]),
        }
    }

    /// A quotient.
    pub fn div(&mut self, a: Value, b: Value) -> Value {
        match self.pick(6) {
            3 | 4 => {
                let r = self.recip(b);
                self.mul(a, r)
            }
            _ => self.op("Div", [a, b]),
        }
    }

    /// A negation.
    pub fn neg(&mut self, x: Value) -> Value {
        match self.pick(4) {
            2 => {
                let k = self.scalar(-1.0);
                self.mul(x, k)
            }
            3 => {
                let k = self.scalar(0.0);
                self.op("Sub", [k, x])
            }
            _ => self.op("Neg", [x]),
        }
    }

    /// A reciprocal.
    pub fn recip(&mut self, x: Value) -> Value {
        match self.pick(4) {
            2 => {
                let one = self.scalar(1.0);
                self.op("Div", [one, x])
            }
            3 => {
                let k = self.scalar(-1.0);
                self.op("Pow", [x, k])
            }
            _ => self.op("Reciprocal", [x]),
        }
    }

    /// A square root.
    pub fn sqrt(&mut self, x: Value) -> Value {
        if self.pick(4) == 3 {
            let k = self.scalar(0.5);
            return self.op("Pow", [x, k]);
        }
        self.op("Sqrt", [x])
    }

    /// The reciprocal of a square root.
    pub fn rsqrt(&mut self, x: Value) -> Value {
        if self.pick(5) == 4 {
            let k = self.scalar(-0.5);
            return self.op("Pow", [x, k]);
        }
        let root = self.sqrt(x);
        self.recip(root)
    }

    /// A square.
    pub fn square(&mut self, x: Value) -> Value {
        if self.flip() {
            let k = self.scalar(2.0);
            return self.op("Pow", [x, k]);
        }
        self.op("Mul", [x, x])
    }

    /// A cube.
    pub fn cube(&mut self, x: Value) -> Value {
        if self.flip() {
            let s = self.square(x);
            return self.mul(s, x);
        }
        let k = self.scalar(3.0);
        self.op("Pow", [x, k])
    }

    /// A product with a number, or a quotient by its reciprocal.
    pub fn scale(&mut self, x: Value, k: f64) -> Value {
        if self.pick(4) == 3 {
            let r = self.scalar(1.0 / k);
            return self.op("Div", [x, r]);
        }
        let k = self.scalar(k);
        self.mul(x, k)
    }

    /// A sum with a number, or a difference with its negative.
    pub fn shift(&mut self, x: Value, k: f64) -> Value {
        if self.pick(5) == 4 {
            let r = self.scalar(-k);
            return self.op("Sub", [x, r]);
        }
        let k = self.scalar(k);
        self.add(x, k)
    }

    /// The logistic function.
    pub fn logistic(&mut self, x: Value) -> Value {
        match self.pick(5) {
            3 => {
                let n = self.neg(x);
                let e = self.op("Exp", [n]);
                let d = self.shift(e, 1.0);
                self.recip(d)
            }
            4 => {
                let h = self.scale(x, 0.5);
                let t = self.op("Tanh", [h]);
                let s = self.shift(t, 1.0);
                self.scale(s, 0.5)
            }
            _ => self.op("Sigmoid", [x]),
        }
    }

    /// The rectifier.
    pub fn rectified(&mut self, x: Value) -> Value {
        match self.pick(5) {
            2 => {
                let z = self.scalar(0.0);
                self.op("Max", [x, z])
            }
            3 => {
                let z = self.tensor(&[], &[0.0]);
                self.node("Clip", &[x, z], &[])
            }
            4 => {
                let z = self.scalar(0.0);
                let c = self.op("Less", [x, z]);
                let z = self.scalar(0.0);
                self.op("Where", [c, z, x])
            }
            _ => self.op("Relu", [x]),
        }
    }

    /// What changes nothing: a copy, a dropped dropout, a cast to the same type, unit axes that come and go.
    pub fn noise(&mut self, x: Value) -> Value {
        match self.pick(16) {
            11 => self.op("Identity", [x]),
            12 => self.op("Dropout", [x]),
            13 => {
                let to = if self.dtype == mlc_dsl::ir::DType::F16 { 10 } else { 1 };
                self.node("Cast", &[x], &[("to", int(to))])
            }
            14 => {
                let u = self.unsqueeze(x, &[0]);
                self.squeeze(u, &[0])
            }
            15 => {
                let one = self.scalar_plain(1.0);
                self.mul(x, one)
            }
            _ => x,
        }
    }

    /// A number without axes.
    pub fn scalar_plain(&mut self, v: f64) -> Value {
        self.tensor(&[], &[v])
    }

    /// Axes counted from the front or from the end.
    pub fn axes(&mut self, axes: &[i64], rank: i64) -> Vec<i64> {
        let end = self.flip();
        axes.iter().map(|a| if end { a - rank } else { *a }).collect()
    }

    /// A reduction that keeps its axes, by keeping them or by putting them back.
    pub fn reduce(&mut self, op: &str, x: Value, axes: &[i64], rank: i64) -> Value {
        if self.pick(4) == 3 {
            let y = self.reduce_with(op, x, axes, rank, false);
            return self.unsqueeze(y, axes);
        }
        self.reduce_with(op, x, axes, rank, true)
    }

    /// A reduction with axes as attribute or input, as the operator set has it.
    pub fn reduce_with(
        &mut self,
        op: &str,
        x: Value,
        axes: &[i64],
        rank: i64,
        keep: bool,
    ) -> Value {
        let axes = self.axes(axes, rank);
        let as_input = self.opset >= if op == "ReduceSum" { 13 } else { 18 };
        let keep = ("keepdims", int(keep.into()));
        if as_input {
            let a = self.integers(&axes);
            return self.node(op, &[x, a], &[keep]);
        }
        self.node(op, &[x], &[("axes", ints(&axes)), keep])
    }

    /// A mean that keeps its axes; `count` is how many elements there are.
    pub fn mean(&mut self, x: Value, axes: &[i64], rank: i64, count: i64) -> Value {
        if self.pick(4) == 3 {
            let s = self.reduce("ReduceSum", x, axes, rank);
            return self.scale(s, 1.0 / count as f64);
        }
        self.reduce("ReduceMean", x, axes, rank)
    }

    /// New unit axes.
    pub fn unsqueeze(&mut self, x: Value, axes: &[i64]) -> Value {
        self.axes_op("Unsqueeze", x, axes)
    }

    /// Unit axes that go.
    pub fn squeeze(&mut self, x: Value, axes: &[i64]) -> Value {
        self.axes_op("Squeeze", x, axes)
    }

    fn axes_op(&mut self, op: &str, x: Value, axes: &[i64]) -> Value {
        if self.opset >= 13 {
            let a = self.integers(axes);
            return self.op_list(op, &[x, a]);
        }
        self.node(op, &[x], &[("axes", ints(axes))])
    }

    fn op_list(&mut self, op: &str, inputs: &[Value]) -> Value {
        self.node(op, inputs, &[])
    }

    /// Another shape.
    pub fn reshape(&mut self, x: Value, shape: &[i64]) -> Value {
        let s = self.integers(shape);
        self.op("Reshape", [x, s])
    }

    /// Another order of axes.
    pub fn transpose(&mut self, x: Value, perm: &[i64]) -> Value {
        self.node("Transpose", &[x], &[("perm", ints(perm))])
    }

    /// The part `from..to` along an axis.
    pub fn slice(&mut self, x: Value, axis: i64, from: i64, to: i64) -> Value {
        let (s, e, a) = (self.integers(&[from]), self.integers(&[to]), self.integers(&[axis]));
        if self.flip() {
            let step = self.integers(&[1]);
            return self.op("Slice", [x, s, e, a, step]);
        }
        self.op("Slice", [x, s, e, a])
    }

    /// Consecutive parts along an axis, by one split or by slices.
    pub fn parts(&mut self, x: Value, axis: i64, sizes: &[i64]) -> Vec<Value> {
        if self.flip() {
            let mut at = 0;
            let mut out = Vec::new();
            for (i, s) in sizes.iter().enumerate() {
                let last = i + 1 == sizes.len() && self.flip();
                out.push(self.slice(x, axis, at, if last { i64::MAX } else { at + s }));
                at += s;
            }
            return out;
        }
        if self.opset >= 13 {
            let s = self.integers(sizes);
            return self.nodes("Split", &[x, s], &[("axis", int(axis))], sizes.len());
        }
        self.nodes("Split", &[x], &[("axis", int(axis)), ("split", ints(sizes))], sizes.len())
    }

    /// The shape with its first extent open where it is a symbol.
    pub fn open(&self, shape: &[i64]) -> Vec<i64> {
        let mut shape = shape.to_vec();
        if self.symbolic {
            shape[0] = -1;
        }
        shape
    }
}
