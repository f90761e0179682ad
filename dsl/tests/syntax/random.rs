//! Random trees: what is printed reads back as what it was.

use super::{read, round_trip};
use mlc_dsl::syntax::ast::*;
use mlc_dsl::syntax::print_expr;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-e]",
        1 => "[A-Za-z_][A-Za-z0-9_]{0,6}",
        1 => prop_oneof![Just("sum"), Just("max"), Just("ints"), Just("const"), Just("inf"), Just("ops")]
            .prop_map(String::from),
    ]
    .prop_filter("a reserved word", |name| {
        !mlc_dsl::syntax::is_reserved(name)
    })
}

fn ident() -> impl Strategy<Value = Ident> {
    name().prop_map(|text| Ident { text, span: Span::default() })
}

fn at(kind: ExprKind) -> Expr {
    Expr { kind, span: Span::default() }
}

fn quote() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z \"\\\\]{0,6}", any::<String>(), Just("// op\n\u{7f}\u{2028}".to_string())]
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>().prop_map(f64::abs).prop_filter("finite", |value| value.is_finite()),
        (0u32..1000, -12i32..12).prop_map(|(n, e)| f64::from(n) * 10f64.powi(e)),
    ]
}

fn leaf() -> impl Strategy<Value = Expr> {
    prop_oneof![
        (0..i64::MAX).prop_map(ExprKind::Int),
        (0..9i64).prop_map(ExprKind::Int),
        float().prop_map(ExprKind::Float),
        quote().prop_map(ExprKind::Str),
        any::<bool>().prop_map(ExprKind::Bool),
        name().prop_map(ExprKind::Name),
        name().prop_map(ExprKind::Name),
        name().prop_map(ExprKind::Size),
    ]
    .prop_map(at)
}

fn binary_op() -> impl Strategy<Value = BinaryOp> {
    use BinaryOp::*;
    proptest::sample::select(vec![
        Or, And, Eq, Ne, Lt, Le, Gt, Ge, Add, Sub, Mul, Div, Mod, MatMul, Pow,
    ])
}

fn monoid() -> impl Strategy<Value = Ident> {
    proptest::sample::select(vec!["sum", "prod", "max", "min", "mean", "any", "all"])
        .prop_map(|text| Ident { text: text.to_string(), span: Span::default() })
}

fn elem(expr: impl Strategy<Value = Expr>) -> impl Strategy<Value = Elem> {
    (any::<bool>(), expr)
        .prop_map(|(splice, expr)| if splice { Elem::Splice(expr) } else { Elem::One(expr) })
}

fn expr() -> BoxedStrategy<Expr> {
    leaf()
        .prop_recursive(6, 40, 3, |inner| {
            let boxed = inner.clone().prop_map(Box::new).boxed();
            let axis = name().prop_map(|name| at(ExprKind::Name(name)));
            let marks = (any::<bool>(), any::<bool>());
            let arg = (of(ident()), marks, inner.clone())
                .prop_map(|(name, (each, pack), value)| Arg { name, each, pack, value });
            let callee = prop_oneof![ident().boxed(), monoid().boxed()];
            prop_oneof![
                8 => (binary_op(), boxed.clone(), boxed.clone())
                    .prop_map(|(op, a, b)| ExprKind::Binary(op, a, b)),
                3 => (prop_oneof![Just(UnaryOp::Neg), Just(UnaryOp::Not)], boxed.clone())
                    .prop_map(|(op, a)| ExprKind::Unary(op, a)),
                1 => vec(elem(inner.clone()), 0..3).prop_map(ExprKind::List),
                1 => vec(inner.clone(), 0..3).prop_map(ExprKind::Tuple),
                2 => (callee, vec(arg, 0..3))
                    .prop_map(|(callee, args)| ExprKind::Call { callee, args }),
                2 => (ident(), vec(elem(inner.clone()), 0..3), of(boxed.clone())).prop_map(
                    |(base, index, otherwise)| ExprKind::Index { base, index, otherwise }
                ),
                1 => (boxed.clone(), vec(elem(inner.clone()), 0..3))
                    .prop_map(|(of, index)| ExprKind::Axes { of, index }),
                4 => (monoid(), vec(elem(axis), 1..3), boxed.clone())
                    .prop_map(|(monoid, axes, body)| ExprKind::Reduce { monoid, axes, body }),
                2 => (boxed.clone(), boxed.clone(), boxed)
                    .prop_map(|(cond, then, otherwise)| ExprKind::If { cond, then, otherwise }),
            ]
            .prop_map(at)
        })
        .boxed()
}

