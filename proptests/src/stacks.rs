//! Transformers of any depth, spelled as exporters spell them: what measures how work grows with layers.

use crate::spellings::build::{Build, Value, int, ints};
use crate::spellings::choices::Choices;
use mlc_dsl::ir::{DType, FileRange, Tensor};
use mlc_files::map;
use mlc_onnx::RawModel;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The dimensions of a decoder.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    /// Layers.
    pub layers: usize,
    /// Features of a token.
    pub hidden: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Features within the feed-forward part.
    pub inner: usize,
    /// Tokens known.
    pub vocabulary: usize,
    /// Tokens of a sequence.
    pub tokens: usize,
}

impl Decoder {
    /// A decoder of so many small layers.
    pub fn small(layers: usize) -> Decoder {
        Decoder {
            layers,
            hidden: 64,
            heads: 4,
            kv_heads: 2,
            inner: 128,
            vocabulary: 97,
            tokens: 16,
        }
    }

    /// Llama 3 with 70 billion weights (Grattafiori et al., "The Llama 3 Herd of Models", 2024, table 3).
    pub fn llama_70b() -> Decoder {
        Decoder {
            layers: 80,
            hidden: 8192,
            heads: 64,
            kv_heads: 8,
            inner: 28672,
            vocabulary: 128_256,
            tokens: 128,
        }
    }

    /// The model, with weights from `weights`.
    pub fn model(&self, dtype: DType, weights: &mut dyn FnMut(&[usize]) -> Tensor) -> RawModel {
        let build = Build::new(17, dtype, false, Choices::default());
        Writer { b: build, of: *self, weights }.model()
    }

    /// The model with seeded weights.
    pub fn seeded(&self) -> RawModel {
        let mut drawn = 0;
        self.model(DType::F32, &mut |shape| {
            drawn += 1;
            let n: usize = shape.iter().product();
            let mut random = mlc_dsl::random::Random::from_state(drawn);
            let spread = 1.0 / (shape[0] as f64).sqrt();
            let values: Vec<f64> = (0..n).map(|_| random.normal() * spread).collect();
            Tensor::from_f64(DType::F32, shape.to_vec(), &values)
        })
    }

    /// The model in f16 with weights that lie in a file of zeros, which takes no space on most file
    /// systems.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn hollow(&self, file: &Path) -> io::Result<RawModel> {
        let bytes = self.weight_bytes();
        std::fs::File::create(file)?.set_len(bytes)?;
        let all = map(file)?;
        let path = std::fs::canonicalize(file)?;
        let mut offset = 0usize;
        Ok(self.model(DType::F16, &mut |shape| {
            let length = shape.iter().product::<usize>() * 2;
            let data = all.slice(offset..offset + length);
            let range = FileRange { path: path.clone(), offset: offset as u64 };
            offset += length;
            let tensor = Tensor::new(DType::F16, shape.to_vec(), data).expect("as many bytes");
            tensor.into_unread(Arc::new(range))
        }))
    }

    fn weight_bytes(&self) -> u64 {
        let mut bytes = 0;
        let one = Tensor::from_f64(DType::F16, vec![1], &[1.0]);
        self.model(DType::F16, &mut |shape| {
            bytes += 2 * shape.iter().product::<usize>() as u64;
            one.clone()
        });
        bytes
    }
}

struct Writer<'a> {
    b: Build,
    of: Decoder,
    weights: &'a mut dyn FnMut(&[usize]) -> Tensor,
}

