//! Plans told apart by what they compute and how, not by what things are called.
//!
//! Numbers are compared within a few units in the last place of their type; weights by type and shape only. A
//! chain of views is what it shows of the value that it begins with: which element lies where.

use mlc_backends::reference::{Array, Reference};
use mlc_dsl::ir::{Attr, DType, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{Library, OpClass};
use mlc_dsl::plan::Plan;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Units in the last place that two spellings' derived numbers may differ by.
const ULPS: f64 = 4.0;

/// One word of a signature.
#[derive(Clone, Debug)]
enum Token {
    Word(String),
    Number(f64, DType),
}

/// What a plan computes, in canonical order.
#[derive(Clone, Debug, Default)]
pub struct Signature {
    tokens: Vec<Token>,
    /// The kernels with the operators that compute, sorted; views are not named.
    pub kernels: Vec<String>,
}

impl Signature {
    /// The signature of a plan.
    pub fn of(plan: &Plan, library: &Library) -> Signature {
        let keys = keys(&plan.program, library);
        let mut walk =
            Walk { program: &plan.program, library, keys, out: vec![], place: HashMap::new() };
        for (_, v) in &plan.program.outputs {
            let at = walk.visit(*v);
            walk.out.push(Token::Word(format!("result {at}.{}", v.output)));
        }
        let mut kernels: Vec<(Vec<usize>, String)> = plan
            .kernels
            .iter()
            .map(|k| {
                let computes = |n: &&NodeId| !is_view(&plan.program, library, **n);
                let alone = !k.nodes.iter().any(|n| computes(&n));
                let mut nodes: Vec<(usize, String)> = k
                    .nodes
                    .iter()
                    .filter(|n| alone || computes(n))
                    .map(|n| {
                        let at = walk.place.get(&n.0).copied().unwrap_or(usize::MAX);
                        (at, library.node_name(&plan.program, *n))
                    })
                    .collect();
                nodes.sort();
                let mut names: Vec<String> = k
                    .nodes
                    .iter()
                    .filter(computes)
                    .map(|n| library.node_name(&plan.program, *n))
                    .collect();
                names.sort();
                let text = format!("{}({})", k.name, names.join(" "));
                (nodes.iter().map(|n| n.0).collect(), text)
            })
            .collect();
        kernels.sort_by_key(|k| (k.0.last().copied(), k.0.clone()));
        for (nodes, text) in &kernels {
            walk.out.push(Token::Word(format!("kernel {text} {nodes:?}")));
        }
        Signature { tokens: walk.out, kernels: kernels.into_iter().map(|k| k.1).collect() }
    }

    /// True if both plans are one.
    pub fn same(&self, other: &Signature) -> bool {
        self.tokens.len() == other.tokens.len()
            && self.tokens.iter().zip(&other.tokens).all(|(a, b)| match (a, b) {
                (Token::Word(a), Token::Word(b)) => a == b,
                (Token::Number(a, d), Token::Number(b, _)) => close(*a, *b, *d),
                (Token::Word(_), Token::Number(..)) | (Token::Number(..), Token::Word(_)) => false,
            })
    }
}

fn is_view(program: &Program, library: &Library, node: NodeId) -> bool {
    match &program.node(node).kind {
        NodeKind::Apply(call, _) => library.call(*call).class == OpClass::View,
        NodeKind::Input(_) | NodeKind::Const(_) => true,
    }
}

fn close(a: f64, b: f64, dtype: DType) -> bool {
    let ulp = 2.0 * dtype.unit_roundoff() * a.abs().max(b.abs());
    a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= ULPS * ulp
}

/// Elements of a value whose views are told apart by what they show.
const SHOWN: usize = 1 << 20;

/// What a chain of views begins with, and a number for which of its elements it shows where. Nothing for what is no
/// view, or where extents are open.
fn shown(program: &Program, library: &Library, v: Value) -> Option<(Value, u64)> {
    let step = |v: Value| match (&program.node(v.node).kind, program.node(v.node).args.as_slice()) {
        (NodeKind::Apply(call, attrs), [arg]) if library.call(*call).class == OpClass::View => {
            Some((*call, attrs, *arg))
        }
        _ => None,
    };
    let (mut base, mut chain) = (v, Vec::new());
    while let Some((call, attrs, arg)) = step(base) {
        chain.push((call, attrs.iter().cloned().map(Some).collect::<Vec<_>>()));
        base = arg;
    }
    let shape = program.ty(base).known_shape()?;
    let count: usize = shape.iter().product();
    if chain.is_empty() || count > SHOWN {
        return None;
    }
    let numbers: Vec<f64> = (0..count).map(|i| i as f64).collect();
    let mut array = Array::from_tensor(&Tensor::from_f64(DType::I64, shape, &numbers));
    for (call, attrs) in chain.iter().rev() {
        array = Reference::default().apply(library, *call, attrs, &[array]).ok()?.pop()?;
    }
    let tensor = array.to_tensor();
    let mut h = DefaultHasher::new();
    (tensor.shape(), tensor.bytes()).hash(&mut h);
    Some((base, h.finish()))
}

/// The value that all elements of a constant share.
fn uniform(program: &Program, v: Value) -> Option<f64> {
    let t = program.as_const(v)?;
    t.splat().map(|_| t.get_f64(0))
}

/// Numbers as they order operands: coarse, so that rounding does not reorder them.
fn coarse(v: f64) -> String {
    format!("{v:.2e}")
}

/// One key per node: equal for equal computations, whatever the order of commutative operands.
fn keys(program: &Program, library: &Library) -> Vec<u64> {
    let mut keys: Vec<u64> = Vec::with_capacity(program.nodes.len());
    for (i, n) in program.nodes.iter().enumerate() {
        let mut h = DefaultHasher::new();
        let own = Value { node: NodeId(i as u32), output: 0 };
        if let Some((base, layout)) = shown(program, library, own) {
            ("view", keys[base.node.0 as usize], base.output, layout).hash(&mut h);
            keys.push(h.finish());
            continue;
        }
        match &n.kind {
            NodeKind::Input(k) => ("input", k).hash(&mut h),
            NodeKind::Const(_) => {
                let value = uniform(program, own).map(coarse);
                ("constant", n.types[0].to_string(), value).hash(&mut h);
            }
            NodeKind::Apply(call, attrs) => {
                let c = library.call(*call);
                c.name.to_string().hash(&mut h);
                for a in attrs {
                    match a {
                        Attr::Float(bits) => coarse(f64::from_bits(*bits)).hash(&mut h),
                        _ => a.to_string().hash(&mut h),
                    }
                }
                let mut args: Vec<(u64, u32)> =
                    n.args.iter().map(|a| (keys[a.node.0 as usize], a.output)).collect();
                if c.commutative {
                    args.sort_unstable();
                }
                args.hash(&mut h);
            }
        }
        keys.push(h.finish());
    }
    keys
}

struct Walk<'a> {
    program: &'a Program,
    library: &'a Library,
    keys: Vec<u64>,
    out: Vec<Token>,
    place: HashMap<u32, usize>,
}

