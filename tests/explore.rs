//! Spellings of layers extract to the layer's own operator.

use mlc_dsl::ir::canon::Sink;
use mlc_dsl::ir::{Attr, DType, Extent, NodeKind, Program, Type};
use mlc_dsl::library::{ErrorClass, Library};
use mlc_dsl::random::Random;
use mlc_explore::{Limits, Stop, explore};
use mlc_extract::GreedyDag;
use mlc_extract::cost::target::TargetPrices;
use mlc_rewrite::model::rules_model;
use mlc_rewrite::stdlib;
use std::sync::Arc;

fn laws(library: &Library, most: ErrorClass) -> Vec<u32> {
    (0..library.laws.len() as u32).filter(|&i| library.laws[i as usize].error <= most).collect()
}

fn operators(library: &Library, program: &Program) -> Vec<String> {
    let names = program.nodes.iter().filter_map(|n| match &n.kind {
        NodeKind::Apply(c, _) => Some(library.call(*c).name.to_string()),
        NodeKind::Input(_) | NodeKind::Const(_) => None,
    });
    names.collect()
}

/// What the last `def` of a text extracts to on the CPU.
fn extracted(text: &str) -> Vec<String> {
    extracted_within(text, ErrorClass::Reorder)
}

/// The same with laws up to an error class only.
fn extracted_within(text: &str, most: ErrorClass) -> Vec<String> {
    extracted_beside("", text, most)
}

/// The same with layers of one's own.
fn extracted_beside(layers: &str, text: &str, most: ErrorClass) -> Vec<String> {
    let (library, diags) = stdlib::with(&[("layers.rules", layers), ("case.rules", text)]);
    let source = library.sources.len() as u32 - 1;
    let own: Vec<_> = diags.iter().filter(|d| d.source == source).cloned().collect();
    assert!(own.is_empty(), "{}", stdlib::rendered(&library, &own, false));
    let library = Arc::new(library);
    let name = rules_model::last_definition(&library, source).expect("a definition");
    let program = rules_model::program(&library, &name).expect("a program");
    // The case itself is a definition: what it defines must not be recognised as itself.
    let laws: Vec<u32> = laws(&library, most)
        .into_iter()
        .filter(|&i| library.laws[i as usize].source.file != source)
        .collect();
    let mut explored = explore(library.clone(), program, &laws, &Limits::default());
    let target = library.target("cpu").cloned().unwrap_or(mlc_dsl::library::TargetItem {
        name: "cpu".into(),
        doc: vec![],
        extends: None,
        devices: vec![],
        source: 0,
        figures: Default::default(),
        kernels: vec![],
        pointwise: None,
        types: Default::default(),
    });
    let prices = TargetPrices::new(&library, &target, None);
    let out = explored.extract(&prices, &GreedyDag::default()).expect("extracts");
    assert!(explored.prove(&out).is_some(), "the result is proven from the log");
    if std::env::var_os("SHOW").is_some() {
        eprintln!("{:?} {} {:?}", explored.size(), explored.stop, explored.sizes);
        for (i, p) in &explored.profiles {
            if p.matches > 0 || p.ill_typed.0 > 0 {
                eprintln!(
                    "  {} {} of {} {:?} ill {:?}",
                    library.laws[*i as usize].name, p.applications, p.matches, p.time, p.ill_typed
                );
            }
        }
    }
    operators(&library, &out.program)
}

#[test]
fn activations_from_any_spelling() {
    for (layer, body) in [
        ("gelu", "0.5 * x * (1 + erf(x / sqrt(2)))"),
        ("gelu", "x * 0.5 * (erf(x * 0.70710678) + 1)"),
        ("gelu", "x / 2 * (1 + erf(0.7071067811865476 * x))"),
        ("gelu", "x * (0.5 + 0.5 * erf(x / 1.4142135))"),
        ("gelu", "(1 + erf(x / sqrt(2))) * x / 2"),
        ("silu", "x * sigmoid(x)"),
        ("silu", "x / (1 + exp(-x))"),
        ("silu", "x * (1 / (1 + exp(0 - x)))"),
        ("gelu_tanh", "0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ^ 3)))"),
        ("gelu_tanh", "x * 0.5 * (1 + tanh(0.7978845608 * (x + 0.044715 * (x * x * x))))"),
    ] {
        let text = format!("def case(x: f32[4, 7]) -> f32[4, 7]\n  = {body}\n");
        assert_eq!(extracted(&text), [layer], "{body}");
    }
}