fn some<T: std::fmt::Debug>(one: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    vec(one, 1..4)
}

fn few<T: std::fmt::Debug>(one: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    vec(one, 0..3)
}

fn tensor_type() -> impl Strategy<Value = TensorType> {
    use BinaryOp::{Ge, Gt, Le, Lt};
    let domain = (proptest::sample::select(vec![Ge, Gt, Le, Lt]), expr())
        .prop_map(|(op, bound)| Domain { op, bound });
    // Never the name of an attribute type: only brackets tell `bool[n]` from an attribute.
    ("[A-Z][0-9]?|f32|i64", of(few(elem(expr()))), of(domain)).prop_map(|(dtype, dims, domain)| {
        let dtype = Ident { text: dtype, span: Span::default() };
        TensorType { dtype, dims, domain, span: Span::default() }
    })
}

fn attr_type() -> impl Strategy<Value = AttrType> {
    let names = vec![
        "int", "ints", "float", "floats", "bool", "string", "dtype", "axis", "axes", "perm",
        "shape",
    ];
    let range = (of(expr()), of(expr()));
    (proptest::sample::select(names), of(ident()), of(range)).prop_map(|(name, of, range)| {
        let name = Ident { text: name.to_string(), span: Span::default() };
        AttrType { name, of, range, span: Span::default() }
    })
}

fn attr() -> impl Strategy<Value = Param> {
    let kind = prop_oneof![
        (attr_type(), of(expr())).prop_map(|(ty, default)| (Some(ty), default)),
        expr().prop_map(|default| (None, Some(default))),
    ];
    (ident(), kind).prop_map(|(name, (ty, default))| Param {
        each: false,
        name,
        pack: false,
        kind: ParamKind::Attr(ty),
        default,
        span: Span::default(),
    })
}

fn tensor(mark: impl Strategy<Value = (bool, bool)>) -> impl Strategy<Value = Param> {
    (mark, ident(), tensor_type()).prop_map(|((each, pack), name, ty)| Param {
        each,
        name,
        pack,
        kind: ParamKind::Tensor { ty, optional: false, variadic: false },
        default: None,
        span: Span::default(),
    })
}

fn params() -> impl Strategy<Value = Vec<Param>> {
    few(prop_oneof![tensor(Just((false, false))).boxed(), attr().boxed()])
}

fn given() -> impl Strategy<Value = Vec<Param>> {
    few(prop_oneof![tensor(any::<(bool, bool)>()).boxed(), attr().boxed()])
}

fn onnx_params() -> impl Strategy<Value = Vec<Param>> {
    let input = prop_oneof![
        (tensor_type(), 0..3u8).prop_map(|(ty, mark)| ParamKind::Tensor {
            ty,
            optional: mark == 1,
            variadic: mark == 2
        }),
        (attr_type(), any::<bool>())
            .prop_map(|(ty, optional)| ParamKind::ConstInput { ty, optional }),
    ];
    let input = (ident(), input).prop_map(|(name, kind)| Param {
        each: false,
        name,
        pack: false,
        kind,
        default: None,
        span: Span::default(),
    });
    (few(input), few(attr())).prop_map(|(mut inputs, attrs)| {
        inputs.extend(attrs);
        inputs
    })
}

fn outputs() -> impl Strategy<Value = Vec<Output>> {
    some((of(ident()), tensor_type()).prop_map(|(name, ty)| Output { name, ty }))
}

fn bindings() -> impl Strategy<Value = Vec<Binding>> {
    few((some(ident()), expr()).prop_map(|(names, value)| Binding { names, value }))
}

