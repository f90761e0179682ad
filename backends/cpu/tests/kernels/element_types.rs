//! Element types: a kernel is chosen where its code takes them, and where it does not the interpreter is, at its price.

use super::support::*;
use mlc_backends::Backend;
use mlc_cpu::Cpu;
use mlc_dsl::ir::{Attr, DType, Program, Tensor, Value};
use mlc_dsl::plan::{Kernel, Plan};
use mlc_extract::cost::target::{MEANING, REFERENCE};

const HALVES: &[DType] = &[DType::F32, DType::F16, DType::BF16];
const SUMS: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32, DType::I64];
const POOLED: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::U8, DType::I8];
const ANY: &[DType] = &DType::ALL;

/// A kernel, one of its operators, and the element types that its code takes.
type Row = (&'static str, &'static str, &'static [DType], fn(&mut Case<'_>, DType) -> Vec<Value>);

const TABLE: &[Row] = &[
    ("gemm", "matmul", ANY, |c, d| {
        let args = [c.input(d, &[3, 4]), c.input(d, &[4, 5])];
        vec![c.apply("matmul", &[], &args)]
    }),
    ("conv", "conv", HALVES, |c, d| {
        let args = [c.input(d, &[1, 2, 5, 5]), c.input(d, &[3, 2, 3, 3])];
        vec![c.apply("conv", &window(&[]), &args)]
    }),
    ("conv_transpose", "conv_transpose", HALVES, |c, d| {
        let args = [c.input(d, &[1, 2, 5, 5]), c.input(d, &[2, 3, 3, 3])];
        vec![c.apply("conv_transpose", &window(&[("extra", Attr::ints([0, 0]))]), &args)]
    }),
    ("pool", "maxpool", POOLED, |c, d| {
        let x = c.input(d, &[1, 2, 5, 5]);
        vec![c.apply("maxpool", &window(&[("window", Attr::ints([2, 2]))]), &[x])]
    }),
    ("pool", "sumpool", HALVES, |c, d| {
        let x = c.input(d, &[1, 2, 5, 5]);
        vec![c.apply("sumpool", &window(&[("window", Attr::ints([2, 2]))]), &[x])]
    }),
    ("reduce", "sum", ANY, |c, d| axes(c, d, "sum")),
    ("reduce", "prod", ANY, |c, d| axes(c, d, "prod")),
    ("reduce", "max", ANY, |c, d| axes(c, d, "max")),
    ("reduce", "min", ANY, |c, d| axes(c, d, "min")),
    ("scan", "cumsum", SUMS, |c, d| axis(c, d, "cumsum")),
    ("softmax", "softmax", HALVES, |c, d| axis(c, d, "softmax")),
    ("softmax", "log_softmax", HALVES, |c, d| axis(c, d, "log_softmax")),
    ("norm", "layernorm", HALVES, |c, d| {
        let args = [c.input(d, &[3, 4]), c.input(d, &[4]), c.input(d, &[4])];
        vec![c.apply("layernorm", &[("eps", Attr::float(1e-3))], &args)]
    }),
    ("norm", "rmsnorm", HALVES, |c, d| {
        let args = [c.input(d, &[3, 4]), c.input(d, &[4])];
        vec![c.apply("rmsnorm", &[("eps", Attr::float(1e-3))], &args)]
    }),
    ("attention", "attention", HALVES, |c, d| {
        let args = heads(c, d);
        vec![c.apply("attention", &[("scale", Attr::float(0.5))], &args)]
    }),
    ("attention", "attention_masked", HALVES, |c, d| {
        let [q, k, v] = heads(c, d);
        let mask = c.input(d, &[2, 3, 4]);
        vec![c.apply("attention_masked", &[("scale", Attr::float(0.5))], &[q, k, v, mask])]
    }),
    ("attention", "attention_select", HALVES, |c, d| {
        let [q, k, v] = heads(c, d);
        let mask = c.input(DType::Bool, &[2, 3, 4]);
        let attrs = [("scale", Attr::float(0.5)), ("low", Attr::float(-100.0))];
        vec![c.apply("attention_select", &attrs, &[q, k, v, mask])]
    }),
    ("gather", "gather", ANY, |c, d| {
        let i = c.given(Tensor::from_f64(DType::I64, vec![2], &[2.0, 0.0]));
        let x = c.input(d, &[3, 4]);
        vec![c.apply("gather", &[("axis", Attr::int(0))], &[x, i])]
    }),
    ("gather", "gather_elements", ANY, |c, d| {
        let i = c.given(Tensor::from_f64(DType::I64, vec![1, 4], &[2.0, 0.0, 1.0, 1.0]));
        let x = c.input(d, &[3, 4]);
        vec![c.apply("gather_elements", &[("axis", Attr::int(0))], &[x, i])]
    }),
    ("concat", "concat", ANY, |c, d| {
        let args = [c.input(d, &[3, 4]), c.input(d, &[2, 4])];
        vec![c.apply("concat", &[("axis", Attr::int(0))], &args)]
    }),
    ("pad", "pad", ANY, |c, d| {
        let args = [c.input(d, &[3, 4]), c.input(d, &[])];
        let attrs = [("low", Attr::ints([1, 0])), ("high", Attr::ints([0, 2]))];
        vec![c.apply("pad", &attrs, &args)]
    }),
    ("triangle", "triangle", ANY, |c, d| {
        let x = c.input(d, &[3, 4]);
        let attrs = [("diagonal", Attr::int(0)), ("upper", Attr::Bool(true))];
        vec![c.apply("triangle", &attrs, &[x])]
    }),
    ("recurrent", "lstm", HALVES, |c, d| {
        let shapes: [&[usize]; 6] =
            [&[3, 2, 2], &[1, 12, 2], &[1, 12, 3], &[1, 24], &[1, 2, 3], &[1, 2, 3]];
        let args = shapes.map(|s| c.input(d, s));
        c.outputs("lstm", &[("direction", Attr::Str("forward".into()))], &args)
    }),
    ("recurrent", "gru", HALVES, |c, d| {
        let shapes: [&[usize]; 5] = [&[3, 2, 2], &[1, 9, 2], &[1, 9, 3], &[1, 18], &[1, 2, 3]];
        let args = shapes.map(|s| c.input(d, s));
        let attrs =
            [("direction", Attr::Str("forward".into())), ("linear_before_reset", Attr::int(0))];
        c.outputs("gru", &attrs, &args)
    }),
    ("recurrent", "lstm_peephole", HALVES, |c, d| {
        let shapes: [&[usize]; 7] =
            [&[3, 2, 2], &[1, 12, 2], &[1, 12, 3], &[1, 24], &[1, 2, 3], &[1, 2, 3], &[1, 9]];
        let args = shapes.map(|s| c.input(d, s));
        c.outputs("lstm_peephole", &[("direction", Attr::Str("forward".into()))], &args)
    }),
    ("recurrent", "rnn", HALVES, |c, d| {
        let shapes: [&[usize]; 5] = [&[3, 2, 2], &[1, 3, 2], &[1, 3, 3], &[1, 6], &[1, 2, 3]];
        let args = shapes.map(|s| c.input(d, s));
        let attrs =
            [("direction", Attr::Str("forward".into())), ("activation", Attr::Str("tanh".into()))];
        c.outputs("rnn", &attrs, &args)
    }),
    ("pointwise", "add", ANY, |c, d| {
        let args = [c.input(d, &[3, 4]), c.input(d, &[3, 4])];
        vec![c.apply("add", &[], &args)]
    }),
];