#[test]
fn numbers_that_a_layer_only_computes_with_are_worked_out() {
    let layers = "def cooled(x: F[..s], t: float in 0.1..2) -> F[..s]\n  = tanh(x / t)\n\n\
                  def parted(x: F[..s], y: F[..s], l: float in 0.1..1) -> F[..s]\n  = tanh(x - l * y)\n";
    for (layer, body) in [
        ("cooled", "tanh(4 * x)"),
        ("cooled", "tanh(x / 0.3)"),
        ("parted", "tanh(x + -0.3 * y)"),
        ("parted", "tanh(x - y)"),
        ("parted", "tanh(x - y * 0.7)"),
    ] {
        let other = if body.contains('y') { ", y: f32[4, n]" } else { "" };
        let text = format!("def case(x: f32[4, n]{other}) -> f32[4, n]\n  = {body}\n");
        assert_eq!(extracted_beside(layers, &text, ErrorClass::Reorder), [layer], "{body}");
    }
}

#[test]
fn norms_and_softmax() {
    for (layer, params, body) in [
        ("softmax", "", "let e = exp(x - max(n) x) = e / sum(n) e"),
        ("softmax", "", "let e = exp(x - max(n) x) = e * (1 / sum(n) e)"),
        (
            "layernorm",
            ", g: f32[n], z: f32[n]",
            "let c = x - mean(n) x = c / sqrt(mean(n) c ^ 2 + 1e-5) * g + z",
        ),
        ("rmsnorm", ", g: f32[n]", "= g * (x * rsqrt(mean(n) x ^ 2 + 1e-6))"),
        ("rmsnorm", ", g: f32[n]", "= x / sqrt(mean(n) (x * x) + 1e-6) * g"),
    ] {
        for shape in ["b, s, n", "1, s, n", "2, 3, n"] {
            let text = format!("def case(x: f32[{shape}]{params}) -> f32[{shape}]\n  {body}\n");
            assert_eq!(extracted(&text), [layer], "{text}");
        }
    }
}

#[test]
fn lists_in_patterns_bind_their_entries() {
    // Heads folded into the batch, two axes or three, the softmax inside or outside of the fold.
    for heads in ["2, 4", "2, 2, 2"] {
        for (inner, outer) in [("", ""), ("reshape(", &*format!(", shape=[{heads}, 16, 16])"))] {
            let back = if inner.is_empty() { "w" } else { "reshape(w, shape=[8, 16, 16])" };
            let axis = if inner.is_empty() { 2 } else { 2 + heads.matches(',').count() };
            let text = format!(
                "def case(q: f32[{heads}, 16, 8], k: f32[{heads}, 16, 8], v: f32[{heads}, 16, 8]) -> f32[{heads}, 16, 8]\n  \
                 let t = transpose(reshape(k, shape=[8, 16, 8]), perm=[0, 2, 1])\n  \
                 let s = {inner}reshape(0.25 * q, shape=[8, 16, 8]) @ t{outer}\n  \
                 let w = softmax(s, axis={axis})\n  \
                 = reshape({back} @ reshape(v, shape=[8, 16, 8]), shape=[{heads}, 16, 8])\n"
            );
            assert_eq!(extracted(&text), ["attention"], "{text}");
        }
    }
}

#[test]
fn exact_laws_regroup_nothing() {
    let case = |body: &str| format!("def case(x: f32[4, 7]) -> f32[4, 7]\n  = {body}\n");
    let body = "0.5 * x * (1 + erf(x / sqrt(2)))";
    assert_eq!(extracted_within(&case(body), ErrorClass::Exact), ["gelu"], "as it is defined");
    let body = "x * (0.5 * (1 + erf(x / sqrt(2))))";
    let kept = extracted_within(&case(body), ErrorClass::Exact);
    assert!(!kept.contains(&"gelu".to_string()), "{kept:?}");
}

