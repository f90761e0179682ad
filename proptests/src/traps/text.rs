//! A short notation for ONNX graphs: inputs, constants, nodes and outputs, one per line.
//!
//! `x: f32[n, 3]` is an input (`in -2..3` bounds integers, `= {…}` makes it an initialiser that is listed as an
//! input), `a, b = Op(x, 0.5, i64[2]{1, 2}, Inner(x); axis = 1)` a node with nodes and constants inside, `-> a, b`
//! the outputs, `opset 13` the operator set. `_` is an absent input, `f32[4]~` are seeded numbers, `f32[4]+` positive ones.

use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::random::Random;
use mlc_onnx::{RawAttr, RawDim, RawGraph, RawModel, RawNode, RawValueInfo};
use std::collections::BTreeMap;

/// A graph as read from its text.
pub struct Graph {
    /// The graph as ONNX.
    pub model: RawModel,
    /// Bounds of integer inputs, both inclusive.
    pub bounds: BTreeMap<String, (i64, i64)>,
    /// Initialisers that are listed as inputs, too.
    pub listed: Vec<RawValueInfo>,
}

/// The operator set of a text that names none.
const OPSET: i64 = 17;

/// Reads a graph; the error says where it ends to make sense.
pub fn graph(text: &str) -> Result<Graph, String> {
    let mut r =
        Reader { model: RawModel::default(), bounds: BTreeMap::new(), listed: vec![], fresh: 0 };
    r.model.ir_version = 8;
    r.model.producer_name = "traps".into();
    r.model.opset_imports.insert(String::new(), OPSET);
    r.model.graph = RawGraph { name: "trap".into(), ..RawGraph::default() };
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        r.line(line).map_err(|e| format!("`{line}`: {e}"))?;
    }
    if r.model.graph.outputs.is_empty() {
        return Err("it has no outputs".into());
    }
    Ok(Graph { model: r.model, bounds: r.bounds, listed: r.listed })
}

struct Reader {
    model: RawModel,
    bounds: BTreeMap<String, (i64, i64)>,
    listed: Vec<RawValueInfo>,
    fresh: u32,
}

/// What is left of a line.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn eat(&mut self, sign: &str) -> bool {
        self.skip();
        match self.0.strip_prefix(sign) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn need(&mut self, sign: &str) -> Result<(), String> {
        if self.eat(sign) { Ok(()) } else { Err(format!("`{sign}` expected before `{}`", self.0)) }
    }

    fn take(&mut self, of: impl Fn(char) -> bool) -> &'a str {
        self.skip();
        let end = self.0.find(|c| !of(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    fn word(&mut self) -> &'a str {
        self.take(|c| c.is_alphanumeric() || c == '_' || c == '.')
    }

    fn number(&mut self) -> Result<&'a str, String> {
        let word = self.take(|c| c.is_alphanumeric() || "+-._".contains(c));
        if word.parse::<f64>().is_ok() { Ok(word) } else { Err(format!("`{word}` is no number")) }
    }

    fn list<T>(
        &mut self,
        end: &str,
        mut item: impl FnMut(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut out = Vec::new();
        while !self.eat(end) {
            out.push(item(self)?);
            if !self.eat(",") {
                self.need(end)?;
                break;
            }
        }
        Ok(out)
    }
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut rest = Rest(line);
        if rest.eat("opset ") {
            let n = rest.number()?.parse().map_err(|_| "no operator set")?;
            self.model.opset_imports.insert(String::new(), n);
            return Ok(());
        }
        if rest.eat("->") {
            let info = |n: &str| RawValueInfo { name: n.trim().into(), ..RawValueInfo::default() };
            self.model.graph.outputs = rest.0.split(',').map(info).collect();
            return Ok(());
        }
        let name = rest.word().to_string();
        if rest.eat(":") {
            return self.input(name, &mut rest);
        }
        let mut names = vec![name];
        while rest.eat(",") {
            names.push(rest.word().to_string());
        }
        rest.need("=")?;
        let word = rest.word();
        if let Some(t) = tensor(word, &mut rest)? {
            self.model.graph.initializers.insert(names.remove(0), t);
            return Ok(());
        }
        self.node(word, &mut rest, names)?;
        if rest.0.trim().is_empty() { Ok(()) } else { Err(format!("`{}` is left over", rest.0)) }
    }

    fn input(&mut self, name: String, rest: &mut Rest) -> Result<(), String> {
        let word = rest.word();
        let dtype = dtype(word).ok_or(format!("`{word}` is no element type"))?;
        rest.need("[")?;
        let dims = rest.list("]", |r| {
            let w = r.word();
            Ok(w.parse().map_or_else(|_| RawDim::Symbol(w.into()), RawDim::Known))
        })?;
        let known = |d: &RawDim| if let RawDim::Known(n) = d { *n as usize } else { 0 };
        let shape: Vec<usize> = dims.iter().map(known).collect();
        let info = RawValueInfo {
            name: name.clone(),
            dtype: Some(dtype),
            dims: Some(dims),
            ..RawValueInfo::default()
        };
        if rest.eat("=") {
            let t = elements(dtype, shape, rest)?;
            self.model.graph.initializers.insert(name, t);
            self.listed.push(info);
            return Ok(());
        }
        if rest.eat("in") {
            let (low, high) = rest.0.split_once("..").ok_or("bounds are `low..high`")?;
            let bound = |t: &str| t.trim().parse().map_err(|_| format!("`{t}` is no bound"));
            self.bounds.insert(name, (bound(low)?, bound(high)?));
        }
        self.model.graph.inputs.push(info);
        Ok(())
    }

    fn node(&mut self, op: &str, rest: &mut Rest, outputs: Vec<String>) -> Result<(), String> {
        rest.need("(")?;
        let mut node = RawNode { outputs, ..RawNode::default() };
        (node.domain, node.op_type) = match op.rsplit_once('.') {
            Some((domain, op)) => (domain.into(), op.into()),
            None => (String::new(), op.into()),
        };
        if !node.domain.is_empty() {
            self.model.opset_imports.insert(node.domain.clone(), 1);
        }
        loop {
            rest.skip();
            if rest.0.starts_with([';', ')']) {
                break;
            }
            node.inputs.push(self.argument(rest)?);
            rest.eat(",");
        }
        if rest.eat(";") {
            for (name, value) in rest.list(")", attribute)? {
                node.attrs.insert(name, value);
            }
        } else {
            rest.need(")")?;
        }
        self.model.graph.nodes.push(node);
        Ok(())
    }

    /// A value by name, or one that is made here.
    fn argument(&mut self, rest: &mut Rest) -> Result<String, String> {
        rest.skip();
        if rest.0.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') {
            let v = rest.number()?.parse().map_err(|_| "no number")?;
            return Ok(self.constant(Tensor::from_f64(DType::F32, vec![], &[v])));
        }
        let word = rest.word();
        if word == "_" {
            return Ok(String::new());
        }
        if word == "inf" || word == "nan" {
            let v = word.parse().map_err(|_| "no number")?;
            return Ok(self.constant(Tensor::from_f64(DType::F32, vec![], &[v])));
        }
        if let Some(t) = tensor(word, rest)? {
            return Ok(self.constant(t));
        }
        if rest.0.starts_with('(') {
            let name = self.fresh();
            self.node(word, rest, vec![name.clone()])?;
            return Ok(name);
        }
        if word.is_empty() { Err(format!("no argument: `{}`", rest.0)) } else { Ok(word.into()) }
    }

    fn constant(&mut self, t: Tensor) -> String {
        let name = self.fresh();
        self.model.graph.initializers.insert(name.clone(), t);
        name
    }

    fn fresh(&mut self) -> String {
        self.fresh += 1;
        format!("_{}", self.fresh)
    }
}