fn sides() -> impl Strategy<Value = Vec<Side>> {
    some((any::<bool>(), few(ident()), expr()).prop_map(|(each, names, value)| Side {
        each,
        names,
        value,
    }))
}

fn op() -> impl Strategy<Value = Op> {
    let property = prop_oneof![
        Just(OpTrait::Commutative),
        Just(OpTrait::Associative),
        expr().prop_map(OpTrait::Unit)
    ];
    let meaning = (ident(), few(elem(expr())), expr()).prop_map(|(output, index, value)| Meaning {
        output,
        index,
        value,
    });
    let all = (params(), outputs(), few(property), bindings(), few(expr()), few(meaning), stored());
    all.prop_map(|(params, outputs, traits, wheres, conditions, meanings, stored)| Op {
        params,
        outputs,
        traits,
        wheres,
        conditions,
        meanings,
        stored,
    })
}

fn def() -> impl Strategy<Value = Def> {
    (params(), outputs(), bindings(), bindings(), expr(), few(expr()), stored()).prop_map(
        |(params, outputs, wheres, lets, body, conditions, stored)| Def {
            params,
            outputs,
            wheres,
            lets,
            body,
            conditions,
            stored,
        },
    )
}

fn stored() -> impl Strategy<Value = Vec<StoredType>> {
    few((ident(), 0..i64::MAX).prop_map(|(format, number)| StoredType { format, number }))
}

fn architecture() -> impl Strategy<Value = Architecture> {
    let target = prop_oneof![
        some(ident()).prop_map(StepTarget::Names),
        quote().prop_map(StepTarget::Output),
    ];
    let step = (target, expr()).prop_map(|(target, value)| Step { target, value });
    let each = ((ident(), expr()), some(step.clone()))
        .prop_map(|(each, steps)| Steps { each: Some(each), steps });
    let one = step.prop_map(|step| Steps { each: None, steps: vec![step] });
    (params(), ident(), some(quote()), some(prop_oneof![one, each]))
        .prop_map(|(params, format, names, steps)| Architecture { params, format, names, steps })
}