fn window<'a>(more: &[(&'a str, Attr)]) -> Vec<(&'a str, Attr)> {
    let mut all = more.to_vec();
    for (name, each) in [("stride", 1), ("low", 0), ("high", 0), ("dilation", 1)] {
        all.push((name, Attr::ints([each, each])));
    }
    all.push(("group", Attr::int(1)));
    all
}

fn axes(c: &mut Case<'_>, dtype: DType, op: &str) -> Vec<Value> {
    let x = c.input(dtype, &[3, 4]);
    vec![c.apply(op, &[("axes", Attr::ints([1]))], &[x])]
}

fn axis(c: &mut Case<'_>, dtype: DType, op: &str) -> Vec<Value> {
    let x = c.input(dtype, &[3, 4]);
    let attrs =
        [("axis", Attr::int(1)), ("exclusive", Attr::Bool(false)), ("reverse", Attr::Bool(false))];
    vec![c.apply(op, &attrs, &[x])]
}

fn heads(c: &mut Case<'_>, dtype: DType) -> [Value; 3] {
    [&[2, 3, 2], &[2, 4, 2], &[2, 4, 5]].map(|shape| c.input(dtype, shape))
}

/// The element types that the signature of an operator admits.
fn admitted(op: &str) -> Vec<DType> {
    let library = library();
    let call = library.call(library.find(op).expect("shipped"));
    let first = &call.inputs[0].ty.dtype;
    DType::ALL.into_iter().filter(|d| first.admits(*d)).collect()
}