/// A law that holds on a range fires where the program shows the range, and nowhere else.
#[test]
fn ranges_are_proved_by_how_a_value_is_computed() {
    let of = |body: &str| extracted(&format!("def case(x: f32[4, 8]) -> f32[4, 8]\n  = {body}\n"));
    for bounded in [
        "tanh(x)",
        "3 * sin(x) - 2",
        "clip(x, low=-4, high=6)",
        "sigmoid(x) * cos(x)",
        "minimum(abs(x), 8)",
    ] {
        let left = of(&format!("log(exp({bounded}))"));
        assert!(!left.contains(&"log".to_string()), "{bounded}: {left:?}");
    }
    for open in ["x", "2 * x", "10 * tanh(x)", "maximum(x, 0)", "exp(x)"] {
        let left = of(&format!("log(exp({open}))"));
        assert!(left.contains(&"log".to_string()), "{open}: {left:?}");
    }
}

/// Where one value equals every other, patterns find themselves everywhere: steps are counted, not seconds.
#[test]
fn a_search_ends_after_counted_steps() {
    let library = stdlib::shipped();
    let call = library.find("log_softmax").expect("a layer");
    let mut b = mlc_dsl::ir::build::Builder::new(&library);
    let x = b.input("x", Type::new(DType::F32, vec![Extent::from(3), Extent::from(1)]));
    let y = b.raw(call, &[Some(Attr::Int(Extent::from(1)))], &[x]).expect("types");
    let program = b.finish(vec![("y".into(), y[0])]);
    let laws = laws(&library, ErrorClass::Approx { abs: 1.0, rel: 1.0 });
    let searched = |effort: u64, threads: usize| {
        let limits = Limits { effort, threads, ..Limits::default() };
        explore(library.clone(), program.clone(), &laws, &limits)
    };
    let (first, again) = (searched(1_000, 1), searched(1_000, 2));
    assert_eq!(first.stop, Stop::Effort);
    assert_eq!((&first.sizes, first.size()), (&again.sizes, again.size()));
}

/// A sum of products with constants is a multiple of their mean, whose number the constants take up, and so on: a product that needs no number
/// is no such multiple.
#[test]
fn multiples_of_products_with_constants_come_to_an_end() {
    let library = stdlib::shipped();
    let call = |name: &str| library.find(name).expect("shipped");
    let laws = laws(&library, ErrorClass::Reorder);
    for is_gated in [false, true] {
        let mut b = mlc_dsl::ir::build::Builder::new(&library);
        let values = (0..128).map(|i| ((i * 7) % 13) as f32 / 8.0 - 0.75).collect();
        let w = b.constant(mlc_dsl::ir::Tensor::from_f32(vec![128, 1], values));
        let k = b.constant(mlc_dsl::ir::Tensor::from_f32(vec![1, 1], vec![-0.625]));
        let x = b.input("x", Type::known(DType::F32, &[1, 128]));
        let product = b.apply(call("matmul"), &[], &[x, w]).expect("types")[0];
        let y = match is_gated {
            false => b.apply(call("mul"), &[], &[product, k]).expect("types")[0],
            true => {
                let sum = b.apply(call("add"), &[], &[product, k]).expect("types")[0];
                b.apply(call("sigmoid"), &[], &[sum]).expect("types")[0]
            }
        };
        let program = b.finish(vec![("y".into(), y)]);
        let explored = explore(library.clone(), program, &laws, &Limits::default());
        assert_eq!(explored.stop, Stop::Saturated, "gated: {is_gated}");
        assert!(explored.size().0 < 500, "{:?}", explored.sizes);
    }
}