impl Walk<'_> {
    fn word(&mut self, text: String) {
        self.out.push(Token::Word(text));
    }

    fn types(types: &[Type]) -> String {
        types.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Writes a node after those it reads; returns its place.
    fn visit(&mut self, v: Value) -> usize {
        if let Some(&at) = self.place.get(&v.node.0) {
            return at;
        }
        let node = self.program.node(v.node);
        if let Some((base, layout)) = shown(self.program, self.library, v) {
            let from = self.visit(base);
            let at = self.place.len();
            self.place.insert(v.node.0, at);
            self.word(format!("view {layout:x} [{from}.{}]", base.output));
            return at;
        }
        let mut args = node.args.clone();
        if let NodeKind::Apply(call, _) = &node.kind
            && self.library.call(*call).commutative
        {
            args.sort_by_key(|a| self.keys[a.node.0 as usize]);
        }
        let places: Vec<String> =
            args.iter().map(|a| format!("{}.{}", self.visit(*a), a.output)).collect();
        let at = self.place.len();
        self.place.insert(v.node.0, at);
        let types = Walk::types(&node.types);
        let dtype = node.types[0].dtype;
        match &node.kind {
            NodeKind::Input(k) => self.word(format!("input {k} {types}")),
            NodeKind::Const(_) => {
                self.word(format!("constant {types}"));
                if let Some(value) = uniform(self.program, v) {
                    self.out.push(Token::Number(value, dtype));
                }
            }
            NodeKind::Apply(call, attrs) => {
                let name = self.library.call(*call).name.clone();
                self.word(format!("{name} [{}] {types}", places.join(" ")));
                for a in attrs {
                    match a {
                        Attr::Float(bits) => {
                            self.out.push(Token::Number(f64::from_bits(*bits), dtype));
                        }
                        _ => self.word(a.to_string()),
                    }
                }
            }
        }
        at
    }
}
