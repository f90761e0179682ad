//! Models with dynamic axes against the same models with numbers as extents: what is made of them, and what they yield.

mod grouped_heads;
mod networks;
mod sessions;
mod sizes;
mod slices;
mod streams;
mod throughput;
mod twin;

use mlc_backends::arrays::AnyArray;
use mlc_dsl::ir::{DType, Node, NodeKind, Program};
use mlc_dsl::library::Library;
use mlc_onnx::to_bytes;
use mlc_rewrite::{Device, Model, OptimizedModel, Optimizer, Reader, TensorInfo};
use std::collections::BTreeMap;
use twin::Twin;

/// A network, its symbols with two sets of extents, and the operators that it has more of if symbols are free: those that compute of
/// symbols what is else a constant, such as a mask or the rows of a table.
struct Case {
    name: &'static str,
    build: fn(&mut Twin) -> String,
    sizes: [&'static [(&'static str, u64)]; 2],
    differs: &'static [(&'static str, i32)],
}

/// The extent that programs with symbols are chosen for.
const USUAL: u64 = 32;

const TOKENS: [&[(&str, u64)]; 2] = [&[("batch", 1), ("seq", 6)], &[("batch", 3), ("seq", 5)]];

/// Where an extent is open, rows are not made of two axes to be multiplied: the shapes would have to be computed, and nothing is gained.
const PRODUCTS: &[(&str, i32)] =
    &[("broadcast", 4), ("linear_rows", 4), ("matmul_bias", -4), ("reshape", -2)];

const CASES: &[Case] = &[
    Case { name: "attention", build: networks::attention, sizes: TOKENS, differs: PRODUCTS },
    Case {
        name: "causal_by_range",
        build: networks::causal_by_range,
        sizes: TOKENS,
        differs: &[
            ("broadcast", 5),
            ("linear_rows", 4),
            ("matmul_bias", -4),
            ("reshape", -2),
            ("triangle", 1),
        ],
    },
    Case {
        name: "causal_by_triangle",
        build: networks::causal_by_triangle,
        sizes: TOKENS,
        differs: &[
            ("broadcast", 5),
            ("linear_rows", 4),
            ("matmul_bias", -4),
            ("reshape", -2),
            ("triangle", 1),
        ],
    },
    Case { name: "padding_mask", build: networks::padding_mask, sizes: TOKENS, differs: PRODUCTS },
    Case {
        name: "position_embedding",
        build: networks::position_embedding,
        sizes: TOKENS,
        differs: &[("gather", 1), ("reshape", 1), ("slice", 1)],
    },
    Case {
        name: "kv_cache",
        build: networks::kv_cache,
        sizes: [&[("batch", 1), ("seq", 1), ("past", 7)], &[("batch", 2), ("seq", 3), ("past", 4)]],
        differs: &[("reshape", 1), ("slice", 1)],
    },
    Case {
        name: "conv_flatten",
        build: networks::conv_flatten,
        sizes: [&[("batch", 1)], &[("batch", 4)]],
        differs: &[],
    },
    Case {
        name: "pooled_average",
        build: networks::pooled_average,
        sizes: [
            &[("batch", 1), ("height", 9), ("width", 7)],
            &[("batch", 2), ("height", 4), ("width", 8)],
        ],
        differs: &[],
    },
    Case {
        name: "likeliest_class",
        build: networks::likeliest_class,
        sizes: [
            &[("batch", 1), ("height", 9), ("width", 7)],
            &[("batch", 2), ("height", 4), ("width", 8)],
        ],
        differs: &[],
    },
    Case { name: "layer_norm", build: networks::layer_norm, sizes: TOKENS, differs: &[] },
    Case {
        name: "rotary",
        build: networks::rotary,
        sizes: TOKENS,
        differs: &[("neg", 1), ("slice", 2)],
    },
    Case { name: "grouped_heads", build: networks::grouped_heads, sizes: TOKENS, differs: &[] },
];