/// A chain of views of `x` that changes nothing: axes split into prime factors, permuted and merged at random, and back.
/// The type of `x`, and the chain.
fn identity(random: &mut Random, x: &str) -> (String, String) {
    let mut factors: Vec<&str> = vec!["|b|"];
    let mut axes: Vec<Vec<usize>> = vec![vec![0]];
    for _ in 0..1 + random.below(3) {
        let own = ["2", "3", "5"].into_iter().cycle().skip(random.below(3));
        let own: Vec<&str> = own.take(random.below(3)).collect();
        axes.push((factors.len()..factors.len() + own.len()).collect());
        factors.extend(own);
    }
    let extents = |axes: &[Vec<usize>]| -> Vec<String> {
        let product =
            |a: &Vec<usize>| a.iter().map(|&f| factors[f]).collect::<Vec<_>>().join(" * ");
        axes.iter().map(|a| if a.is_empty() { "1".into() } else { product(a) }).collect()
    };
    let ty = extents(&axes).join(", ").replace("|b|", "b");
    let known = |e: &str| e.split(" * ").map(|f| f.parse::<u64>().unwrap_or(1)).product::<u64>();
    let ty = ty.split(", ").map(|e| if e == "b" { e.into() } else { known(e).to_string() });
    let ty = ty.collect::<Vec<_>>().join(", ");
    let reshape = |v: &str, axes: &[Vec<usize>]| {
        format!("reshape({v}, shape=[{}])", extents(axes).join(", "))
    };
    let shuffled = |random: &mut Random, n: usize| {
        let mut out: Vec<usize> = (0..n).collect();
        (1..n).rev().for_each(|i| out.swap(i, random.below(i + 1)));
        out
    };
    let permuted = |v: &str, order: &[usize]| format!("transpose({v}, perm={order:?})");
    let mut chain = x.to_string();
    let source = axes.clone();
    for _ in 0..1 + random.below(3) {
        let order = shuffled(random, axes.len());
        chain = permuted(&chain, &order);
        axes = order.iter().map(|&i| axes[i].clone()).collect();
        let flat: Vec<usize> = axes.concat();
        axes = flat.chunks(1 + random.below(2)).map(<[usize]>::to_vec).collect();
        chain = reshape(&chain, &axes);
    }
    let flat: Vec<Vec<usize>> = axes.concat().into_iter().map(|f| vec![f]).collect();
    chain = reshape(&chain, &flat);
    let order: Vec<usize> =
        (0..flat.len()).filter_map(|f| flat.iter().position(|g| g[0] == f)).collect();
    (ty, reshape(&permuted(&chain, &order), &source))
}

