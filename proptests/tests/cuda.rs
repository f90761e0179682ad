//! Generated CUDA code computes what the reference interpreter does: on the emulator, or on the device that
//! `MLC_CUDA_DEVICE` names by its number.

use mlc_backends::{Backend, Executable};
use mlc_cuda::{
    Cuda, Driver, LaunchedPlan, Launches, Nvidia, Policy, Tuning, launches, launches_for,
};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, Program, Tensor, Type, Value};
use mlc_dsl::library::CallId;
use mlc_dsl::plan::Plan;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::{Style, inputs, tame};
use mlc_fuzz::oracle::{examine, hold_run};
use mlc_fuzz::{Generator, Subject, Verdict};
use mlc_onnx::import;
use mlc_proptests::emulated::{Emulated, has_no_code};
use mlc_proptests::spellings::{families, run::models};
use mlc_proptests::{checked_options, library, options, program, sampled};
use mlc_rewrite::pipeline::selfcheck::difference;
use mlc_rewrite::pipeline::{Options, optimize};
use mlc_rewrite::show;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// Generated programs.
const PROGRAMS: usize = 30;
/// Applications of each operator, and the seeds that they are drawn by at most.
const APPLICATIONS: usize = 1;
const MOST_SEEDS: usize = 12;

/// Names a device of this machine that takes the place of the emulator.
const DEVICE: &str = "MLC_CUDA_DEVICE";

/// So many seeds.
fn seeds(some: usize) -> std::ops::Range<u64> {
    0..sampled(some) as u64
}

/// True if there is nothing to run generated code on.
fn is_skipped() -> bool {
    let skipped = std::env::var_os(DEVICE).is_none() && !mlc_cuda_emulator::available();
    if skipped {
        println!("skipped: there is no C++ compiler, and {DEVICE} names no device");
    }
    skipped
}

/// Runs a plan; on the emulator, everything is given back.
fn run_plan(plan: &Plan, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let run = |driver: Arc<dyn Driver>| {
        let compiled = Cuda::new(driver).compile(plan, library().clone());
        compiled.and_then(|e| e.run(inputs)).map_err(|e| e.to_string())
    };
    if let Some(device) = device() {
        return run(device.clone());
    }
    let emulated = Arc::new(Emulated::default());
    let result = run(emulated.clone());
    assert_eq!(emulated.left(), 0, "memory or modules are left on the device");
    result
}

/// The device that the environment names.
fn device() -> Option<&'static Arc<dyn Driver>> {
    static OPENED: OnceLock<Option<Arc<dyn Driver>>> = OnceLock::new();
    let open = || {
        let number = std::env::var(DEVICE).ok()?.parse().expect("the number of a device");
        let device = Nvidia::new(number).unwrap_or_else(|e| panic!("device {number}: {e}"));
        Some(Arc::new(device) as Arc<dyn Driver>)
    };
    OPENED.get_or_init(open).as_ref()
}

/// How an operator is refused for which no code can be generated.
const NO_CODE: &str = "no code is generated for it";