impl Case {
    fn bytes(&self, symbolic: bool, sizes: &[(&'static str, u64)]) -> Vec<u8> {
        let mut g = Twin::new(symbolic, sizes);
        let y = (self.build)(&mut g);
        to_bytes(&g.finish(&y)).expect("written")
    }

    /// With symbols for extents.
    fn dynamic(&self) -> Model {
        self.read(&Reader::new(), self.bytes(true, self.sizes[0]))
    }

    /// With numbers.
    fn fixed(&self, sizes: &[(&'static str, u64)]) -> Model {
        self.read(&Reader::new(), self.bytes(false, sizes))
    }

    /// With symbols that are bound.
    fn bound(&self, sizes: &[(&'static str, u64)]) -> Model {
        let reader = sizes.iter().fold(Reader::new(), |r, (name, extent)| r.bind(name, *extent));
        self.read(&reader, self.bytes(true, sizes))
    }

    fn read(&self, reader: &Reader, bytes: Vec<u8>) -> Model {
        reader.from_bytes(bytes).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    fn optimized(&self, model: &Model) -> OptimizedModel {
        let optimizer = Optimizer::new().check(false);
        optimizer.optimize(model).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }
}

/// How often a program has each operator.
fn operators(p: &Program, library: &Library) -> BTreeMap<String, i32> {
    let mut count = BTreeMap::new();
    for n in &p.nodes {
        if let NodeKind::Apply(call, _) = n.kind {
            *count.entry(library.call(call).name.to_string()).or_insert(0) += 1;
        }
    }
    count
}

#[test]
fn free_symbols_lead_to_the_operators_of_known_extents() {
    let mut wrong = String::new();
    for case in CASES {
        let usual: Vec<(&'static str, u64)> =
            case.sizes[0].iter().map(|(name, _)| (*name, USUAL)).collect();
        let (free, fixed) = (case.dynamic(), case.fixed(&usual));
        let standard = Optimizer::new().check(false).target("standard");
        let at_usual = |o: Optimizer, (name, n): &(&str, u64)| o.extents(name, *n..=*n);
        let open = usual.iter().fold(standard.clone(), at_usual);
        let of = |o: &Optimizer, m: &Model| {
            o.optimize(m).unwrap_or_else(|e| panic!("{}: {e}", case.name))
        };
        let (a, b) = (of(&open, &free), of(&standard, &fixed));
        let mut excess = operators(&a.result().program, free.library());
        for (name, n) in operators(&b.result().program, fixed.library()) {
            *excess.entry(name).or_insert(0) -= n;
        }
        excess.retain(|_, n| *n != 0);
        let excess: Vec<(&str, i32)> = excess.iter().map(|(s, n)| (s.as_str(), *n)).collect();
        if excess != case.differs {
            wrong += &format!("{}: {excess:?}\n{}\n{}\n", case.name, a.text(), b.text());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Whether programs are the same but for the names of what their parts were made from.
fn same(a: &Program, b: &Program) -> bool {
    let node = |(x, y): (&Node, &Node)| {
        let kind = match (&x.kind, &y.kind) {
            (NodeKind::Const(c), NodeKind::Const(d)) => a.consts.get(*c) == b.consts.get(*d),
            (x, y) => x == y,
        };
        kind && x.args == y.args && x.types == y.types
    };
    let outputs = a.inputs == b.inputs && a.outputs == b.outputs && a.nodes.len() == b.nodes.len();
    outputs && a.nodes.iter().zip(&b.nodes).all(node)
}

#[test]
fn bound_symbols_lead_to_the_program_of_known_extents() {
    for case in CASES {
        for sizes in case.sizes {
            let (bound, fixed) = (case.bound(sizes), case.fixed(sizes));
            assert_eq!(bound.inputs(), fixed.inputs(), "{}", case.name);
            let (a, b) = (case.optimized(&bound), case.optimized(&fixed));
            let same = same(&a.result().program, &b.result().program);
            assert!(same, "{} at {sizes:?}\n{}\n{}", case.name, a.text(), b.text());
            let costs = [&a, &b].map(|m| m.report().cost_after.to_bits());
            assert_eq!(costs[0], costs[1], "{} at {sizes:?}", case.name);
        }
    }
}

/// Values of an input.
fn values(info: &TensorInfo) -> AnyArray {
    let shape: Vec<usize> = info.shape().into_iter().map(|e| e.expect("a number")).collect();
    let n = shape.iter().product::<usize>();
    let array = match info.dtype() {
        DType::I64 => AnyArray::from_vec(&shape, (0..n as i64).map(|i| i % 2).collect()),
        _ => AnyArray::from_vec(&shape, (0..n).map(|i| (i as f32 * 0.7).sin()).collect()),
    };
    array.expect("as many as the shape says")
}

#[test]
fn dynamic_models_yield_what_the_reference_says_at_every_size() {
    for case in CASES {
        let dynamic = case.dynamic();
        let session = case.optimized(&dynamic).session().expect("a session");
        for sizes in case.sizes {
            let fixed = case.fixed(sizes);
            let reference = fixed.session_on(&Device::reference()).expect("a session");
            let infos = fixed.inputs();
            let inputs = || infos.iter().map(|i| (i.name(), values(i)));
            let y = session.run(inputs()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            let wanted = reference.run(inputs()).expect("runs");
            let (y, wanted) = (y.array::<f32>("y"), wanted.array::<f32>("y"));
            let (y, wanted) = (y.expect("f32"), wanted.expect("f32"));
            assert_eq!(y.shape(), wanted.shape(), "{} at {sizes:?}", case.name);
            for (a, b) in y.iter().zip(wanted.iter()) {
                assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{}: {a} is not {b}", case.name);
            }
        }
    }
}