#[test]
fn views_that_change_nothing_together_vanish() {
    let mut random = Random::from_state(7);
    for _ in 0..4 {
        let cases: Vec<(String, String)> =
            (0..8).map(|i| identity(&mut random, &format!("x{i}"))).collect();
        let list = |f: &dyn Fn(usize, &(String, String)) -> String| {
            cases.iter().enumerate().map(|(i, c)| f(i, c)).collect::<Vec<_>>().join(", ")
        };
        let text = format!(
            "def case({}) -> {}\n  = ({})\n",
            list(&|i, c| format!("x{i}: f32[{}]", c.0)),
            list(&|i, c| format!("y{i}: f32[{}]", c.0)),
            list(&|_, c| c.1.clone()),
        );
        assert_eq!(extracted(&text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn views_of_the_same_elements_are_one() {
    let split = "reshape(x, shape=[|b|, 4, 2, 3])";
    for (ty, one, other) in [
        // Repeated before the split into heads, and after it.
        (
            "f32[b, 5, 4, 6]",
            "reshape(broadcast(x, map=[0, 2], shape=[|b|, 5, 24]), shape=[|b|, 5, 4, 6])"
                .to_string(),
            "broadcast(reshape(x, shape=[|b|, 4, 6]), map=[0, 2, 3], shape=[|b|, 5, 4, 6])"
                .to_string(),
        ),
        // Permuted at once, and in two steps cut differently.
        (
            "f32[b, 3, 2, 4]",
            format!("transpose({split}, perm=[0, 3, 2, 1])"),
            "transpose(reshape(transpose(reshape(x, shape=[|b|, 8, 3]), perm=[0, 2, 1]), \
             shape=[|b|, 3, 4, 2]), perm=[0, 1, 3, 2])"
                .to_string(),
        ),
    ] {
        let all = format!("def case(x: f32[b, 24]) -> y: {ty}, z: {ty}\n  = ({one}, {other})\n");
        let alone = format!("def case(x: f32[b, 24]) -> {ty}\n  = {one}\n");
        assert_eq!(extracted(&all).len(), extracted(&alone).len(), "{all}");
    }
}

#[test]
fn constants_that_take_long_are_not_left_to_the_run() {
    let library = stdlib::shipped();
    let mut b = mlc_dsl::ir::build::Builder::new(&library);
    let matmul = library.find("matmul").expect("shipped");
    let weight = |seed: u32| {
        let values = (0..1024 * 1024).map(|i| ((i * 7 + seed) % 13) as f32 / 1024.0).collect();
        mlc_dsl::ir::Tensor::from_f32(vec![1024, 1024], values)
    };
    let x = b.input("x", Type::known(DType::F32, &[64, 1024]));
    let product = |b: &mut mlc_dsl::ir::build::Builder<'_>, x, seed| {
        let w = b.constant(weight(seed));
        b.apply(matmul, &[], &[x, w]).expect("types")[0]
    };
    let h = product(&mut b, x, 0);
    let outputs = (1..4).map(|seed| (seed.to_string(), product(&mut b, h, seed))).collect();
    let program = b.finish(outputs);
    let laws = laws(&library, ErrorClass::Reorder);
    let mut explored = explore(library.clone(), program, &laws, &Limits::default());
    for name in ["cpu", "standard"] {
        let target = library.target(name).expect("shipped");
        let prices = TargetPrices::new(&library, target, None);
        let out = explored.extract(&prices, &GreedyDag::default()).expect("extracts").program;
        // One product with all weights, or three that are folded: what folding refuses would run every time.
        let mut fed = vec![false; out.nodes.len()];
        for (i, node) in out.nodes.iter().enumerate() {
            fed[i] = match &node.kind {
                NodeKind::Input(_) => false,
                NodeKind::Const(_) => true,
                NodeKind::Apply(call, attrs) => {
                    let args: Vec<&Type> = node.args.iter().map(|a| out.ty(*a)).collect();
                    let fed = node.args.iter().all(|a| fed[a.node.0 as usize]);
                    let works = prices.works();
                    let folds = mlc_extract::resources::folds;
                    assert!(
                        !fed || folds(works, &library, *call, attrs, &args, &node.types),
                        "{name} leaves a product of constants"
                    );
                    fed
                }
            };
        }
    }
}

#[test]
fn a_law_of_several_outputs_leaves_no_operand_over() {
    let text = "
/// The larger and the smaller, by the negatives.
rule both_by_negatives
  y = maximum(a, b), z = minimum(a, b) => y = -minimum(-a, -b), z = -maximum(-a, -b)
  given a: F[..s], b: F[..s]
  error reorder

/// The largest of three beside the smaller of two.
def three(a: f32[4], b: f32[4], c: f32[4]) -> y: f32[4], z: f32[4], w: f32[4]
  = (maximum(maximum(a, b), c), maximum(a, b), minimum(a, b))
";
    let (library, diags) = stdlib::with(&[("three.rules", text)]);
    assert!(diags.is_empty(), "{}", stdlib::rendered(&library, &diags, false));
    let library = Arc::new(library);
    let program = rules_model::program(&library, "three").expect("a program");
    let law = library.laws.iter().position(|l| &*l.name == "both_by_negatives").expect("the law");
    let explored = explore(library, program, &[law as u32], &Limits::default());
    let outputs: Vec<_> = explored.source.outputs.iter().map(|(_, v)| *v).collect();
    assert!(!explored.equations_of(law as u32).is_empty(), "it is applied to two");
    assert!(!explored.are_equal(outputs[0], outputs[1]), "the third is dropped");
}