impl Writer<'_> {
    fn weight(&mut self, shape: &[usize]) -> Value {
        let tensor = (self.weights)(shape);
        self.b.constant(tensor)
    }

    fn model(mut self) -> RawModel {
        let (of, dtype) = (self.of, self.b.dtype);
        let head = (of.hidden / of.heads) as i64;
        let tokens = of.tokens as i64;
        let ids = self.b.input_of(DType::I64, &[1, tokens]);
        let mask = self.b.input_of(dtype, &[1, 1, tokens, tokens]);
        let cos = self.b.input_of(dtype, &[1, 1, tokens, head]);
        let sin = self.b.input_of(dtype, &[1, 1, tokens, head]);
        let table = self.weight(&[of.vocabulary, of.hidden]);
        let mut x = self.b.node("Gather", &[table, ids], &[("axis", int(0))]);
        for _ in 0..of.layers {
            let normal = self.norm(x);
            let attended = self.attention(normal, mask, cos, sin);
            x = self.b.op("Add", [x, attended]);
            let normal = self.norm(x);
            let fed = self.feed_forward(normal);
            x = self.b.op("Add", [x, fed]);
        }
        let x = self.norm(x);
        let w = self.weight(&[of.hidden, of.vocabulary]);
        let out = self.b.op("MatMul", [x, w]);
        self.b.finish(&[out], dtype).0
    }

    fn norm(&mut self, x: Value) -> Value {
        let two = self.b.scalar(2.0);
        let eps = self.b.scalar(1e-5);
        let square = self.b.op("Pow", [x, two]);
        let mean =
            self.b.node("ReduceMean", &[square], &[("axes", ints(&[-1])), ("keepdims", int(1))]);
        let sum = self.b.op("Add", [mean, eps]);
        let root = self.b.op("Sqrt", [sum]);
        let y = self.b.op("Div", [x, root]);
        let g = self.weight(&[self.of.hidden]);
        self.b.op("Mul", [g, y])
    }

    fn heads(&mut self, x: Value, heads: usize) -> Value {
        let head = (self.of.hidden / self.of.heads) as i64;
        let w = self.weight(&[self.of.hidden, heads * head as usize]);
        let y = self.b.op("MatMul", [x, w]);
        let shape = self.b.integers(&[1, -1, heads as i64, head]);
        let y = self.b.op("Reshape", [y, shape]);
        self.b.node("Transpose", &[y], &[("perm", ints(&[0, 2, 1, 3]))])
    }

    fn rotate(&mut self, x: Value, cos: Value, sin: Value) -> Value {
        let half = (self.of.hidden / self.of.heads / 2) as i64;
        let part = |w: &mut Self, from: i64, to: i64| {
            let ends = [from, to, 3].map(|v| w.b.integers(&[v]));
            w.b.op("Slice", [x, ends[0], ends[1], ends[2]])
        };
        let (low, high) = (part(self, 0, half), part(self, half, i64::MAX));
        let minus = self.b.op("Neg", [high]);
        let turned = self.b.node("Concat", &[minus, low], &[("axis", int(-1))]);
        let (a, b) = (self.b.op("Mul", [x, cos]), self.b.op("Mul", [turned, sin]));
        self.b.op("Add", [a, b])
    }

    fn spread(&mut self, x: Value) -> Value {
        let Decoder { heads, kv_heads, hidden, tokens, .. } = self.of;
        let (head, times) = ((hidden / heads) as i64, (heads / kv_heads) as i64);
        let (kv, tokens) = (kv_heads as i64, tokens as i64);
        let axis = self.b.integers(&[2]);
        let x = self.b.op("Unsqueeze", [x, axis]);
        let shape = self.b.integers(&[1, kv, times, tokens, head]);
        let x = self.b.op("Expand", [x, shape]);
        let shape = self.b.integers(&[1, kv * times, tokens, head]);
        self.b.op("Reshape", [x, shape])
    }

    fn attention(&mut self, x: Value, mask: Value, cos: Value, sin: Value) -> Value {
        let Decoder { heads, kv_heads, hidden, .. } = self.of;
        let (q, k, v) = (self.heads(x, heads), self.heads(x, kv_heads), self.heads(x, kv_heads));
        let (q, k) = (self.rotate(q, cos, sin), self.rotate(k, cos, sin));
        let (k, v) = (self.spread(k), self.spread(v));
        let k = self.b.node("Transpose", &[k], &[("perm", ints(&[0, 1, 3, 2]))]);
        let scores = self.b.op("MatMul", [q, k]);
        let scale = self.b.scalar(((hidden / heads) as f64).sqrt());
        let scores = self.b.op("Div", [scores, scale]);
        let scores = self.b.op("Add", [scores, mask]);
        let weights = self.b.node("Softmax", &[scores], &[("axis", int(-1))]);
        let y = self.b.op("MatMul", [weights, v]);
        let y = self.b.node("Transpose", &[y], &[("perm", ints(&[0, 2, 1, 3]))]);
        let shape = self.b.integers(&[1, -1, hidden as i64]);
        let y = self.b.op("Reshape", [y, shape]);
        let w = self.weight(&[hidden, hidden]);
        self.b.op("MatMul", [y, w])
    }

    fn feed_forward(&mut self, x: Value) -> Value {
        let Decoder { hidden, inner, .. } = self.of;
        let (gate, up) = (self.weight(&[hidden, inner]), self.weight(&[hidden, inner]));
        let (gate, up) = (self.b.op("MatMul", [x, gate]), self.b.op("MatMul", [x, up]));
        let sigmoid = self.b.op("Sigmoid", [gate]);
        let gate = self.b.op("Mul", [gate, sigmoid]);
        let y = self.b.op("Mul", [gate, up]);
        let down = self.weight(&[inner, hidden]);
        self.b.op("MatMul", [y, down])
    }
}