/// A constant `f32[2]{1, 2}`, if the word is an element type with a shape after it.
fn tensor(word: &str, rest: &mut Rest) -> Result<Option<Tensor>, String> {
    let Some(dtype) = dtype(word).filter(|_| rest.0.starts_with('[')) else { return Ok(None) };
    rest.need("[")?;
    let shape = rest.list("]", |r| r.number()?.parse().map_err(|_| "no extent".to_string()))?;
    elements(dtype, shape, rest).map(Some)
}

fn elements(dtype: DType, shape: Vec<usize>, rest: &mut Rest) -> Result<Tensor, String> {
    let n: usize = shape.iter().product();
    let mut random = Random::from_state(n as u64);
    if rest.eat("~") {
        let v: Vec<f64> = (0..n).map(|_| 2.0 * random.unit() - 1.0).collect();
        return Ok(Tensor::from_f64(dtype, shape, &v));
    }
    if rest.eat("+") {
        let v: Vec<f64> = (0..n).map(|_| 0.5 + random.unit()).collect();
        return Ok(Tensor::from_f64(dtype, shape, &v));
    }
    rest.need("{")?;
    let words = rest.list("}", Rest::number)?;
    if words.len() != n {
        return Err(format!("{} elements instead of {n}", words.len()));
    }
    if dtype.is_float() {
        let v: Vec<f64> = words.iter().filter_map(|w| w.parse().ok()).collect();
        return Ok(Tensor::from_f64(dtype, shape, &v));
    }
    let v: Result<Vec<i64>, _> = words.iter().map(|w| w.parse()).collect();
    Ok(Tensor::from_i64(dtype, shape, &v.map_err(|_| "no integers")?))
}

fn attribute(rest: &mut Rest) -> Result<(String, RawAttr), String> {
    let name = rest.word().to_string();
    rest.need("=")?;
    if rest.eat("\"") {
        let (text, tail) = rest.0.split_once('"').ok_or("a text without an end")?;
        rest.0 = tail;
        return Ok((name, RawAttr::from(text)));
    }
    if rest.eat("[") {
        let words = rest.list("]", Rest::number)?;
        let ints: Result<Vec<i64>, _> = words.iter().map(|w| w.parse()).collect();
        let floats = || words.iter().filter_map(|w| w.parse().ok()).collect();
        return Ok((name, ints.map_or_else(|_| RawAttr::Floats(floats()), RawAttr::Ints)));
    }
    let word = rest.take(|c| c.is_alphanumeric() || "+-._".contains(c));
    if let Some(t) = tensor(word, rest)? {
        return Ok((name, RawAttr::Tensor(t)));
    }
    if let Some(d) = dtype(word) {
        return Ok((name, RawAttr::Int(code(d))));
    }
    if let Ok(v) = word.parse() {
        return Ok((name, RawAttr::Int(v)));
    }
    let v = word.parse().map_err(|_| format!("`{word}` is no value"))?;
    Ok((name, RawAttr::Float(v)))
}

fn dtype(word: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|d| d.name() == word)
}

/// ONNX's number of an element type.
pub fn code(d: DType) -> i64 {
    match d {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Str => 8,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::BF16 => 16,
        DType::F8E4M3FN => 17,
        DType::F8E4M3FNUZ => 18,
        DType::F8E5M2 => 19,
        DType::F8E5M2FNUZ => 20,
        DType::U4 => 21,
        DType::I4 => 22,
        DType::F4E2M1 => 23,
        DType::F8E8M0 => 24,
        DType::U2 => 25,
        DType::I2 => 26,
        DType::F6E2M3 => 27,
        DType::F6E3M2 => 28,
    }
}