#[test]
fn generated_code_computes_every_operator_as_the_reference_does() {
    if is_skipped() {
        return;
    }
    let library = library();
    let generator = Generator::new(library);
    let run = |p: &Program, i: &[_]| {
        let plan = Plan::of_nodes(p.clone(), library, "reference");
        run_plan(&plan, i)
    };
    let (mut wrong, mut never, mut refused) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (i, call) in library.calls.iter().enumerate() {
        let drawn = |seed| Some((seed, generator.single(CallId(i as u32), seed)?));
        let drawn: Vec<_> =
            seeds(MOST_SEEDS).filter_map(drawn).take(sampled(APPLICATIONS)).collect();
        if drawn.is_empty() {
            never.push(call.name.to_string());
        }
        for (seed, p) in drawn {
            wrong.extend(Style::ALL.into_iter().find_map(|style| {
                let values = inputs(&p, style, seed)?;
                let runs = [tame(&values), values];
                let mut failures =
                    runs.iter().filter_map(|v| hold_run(library, &p, style, v, &run).err());
                let message = failures.next()?;
                if message.contains(NO_CODE) {
                    refused.insert(call.name.to_string());
                    return None;
                }
                let text = show::program(&p, library, "case");
                Some(format!("{} (seed {seed}, {style:?}): {message}\n{text}", call.name))
            }));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    // No operator of numbers is refused.
    let known = |n: &str| library.find(n).is_some_and(|id| has_no_code(library.call(id)));
    let others: Vec<&String> = refused.iter().filter(|n| !known(n)).collect();
    assert!(others.is_empty(), "other operators are refused: {others:?}");
    // An operator that is never drawn is never tested.
    assert!(never.is_empty(), "no application found for {}", never.join(", "));
}

#[test]
fn generated_code_computes_programs_as_the_reference_does() {
    if is_skipped() {
        return;
    }
    let library = library();
    let target = library.target("cuda").expect("shipped");
    let run = |p: &Program, i: &[_]| {
        let plan = select_kernels(p.clone(), library, target);
        run_plan(&plan, i)
    };
    let options = Options { target: "cuda".into(), ..options(500, 3) };
    let optimise = |p: &Program| {
        let done = optimize(p.clone(), library, &options).map_err(|e| e.to_string())?;
        Ok(done.program)
    };
    let subject = Subject { library, optimise: &optimise, run: &run };
    let mut wrong = Vec::new();
    let (mut compared, mut refused) = (0, 0);
    for seed in seeds(PROGRAMS) {
        let p = program(seed, 14);
        match examine(&subject, &p, &[Style::Normal, Style::Whole], seed) {
            Verdict::Agrees(runs) => compared += runs,
            Verdict::Skipped(_) => {}
            Verdict::Differs(f) if f.message.contains(NO_CODE) => refused += 1,
            Verdict::Differs(f) => {
                let text = show::program(&p, library, "case");
                wrong.push(format!(
                    "seed {seed}, {:?}, {:?}: {}\n{text}",
                    f.stage, f.style, f.message
                ));
            }
        }
    }
    println!("{compared} runs compared, {refused} programs refused");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(refused < sampled(PROGRAMS) / 8, "{refused} programs are refused");
}

#[test]
fn generated_code_computes_layers_as_the_reference_does() {
    if is_skipped() {
        return;
    }
    let library = library();
    let target = library.target("cuda").expect("shipped");
    let run = |p: &Program, i: &[_]| run_plan(&select_kernels(p.clone(), library, target), i);
    let options = Options { target: "cuda".into(), self_check: false, ..checked_options() };
    let optimise = |p: &Program| {
        let done = optimize(p.clone(), library, &options).map_err(|e| e.to_string())?;
        Ok(done.program)
    };
    let subject = Subject { library, optimise: &optimise, run: &run };
    let mut wrong = Vec::new();
    let mut compared = 0;
    for family in families() {
        for (model, _) in models(&family, 1) {
            let p = import(model, library).expect("imports").program;
            match examine(&subject, &p, &[Style::Normal], 1) {
                Verdict::Agrees(runs) => compared += runs,
                Verdict::Skipped(why) => println!("{}: {why}", family.name),
                Verdict::Differs(f) => {
                    let text = show::program(&p, library, "case");
                    wrong.push(format!("{}, {:?}: {}\n{text}", family.name, f.stage, f.message));
                }
            }
        }
    }
    println!("{compared} runs compared");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A recurrent layer with constant first states, all of its results, one of them twice, and what is computed from one.
fn recurrent(
    name: &str,
    gates: usize,
    dtype: DType,
    [steps, batch, input, hidden]: [usize; 4],
    attrs: &[Option<Attr>],
) -> Program {
    let directions = if attrs[0] == Some(Attr::Str("bidirectional".into())) { 2 } else { 1 };
    let mut b = Builder::new(library());
    let rows = gates * hidden;
    let shapes: [&[usize]; 5] = [
        &[steps, batch, input],
        &[directions, rows, input],
        &[directions, rows, hidden],
        &[directions, 2 * rows],
        &[directions, batch, hidden],
    ];
    let mut args = vec![];
    for (i, shape) in shapes.iter().enumerate() {
        args.push(b.input(&i.to_string(), Type::known(dtype, shape)));
    }
    if gates == 4 {
        let n = directions * batch * hidden;
        args.push(b.constant(Tensor::from_f64(dtype, shapes[4].to_vec(), &vec![0.25; n])));
    }
    let found = |name: &str| library().find(name).expect("shipped");
    let results = b.apply(found(name), attrs, &args).expect("types");
    let exp = b.apply(found("exp"), &[], &[results[0]]).expect("types")[0];
    let mut outputs: Vec<(String, Value)> = vec![];
    for (i, v) in results.iter().chain([&results[0], &exp]).enumerate() {
        outputs.push((i.to_string(), *v));
    }
    b.finish(outputs)
}

/// Runs a plan with the steps of recurrent layers spread over so many multiprocessors.
fn spread(plan: &Plan, inputs: &[Tensor], processors: u32) -> Result<Vec<Tensor>, String> {
    let tuning = Tuning { processors, persistent_rnn: Policy::Always, ..Tuning::default() };
    let code = launches_for(plan, library(), tuning).map_err(|e| e.to_string())?;
    let driver = device().cloned().unwrap_or_else(|| Arc::new(Emulated::default()));
    let loaded = LaunchedPlan::new(code, driver, plan.program.consts.clone());
    loaded.and_then(|e| e.run(inputs)).map_err(|e| e.to_string())
}

#[test]
fn recurrent_layers_compute_what_the_reference_does() {
    if is_skipped() {
        return;
    }
    let target = library().target("cuda").expect("shipped");
    let sizes =
        [[3, 2, 5, 4], [2, 3, 40, 37], [4, 1, 1, 130], [0, 2, 3, 4], [2, 0, 3, 4], [2, 2, 0, 3]];
    let precisions =
        [(DType::F32, 1e-5), (DType::F64, 1e-12), (DType::F16, 2e-3), (DType::BF16, 2e-2)];
    let int = |v: i64| Some(Attr::Int(Extent::from(v)));
    let one = |case: usize, direction: &str| {
        let size = sizes[case];
        let word = Some(Attr::Str(direction.into()));
        let layers = [
            ("lstm", 4, vec![word.clone()]),
            ("gru", 3, vec![word.clone(), int(0)]),
            ("gru", 3, vec![word, int(1)]),
        ];
        for (k, (name, gates, attrs)) in layers.iter().enumerate() {
            let (dtype, least) = precisions[(case + k) % precisions.len()];
            let p = recurrent(name, *gates, dtype, size, attrs);
            let values = inputs(&p, Style::Normal, case as u64).expect("known extents");
            let wanted = mlc_backends::reference::run_values(&p, library(), &values);
            let wanted: Vec<Tensor> = wanted.expect("runs").iter().map(|v| v.to_tensor()).collect();
            let plan = select_kernels(p, library(), target);
            let close = |got: &[Tensor], how: &str| {
                for (wanted, got) in wanted.iter().zip(got) {
                    let error = difference(wanted, got).expect("the same type");
                    let what = format!("{name} {attrs:?} {size:?} {dtype}");
                    assert!(error < least, "{what}, {how}: {error:.1e}");
                }
            };
            close(&run_plan(&plan, &values).expect("runs"), "as chosen");
            for processors in [2, 3, 40] {
                let got = spread(&plan, &values, processors).expect("runs");
                close(&got, &format!("over {processors} multiprocessors"));
            }
        }
    };
    // Compiling their code takes most of the time.
    std::thread::scope(|threads| {
        for case in 0..sizes.len() {
            threads.spawn(move || {
                ["forward", "reverse", "bidirectional"].into_iter().for_each(|d| one(case, d));
            });
        }
    });
    let attrs = [Some(Attr::Str("forward".into()))];
    for (size, is_wanted) in
        [([8, 1, 16, 512], true), ([8, 40, 16, 256], true), ([8, 1, 16, 24], false)]
    {
        let p = recurrent("lstm", 4, DType::F32, size, &attrs);
        let code = launches(&select_kernels(p, library(), target), library()).expect("code");
        let is_spread = code.each.iter().any(|l| l.is_cooperative());
        assert_eq!(is_spread, is_wanted, "{size:?}");
    }
    let p = recurrent("lstm", 4, DType::F32, [2, 1, 3, 7000], &attrs);
    let refused =
        launches(&select_kernels(p, library(), target), library()).map_err(|e| e.to_string());
    let told = "the cuda backend does not support `lstm`: a state of 7000 elements is too large for shared memory";
    assert_eq!(refused.map(|l| l.arena), Err(told.into()));
}

/// Some reductions of a value, along these axes.
fn reductions(dtype: DType, shape: &[usize], axes: &[i64]) -> Program {
    let mut b = Builder::new(library());
    let x = b.input("x", Type::known(dtype, shape));
    let attrs = [Some(Attr::Ints(axes.iter().map(|&a| Extent::from(a)).collect()))];
    let mut outputs = vec![];
    for name in ["sum", "prod", "max", "min"] {
        let op = library().find(name).expect("shipped");
        outputs.push((name.to_string(), b.apply(op, &attrs, &[x]).expect("types")[0]));
    }
    if let ([axis], true) = (axes, dtype.is_float()) {
        let axis = Some(Attr::Int(Extent::from(*axis)));
        let softmax = library().find("softmax").expect("shipped");
        outputs.push(("softmax".into(), b.apply(softmax, &[axis], &[x]).expect("types")[0]));
    }
    b.finish(outputs)
}

#[test]
fn long_reductions_are_computed_in_parts_as_the_reference_computes_them() {
    if is_skipped() {
        return;
    }
    let library = library();
    let target = library.target("cuda").expect("shipped");
    let run = |p: &Program, i: &[_]| run_plan(&select_kernels(p.clone(), library, target), i);
    let cases: [(&[usize], &[i64], bool); 6] = [
        (&[16385], &[0], true),
        (&[3, 20000], &[1], true),
        (&[17000, 2], &[0], true),
        (&[130, 3, 131], &[0, 2], true),
        (&[3, 0], &[1], false),
        (&[0, 20000], &[1], false),
    ];
    let dtypes = [DType::F32, DType::F64, DType::BF16, DType::I8, DType::I64, DType::U64];
    for (case, (shape, axes, is_split)) in cases.into_iter().enumerate() {
        for &dtype in if case % 2 == 0 { &dtypes[..] } else { &dtypes[..1] } {
            let p = reductions(dtype, shape, axes);
            let code = launches(&select_kernels(p.clone(), library, target), library);
            let unit = code.expect("known extents").unit();
            assert_eq!(unit.contains("a part of a reduction"), is_split, "{dtype} {shape:?}");
            for style in Style::ALL {
                let Some(values) = inputs(&p, style, 1) else { continue };
                let held = hold_run(library, &p, style, &values, &run);
                held.unwrap_or_else(|m| panic!("{dtype} {shape:?} {style:?}: {m}"));
            }
        }
    }
}

#[test]
fn sums_of_what_products_yield_are_shared_by_threads() {
    if is_skipped() {
        return;
    }
    let mut b = Builder::new(library());
    let matrix = Type::known(DType::F32, &[144, 144]);
    let [x, y] = ["x", "y"].map(|name| b.input(name, matrix.clone()));
    let [matmul, sum] = ["matmul", "sum"].map(|op| library().find(op).expect("shipped"));
    let product = b.apply(matmul, &[], &[x, y]).expect("types")[0];
    let axes = Some(Attr::Ints(vec![Extent::from(0), Extent::from(1)]));
    let total = b.apply(sum, &[axes], &[product]).expect("types")[0];
    let p = b.finish(vec![("total".into(), total)]);
    let values = inputs(&p, Style::Normal, 1).expect("known extents");
    // One kernel of both: the product is a stage of its own.
    let mut plan = select_kernels(p.clone(), library(), library().target("cuda").expect("shipped"));
    if plan.kernels.len() == 2 {
        let last = plan.kernels.pop().expect("a kernel");
        plan.kernels[0].nodes.extend(last.nodes);
        plan.kernels[0].outputs = last.outputs;
    }
    let code = launches(&plan, library()).expect("known extents");
    assert!(!code.unit().contains("an element for each thread"), "{}", code.unit());
    let wanted = mlc_backends::reference::run_values(&p, library(), &values).expect("runs");
    let emulated = || Arc::new(Emulated::default()) as Arc<dyn Driver>;
    let device = device().cloned().unwrap_or_else(emulated);
    let got = LaunchedPlan::new(code, device, plan.program.consts.clone()).expect("is loaded");
    let got = got.run(&values).expect("runs");
    let error = difference(&wanted[0].to_tensor(), &got[0]).expect("the same type");
    assert!(error < 1e-4, "{error:.1e}");
}

/// Attention with so many queries, keys, features of a key and features of a value, in two heads; perhaps with a mask.
fn attention(dtype: DType, [s, t, d, w]: [usize; 4], is_masked: bool) -> Program {
    let mut b = Builder::new(library());
    let shapes = [[s, d], [t, d], [t, w], [s, t]];
    let names = ["q", "k", "v", "mask"].into_iter().zip(shapes);
    let input =
        |(name, [m, n]): (&str, [usize; 2])| b.input(name, Type::known(dtype, &[1, 2, m, n]));
    let args: Vec<Value> = names.map(input).take(if is_masked { 4 } else { 3 }).collect();
    let op = if is_masked { "attention_masked" } else { "attention" };
    let scale = Some(Attr::float(0.25));
    let y = b.apply(library().find(op).expect("shipped"), &[scale], &args).expect("types")[0];
    let exp = b.apply(library().find("exp").expect("shipped"), &[], &[y]).expect("types")[0];
    b.finish(vec![("y".into(), y), ("exp".into(), exp)])
}

#[test]
fn attention_is_one_launch_that_computes_what_the_reference_does() {
    if is_skipped() {
        return;
    }
    let library = library();
    let target = library.target("cuda").expect("shipped");
    let run = |p: &Program, i: &[_]| run_plan(&select_kernels(p.clone(), library, target), i);
    let sizes = [([66, 130, 18, 33], true), ([9, 64, 8, 129], true), ([8, 65, 9, 257], false)];
    for (case, (size, is_one)) in sizes.into_iter().enumerate() {
        for (dtype, is_masked) in
            [(DType::F32, true), (DType::F32, false), (DType::BF16, true), (DType::F64, false)]
        {
            let p = attention(dtype, size, is_masked);
            let code = launches(&select_kernels(p.clone(), library, target), library);
            let unit = code.expect("known extents").unit();
            let is_one = is_one && dtype != DType::F64;
            assert_eq!(unit.contains("with a normalised factor"), is_one, "{size:?} {dtype}");
            for style in Style::ALL {
                let mut values = inputs(&p, style, case as u64).expect("known extents");
                if let (true, Some(mask)) = (style == Style::Normal, values.get_mut(3)) {
                    // No row sees its first keys, and the first row sees none.
                    let (keys, mut elements) = (size[1], mask.to_f64());
                    for (i, v) in elements.iter_mut().enumerate() {
                        if i < keys || i % keys < 64.min(keys - 1) {
                            *v = f64::NEG_INFINITY;
                        }
                    }
                    *mask = Tensor::from_f64(dtype, mask.shape().to_vec(), &elements);
                }
                let held = hold_run(library, &p, style, &values, &run);
                held.unwrap_or_else(|m| panic!("{dtype} {size:?} {is_masked} {style:?}: {m}"));
            }
        }
    }
}

#[test]
fn an_index_out_of_range_is_an_error_that_names_the_operator() {
    if is_skipped() {
        return;
    }
    let mut b = Builder::new(library());
    let x = b.input("x", Type::known(DType::F32, &[3, 5]));
    let at = b.input("at", Type::known(DType::I64, &[2]));
    let gather = library().find("gather").expect("shipped");
    let axis = Some(Attr::Int(Extent::from(1)));
    let y = b.apply(gather, &[axis], &[x, at]).expect("types")[0];
    let program = b.finish(vec![("y".into(), y)]);
    let plan = select_kernels(program, library(), library().target("cuda").expect("shipped"));
    let x = Tensor::from_f32(vec![3, 5], (0..15).map(|v| v as f32).collect());
    let at = |v: &[f64]| Tensor::from_f64(DType::I64, vec![2], v);
    let inside = run_plan(&plan, &[x.clone(), at(&[4.0, 0.0])]).expect("in range");
    assert_eq!(inside[0].to_f64(), [4.0, 0.0, 9.0, 5.0, 14.0, 10.0]);
    let outside = run_plan(&plan, &[x, at(&[4.0, 7.0])]).expect_err("7 is out of range");
    let told = "operator `gather`: index 7 is out of range for axis 1, which has extent 5";
    assert_eq!(outside, told);
}

#[test]
fn values_of_many_elements_are_indexed_with_64_bits() {
    let mut b = Builder::new(library());
    let x = b.input("x", Type::known(DType::F32, &[1 << 16, 1 << 16]));
    let exp = library().find("exp").expect("shipped");
    let y = b.apply(exp, &[], &[x]).expect("types")[0];
    let program = b.finish(vec![("y".into(), y)]);
    let plan = select_kernels(program, library(), library().target("cuda").expect("shipped"));
    let unit = launches(&plan, library()).expect("known extents").each[0].source.clone();
    assert!(unit.contains("long long at = ((long long)blockIdx.x"), "{unit}");
    // What counts the elements of one access is small.
    assert!(!unit.replace("for (int lane", "").contains("int "), "{unit}");
}

/// Sums of windows of so many elements along both axes, of 25 places.
fn sums_of_windows(extent: i64) -> Result<Launches, String> {
    let mut b = Builder::new(library());
    let x = b.input("x", Type::known(DType::F32, &[1, 1, 4, 4]));
    let ints = |v: [i64; 2]| Some(Attr::Ints(v.into_iter().map(Extent::from).collect()));
    let attrs = [[extent; 2], [1; 2], [extent; 2], [0; 2], [1; 2]].map(ints);
    let y = b.apply(library().find("sumpool").expect("shipped"), &attrs, &[x]).expect("types")[0];
    let program = b.finish(vec![("y".into(), y)]);
    let plan = select_kernels(program, library(), library().target("cuda").expect("shipped"));
    launches(&plan, library()).map_err(|e| e.to_string())
}

#[test]
fn loops_over_many_elements_have_64_bits_or_are_refused() {
    let unit = sums_of_windows(1 << 20).expect("2^40 elements are counted").each[0].source.clone();
    assert!(unit.contains("for (long long v1_at"), "{unit}");
    let refused = sums_of_windows(1 << 40).expect_err("2^80 elements are not counted");
    let told =
        "the cuda backend does not support `sumpool` with loops over more than 2^63 elements";
    assert_eq!(refused, told);
}

#[test]
fn values_that_no_memory_holds_together_are_refused() {
    let mut b = Builder::new(library());
    let long = Type::known(DType::F64, &[1, 1 << 59]);
    let axis = Some(Attr::Int(Extent::from(1)));
    let softmax = library().find("softmax").expect("shipped");
    let [mul, sum] = ["mul", "sum"].map(|op| library().find(op).expect("shipped"));
    let rows: Vec<Value> = (0..5)
        .map(|i| {
            let x = b.input(&i.to_string(), long.clone());
            b.apply(softmax, std::slice::from_ref(&axis), &[x]).expect("types")[0]
        })
        .collect();
    let mut outputs = vec![];
    for (i, x) in rows.iter().enumerate() {
        for y in &rows[..i] {
            let product = b.apply(mul, &[], &[*x, *y]).expect("types")[0];
            let axes = Some(Attr::Ints(vec![Extent::from(0), Extent::from(1)]));
            let total = b.apply(sum, &[axes], &[product]).expect("types")[0];
            outputs.push((outputs.len().to_string(), total));
        }
    }
    let program = b.finish(outputs);
    let plan = select_kernels(program, library(), library().target("cuda").expect("shipped"));
    let refused = launches(&plan, library()).expect_err("these are 5 values of 2^62 bytes");
    let told = "the cuda backend does not support values of more than 2^64 bytes together";
    assert_eq!(refused.to_string(), told);
}

#[test]
fn kernels_of_any_depth_are_generated() {
    let mut b = Builder::new(library());
    let x = b.input("x", Type::known(DType::F32, &[64]));
    let [sin, add] = ["sin", "add"].map(|op| library().find(op).expect("shipped"));
    let mut y = x;
    for _ in 0..4000 {
        y = b.apply(sin, &[], &[y]).expect("types")[0];
        y = b.apply(add, &[], &[y, x]).expect("types")[0];
    }
    let program = b.finish(vec![("y".into(), y)]);
    let plan = select_kernels(program, library(), library().target("cuda").expect("shipped"));
    assert!(!launches(&plan, library()).expect("known extents").each.is_empty());
}