fn error() -> impl Strategy<Value = ErrorClause> {
    prop_oneof![
        Just(ErrorClause::Exact),
        Just(ErrorClause::Reorder),
        (of(float()), of(float())).prop_map(|(abs, rel)| ErrorClause::Approx { abs, rel }),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let test = prop_oneof![
        (ident(), expr(), expr()).prop_map(|(name, low, high)| RuleTest::Check { name, low, high }),
        (expr(), few((ident(), expr()))).prop_map(|(side, at)| RuleTest::Picks { side, at }),
        (sides(), quote()).prop_map(|(sides, reason)| RuleTest::Never { sides, reason }),
    ];
    (
        (sides(), any::<bool>(), sides()),
        (given(), bindings(), few(expr()), few(expr()), of(error()), few(test)),
    )
        .prop_map(
            |((left, both_ways, right), (given, wheres, conditions, hints, error, tests))| Rule {
                left,
                both_ways,
                right,
                given,
                wheres,
                conditions,
                hints,
                error,
                tests,
            },
        )
}

fn fuse() -> impl Strategy<Value = Fuse> {
    (
        (params(), outputs(), bindings(), bindings(), expr()),
        (few((ident(), quote())), few(expr()), few(expr()), of(error())),
    )
        .prop_map(|((params, outputs, wheres, lets, body), (on, conditions, hints, error))| {
            Fuse { params, outputs, wheres, lets, body, on, conditions, hints, error }
        })
}

fn procedure() -> impl Strategy<Value = Extern> {
    (params(), outputs(), bindings(), few(expr()), quote()).prop_map(
        |(params, outputs, wheres, conditions, reference)| Extern {
            params,
            outputs,
            wheres,
            conditions,
            reference,
        },
    )
}

fn onnx() -> impl Strategy<Value = Onnx> {
    let alternative =
        (expr(), few(expr())).prop_map(|(value, conditions)| Alternative { value, conditions });
    let node = (few(expr()), few((ident(), expr())), of(ident()));
    let print = (expr(), node, given(), few(expr())).prop_map(
        |(pattern, (inputs, attrs, result), given, conditions)| Print {
            pattern,
            inputs,
            attrs,
            result,
            given,
            conditions,
        },
    );
    (
        (onnx_params(), few(ident()), any::<u32>(), of(any::<u32>()), (quote(), any::<bool>())),
        (few(expr()), bindings(), few(alternative), few(print)),
    )
        .prop_map(
            |(
                (params, outputs, since, until, (domain, opaque)),
                (conditions, lets, reads, prints),
            )| Onnx {
                params,
                outputs,
                since,
                until,
                domain,
                opaque,
                conditions,
                lets,
                reads,
                prints,
            },
        )
}

fn target() -> impl Strategy<Value = Target> {
    let cost = of((expr(), few((ident(), expr()))));
    let after = (of(few(ident())), of(ident()), cost, few((ident(), expr())));
    let covering = (quote(), some(ident()), few(ident()), after).prop_map(
        |(name, covers, types, (epilogue, layout, cost, takes))| {
            let (cost, class_costs) = cost.unzip();
            let class_costs = class_costs.unwrap_or_default();
            Kernel { name, covers, types, epilogue, layout, cost, class_costs, takes }
        },
    );
    let typed = (quote(), some(ident())).prop_map(|(name, types)| Kernel {
        name,
        covers: vec![],
        types,
        epilogue: None,
        layout: None,
        cost: None,
        class_costs: vec![],
        takes: vec![],
    });
    let kernel = prop_oneof![covering, typed];
    (of(ident()), few(quote()), few((ident(), expr())), few(kernel)).prop_map(
        |(extends, devices, entries, kernels)| Target { extends, devices, entries, kernels },
    )
}

fn remarks() -> impl Strategy<Value = Vec<String>> {
    few("[a-z/!]?[a-z ]{0,5}[a-z]|é|")
}

fn item() -> impl Strategy<Value = Item> {
    let kind = prop_oneof![
        op().prop_map(ItemKind::Op),
        def().prop_map(ItemKind::Def),
        rule().prop_map(ItemKind::Rule),
        fuse().prop_map(ItemKind::Fuse),
        procedure().prop_map(ItemKind::Extern),
        onnx().prop_map(ItemKind::Onnx),
        target().prop_map(ItemKind::Target),
        architecture().prop_map(ItemKind::Architecture),
    ];
    (remarks(), remarks(), ident(), kind).prop_map(|(comments, doc, name, kind)| Item {
        comments,
        doc,
        name,
        span: Span::default(),
        kind,
    })
}

fn file() -> impl Strategy<Value = File> {
    (remarks(), remarks(), few(item()), remarks()).prop_map(|(header, doc, items, trailer)| {
        // Without a `//!` comment there is no header.
        let header = if doc.is_empty() { Vec::new() } else { header };
        File { header, doc, items, trailer }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expressions_read_back(expr in expr()) {
        let printed = print_expr(&expr);
        let mut file = read(&format!("def f(x: F) -> F = {printed}"));
        let Some(ItemKind::Def(def)) = file.items.pop().map(|item| item.kind) else {
            panic!("{printed}")
        };
        prop_assert_eq!(&def.body, &expr, "{}", printed);
        prop_assert_eq!(print_expr(&def.body), printed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_read_back(file in file()) {
        let printed = round_trip(&file);
        prop_assert!(printed.lines().all(|line| line.trim_end() == line), "{printed}");
    }
}

#[test]
fn an_index_behind_a_call_that_reads_like_a_reduction() {
    for text in ["(sum(a))[]", "(max(a, b))[n]", "f(a)[n]"] {
        let mut file = read(&format!("def g(x: F) -> F = {text}"));
        let Some(ItemKind::Def(def)) = file.items.pop().map(|item| item.kind) else {
            panic!("{text}")
        };
        assert_eq!(print_expr(&def.body), text);
    }
}