fn built(make: fn(&mut Case<'_>, DType) -> Vec<Value>, dtype: DType) -> (Program, Vec<Tensor>) {
    let library = library();
    let mut c = Case::new(&library);
    let outputs = make(&mut c, dtype);
    c.finish(&outputs)
}

/// The one kernel of a plan that computes this operator.
fn kernel_of<'p>(plan: &'p Plan, op: &str) -> &'p Kernel {
    let of = |k: &&Kernel| k.nodes.iter().any(|n| library().node_name(&plan.program, *n) == op);
    plan.kernels.iter().find(of).unwrap_or_else(|| panic!("no kernel computes `{op}`"))
}

#[test]
fn kernels_are_chosen_for_the_element_types_that_their_code_takes() {
    for &(kernel, op, taken, make) in TABLE {
        let usual = plan(&built(make, DType::F32).0).cost;
        for dtype in admitted(op) {
            let what = format!("{op} of {dtype}");
            let (program, inputs) = built(make, dtype);
            let plan = plan(&program);
            let chosen = kernel_of(&plan, op);
            let native = taken.contains(&dtype);
            let general = [REFERENCE, MEANING].contains(&chosen.name.as_str());
            assert!(
                if native { chosen.name == kernel } else { general },
                "{what}: {}",
                chosen.name
            );
            let times = plan.cost / usual;
            assert!(if native { times < 5.0 } else { times >= 1.0 }, "{what}: {times}");
            check_program(&what, &program, &inputs, near(dtype));
        }
    }
}

fn near(dtype: DType) -> Tolerance {
    let t = close(dtype);
    // Code for f32 adds in another order.
    if dtype.is_float() { Tolerance(t.0.max(1e-13), t.1.max(1e-13)) } else { Tolerance(0.0, 0.0) }
}

#[test]
fn a_kernel_of_another_element_type_is_a_fault() {
    let library = library();
    for &(kernel, op, taken, make) in TABLE {
        for dtype in admitted(op) {
            let mut plan = plan(&built(make, dtype).0);
            let own = |k: &&mut Kernel| {
                k.nodes.iter().any(|n| library.node_name(&plan.program, *n) == op)
            };
            plan.kernels.iter_mut().find(own).expect("a kernel").name = kernel.into();
            let faults = Cpu::new(1).faults(&plan, &library);
            let shown: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let what = format!("{op} of {dtype}: {shown:?}");
            match taken.contains(&dtype) {
                true => assert!(faults.is_empty(), "{what}"),
                false => assert!(shown[0].contains(&format!("`{op}` of {dtype}")), "{what}"),
            }
        }
    }
}

#[test]
fn what_follows_an_interpreted_operator_is_a_kernel_of_its_own() {
    for (dtype, wanted) in [(DType::F32, 1), (DType::F64, 2)] {
        let library = library();
        let mut c = Case::new(&library);
        let args = [c.input(dtype, &[1, 2, 5, 5]), c.input(dtype, &[3, 2, 3, 3])];
        let y = c.apply("conv", &window(&[]), &args);
        let y = c.apply("tanh", &[], &[y]);
        let (program, inputs) = c.finish(&[y]);
        assert_eq!(plan(&program).kernels.len(), wanted, "{dtype}");
        check_program("a convolution and what follows", &program, &inputs, near(dtype));
    }
}
