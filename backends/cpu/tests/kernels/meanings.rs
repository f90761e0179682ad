//! Operators that no kernel computes, made of their meanings: what the reference interpreter computes, and its faults.

use super::support::texts;
use mlc_backends::Backend;
use mlc_backends::reference::Reference;
use mlc_cpu::Cpu;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{DType, Program, Tensor, Type};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_extract::kernels::selection::select_kernels;
use std::sync::{Arc, OnceLock};

/// One operator for each form that code has.
const OPERATORS: &str = "
op normal(x: F[a, n]) -> y: F[a, n]
  where m = |n|, k = |n|
  y[a, n] = exp(x[a, n] - max(m) x[a, m]) / sum(m) exp(x[a, m] - max(k) x[a, k])

op before(x: F[a], h: F[n]) -> y: F[a]
  y[a] = x[a - 1] if a > 0 else h[0]

op shifted(x: F[a, n]) -> y: F[a, n]
  y[a, n] = x[a - 1, n + 2] else x[a, n] * 2

op framed(x: F[a, n], p: int in 0..2) -> y: F[b, m]
  where b = |a| + 2 * p, m = |n| + p
  if p >= 0
  y[b, m] = x[b - p, m - p] else 7

op picked(x: F[n], i: i64[a]) -> y: F[a]
  y[a] = x[i[a]]

op picked_else(x: F[n], i: i64[a], h: F[a]) -> y: F[a]
  y[a] = x[i[a]] else h[a]

op picked_inside(x: F[n], i: i64[a]) -> y: F[a]
  y[a] = x[i[a]] if i[a] >= 0 and i[a] < |n| else -1

op sizes(x: F[a, n]) -> y: F[a]
  y[a] = sum(n) abs(x[a, n])

op products(x: F[n, a]) -> y: F[a]
  y[a] = prod(n) (1 + x[n, a] / 64)

op least(x: F[n, a]) -> y: F[a]
  y[a] = min(n) x[n, a]

op greatest_of_all(x: F[a, n]) -> y: F[]
  y[] = max(a, n) x[a, n]

op some_above(x: F[a, n]) -> y: bool[a]
  y[a] = any(n) (x[a, n] > 1)

op count_above(x: F[a, n]) -> y: i64[a]
  y[a] = sum(n) (1 if x[a, n] > 0.1 else 0)

op between(x: F[n], p: F[a]) -> y: F[a]
  y[a] = (1 - (p[a] - floor(p[a]))) * (x[int(floor(p[a]))] else 0)
    + (p[a] - floor(p[a])) * (x[int(floor(p[a])) + 1] else 0)

op stretched(x: F[n], s: int in 1..3) -> y: F[a]
  where a = |n| * s
  if s >= 1
  y[a] = x[exact(a, s)] else -3

op decayed(x: F[b, t, n], g: F[n], h0: F[b, n]) -> h: F[b, t, n], y: F[b, t]
  h[b, t, n] = exp(-abs(g[n])) * (h[b, t - 1, n] else h0[b, n]) + x[b, t, n]
  y[b, t] = sum(n) h[b, t, n] * x[b, t, n]

op from_end(x: F[b, t, n]) -> h: F[b, t, n]
  h[b, t, n] = maximum(x[b, t, n], (h[b, t + 1, n] else -1) / 2)

op mixed(x: F[b, t, n], w: F[n, m]) -> h: F[b, t, n]
  if |n| == |m|
  h[b, t, n] = tanh(x[b, t, n] + sum(m) w[n, m] / 16 * (h[b, t - 1, m] else 0))

op counted(x: i64[b, t]) -> h: i64[b, t]
  h[b, t] = (h[b, t - 1] else 0) * 3 + x[b, t]

op hidden(x: F[b, t, n], w: F[n, k]) -> h: F[b, t, n, m], y: F[b, t, n]
  where m = |n|
  if |n| == |k|
  h[b, t, n, m] = x[b, t, n] * x[b, t, m] - sum(k) w[n, k] / 16 * (h[b, t - 1, k, m] else 1)
  y[b, t, n] = sum(m) h[b, t, n, m] * x[b, t, m]

op far(x: F[t, n]) -> y: F[t, n], h: F[t, n], g: F[n, t]
  y[t, n] = x[t, n] + (h[t + 3, n] else 0) - (g[n, t + 1] else 1) / 2
  h[t, n] = x[t, n] / 2 + (h[t + 1, n] else 2) / 4 - (h[t + 2, n] else 3) / 8
  g[n, t] = (g[n, t + 1] else 0) / 2 + h[t, n]

op last(x: F[b, t, n]) -> h: F[b, t, n], y: F[b, n]
  h[b, t, n] = (h[b, t - 1, n] else 0) / 2 + x[b, t, n]
  y[b, n] = h[b, |t| - 1, n] else 0
";

fn own() -> &'static Arc<Library> {
    static LIBRARY: OnceLock<Arc<Library>> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut texts = texts();
        texts.push(("own.rules".to_string(), OPERATORS.to_string()));
        let (library, diags) = mlc_dsl::check::library(&texts);
        assert!(diags.is_empty(), "{diags:?}");
        Arc::new(library)
    })
}

/// Numbers of a kind, repeatable.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Normal,
    /// With NaN, infinities and zeros of both signs.
    Special,
}

fn tensor(dtype: DType, shape: &[usize], kind: Kind, seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];
    let value = |i: usize| {
        let hash = (i + 31 * seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let unit = hash as f64 / (1u64 << 24) as f64;
        match (dtype.is_float(), kind) {
            (true, Kind::Special) if hash.is_multiple_of(5) => special[hash / 5 % special.len()],
            (true, _) => 4.0 * unit - 2.0,
            (false, _) => (6.0 * unit).floor() - 1.0,
        }
    };
    Tensor::from_f64(dtype, shape.to_vec(), &(0..n).map(value).collect::<Vec<_>>())
}

/// An application to arguments of these types.
fn program(op: &str, args: &[(DType, &[usize])]) -> (Program, Plan) {
    program_yielding(op, args, &|_| true)
}

/// A program of an operator that yields the results of those numbers.
fn program_yielding(
    op: &str,
    args: &[(DType, &[usize])],
    yields: &dyn Fn(usize) -> bool,
) -> (Program, Plan) {
    let library = own();
    let id = library.find(op).expect("an operator of the text");
    let call = library.call(id);
    let mut b = Builder::new(library);
    let inputs: Vec<_> = args
        .iter()
        .enumerate()
        .map(|(i, (dtype, shape))| b.input(&format!("x{i}"), Type::known(*dtype, shape)))
        .collect();
    let attrs: Vec<_> = call.attrs.iter().map(|_| Some(mlc_dsl::ir::Attr::int(2))).collect();
    let results = b.apply(id, &attrs, &inputs).expect("types that fit");
    let named = results.iter().enumerate().filter(|(i, _)| yields(*i));
    let named = named.map(|(i, v)| (format!("y{i}"), *v)).collect();
    let program = b.finish(named);
    let target = library.target("cpu").expect("the cpu target");
    let plan = select_kernels(program.clone(), library, target);
    (program, plan)
}

fn compare(name: &str, got: &Tensor, want: &[f64]) {
    let scale = want.iter().filter(|v| v.is_finite()).fold(1.0f64, |m, v| m.max(v.abs()));
    for (i, (g, w)) in got.to_f64().iter().zip(want).enumerate() {
        let same = if w.is_nan() {
            g.is_nan()
        } else if w.is_infinite() {
            g == w
        } else {
            let zeros = *w != 0.0 || *g != 0.0 || g.is_sign_negative() == w.is_sign_negative();
            (g - w).abs() <= 2e-6 * scale && zeros
        };
        assert!(same, "{name}: element {i} is {g:e} in place of {w:e}");
    }
}

/// Every form on arguments of these types, of both kinds and on one and two threads; none of it is interpreted.
fn check(op: &str, args: &[(DType, &[usize])]) {
    let (program, plan) = program(op, args);
    check_plan(op, args, &program, &plan);
}

fn check_plan(op: &str, args: &[(DType, &[usize])], program: &Program, plan: &Plan) {
    for kind in [Kind::Normal, Kind::Special] {
        let inputs: Vec<Tensor> =
            args.iter().enumerate().map(|(i, (d, s))| tensor(*d, s, kind, i)).collect();
        let want = Reference::default().run_values(program, own(), &inputs).expect("a value");
        let name = format!("{op} of {args:?}, {kind:?}");
        let watched = Cpu::new(1).watched(plan, own().clone()).expect("a plan");
        assert_eq!(watched.interpreted(&inputs).expect("launches"), [] as [String; 0], "{name}");
        for threads in [1, 2] {
            let cpu = Cpu::new(threads).compile(plan, own().clone()).expect("a plan");
            let got = cpu.run(&inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
            for (got, want) in got.iter().zip(&want) {
                compare(&name, got, &want.to_f64());
            }
        }
    }
}

const F: DType = DType::F32;
const I: DType = DType::I64;

#[test]
fn reductions_of_all_lengths() {
    for (a, n) in [(1, 1), (5, 3), (3, 16), (70, 33), (2, 3000), (2100, 7), (0, 4), (4, 0)] {
        for op in ["sizes", "some_above", "count_above", "greatest_of_all"] {
            check(op, &[(F, &[a, n])]);
        }
        for op in ["products", "least"] {
            check(op, &[(F, &[n, a])]);
        }
        // The interpreter looks for the largest element once for each term.
        if n > 0 && n < 1000 {
            check("normal", &[(F, &[a, n])]);
        }
    }
}

#[test]
fn elements_at_places_that_may_be_outside() {
    for (a, n) in [(1, 1), (5, 3), (9, 130), (40, 33), (0, 4)] {
        check("before", &[(F, &[a]), (F, &[n])]);
        check("shifted", &[(F, &[a, n])]);
        check("framed", &[(F, &[a, n])]);
        check("picked_else", &[(F, &[n]), (I, &[a]), (F, &[a])]);
        check("picked_inside", &[(F, &[n]), (I, &[a])]);
        check("between", &[(F, &[n]), (F, &[a])]);
        check("stretched", &[(F, &[n])]);
    }
    check("picked_inside", &[(F, &[0]), (I, &[5])]);
    check("picked_else", &[(F, &[0]), (I, &[1500]), (F, &[1500])]);
}

#[test]
fn recurrences() {
    for (b, t, n) in [(1, 1, 1), (2, 5, 16), (1, 9, 1100), (3, 4, 7), (2, 0, 3), (0, 3, 2)] {
        check("decayed", &[(F, &[b, t, n]), (F, &[n]), (F, &[b, n])]);
        check("from_end", &[(F, &[b, t, n])]);
        check("mixed", &[(F, &[b, t, n]), (F, &[n, n])]);
        check("counted", &[(I, &[b, t])]);
    }
}

/// Of states that nothing else reads the last steps are in memory.
#[test]
fn unread_states() {
    let of = |op: &str, args: &[(DType, &[usize])], output: usize, bytes: usize| {
        let (program, plan) = program_yielding(op, args, &|i| i == output);
        let held = plan.memory.places.iter().map(|b| b.bytes).collect::<Vec<_>>();
        let results = plan.memory.results;
        assert!(plan.memory.arena <= bytes as u64, "{op} of {args:?}: {held:?}, {results}");
        check_plan(op, args, &program, &plan);
    };
    let line = |n: usize| n.next_multiple_of(64);
    for (b, t, n) in
        [(1, 1, 1), (1, 2, 3), (2, 3, 4), (1, 40, 16), (3, 7, 40), (2, 0, 3), (0, 3, 2)]
    {
        for dtype in [F, DType::F64] {
            let size = dtype.size();
            let args: [(DType, &[usize]); 2] = [(dtype, &[b, t, n]), (dtype, &[n, n])];
            of("hidden", &args, 1, line(b * t.min(2) * n * n * size));
            let args: [(DType, &[usize]); 1] = [(dtype, &[t, n])];
            of("far", &args, 0, line(t.min(4) * n * size) + line(t.min(2) * n * size));
            of("last", &[(dtype, &[b, t, n])], 1, line(b * t * n * size));
        }
    }
    // A state of few bits is the interpreter's.
    let (program, plan) = program_yielding("last", &[(DType::F16, &[2, 9, 5])], &|i| i == 1);
    let (hidden, states) =
        program_yielding("hidden", &[(DType::F16, &[1, 9, 5]), (DType::F16, &[5, 5])], &|i| i == 1);
    for (program, plan) in [(program, plan), (hidden, states)] {
        let shape = |t: &Type| t.known_shape().expect("numbers");
        let inputs =
            program.inputs.iter().map(|(_, t)| tensor(t.dtype, &shape(t), Kind::Normal, 3));
        let inputs: Vec<Tensor> = inputs.collect();
        let want = Reference::default().run_values(&program, own(), &inputs).expect("a value");
        let got = Cpu::new(1).compile(&plan, own().clone()).expect("a plan").run(&inputs);
        assert_eq!(got.expect("a value")[0].to_f64(), want[0].to_tensor().to_f64());
    }
}

#[test]
fn other_floats() {
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        let (program, plan) = program("normal", &[(dtype, &[5, 20])]);
        let inputs = [tensor(dtype, &[5, 20], Kind::Normal, 0)];
        let want = Reference::default().run_values(&program, own(), &inputs).expect("a value");
        let got = Cpu::new(1).compile(&plan, own().clone()).expect("a plan").run(&inputs);
        let got = got.expect("a value")[0].to_f64();
        let near = 2.0 * dtype.unit_roundoff().max(1e-15);
        let differs = got.iter().zip(want[0].to_f64()).find(|(g, w)| (*g - w).abs() > near);
        assert_eq!(differs, None, "{dtype}");
    }
}

/// What leads outside is the interpreter's fault, in its words.
#[test]
fn faults() {
    let (program, plan) = program("picked", &[(F, &[4]), (I, &[3])]);
    let library = own();
    let cpu = Cpu::new(1).compile(&plan, library.clone()).expect("a plan");
    let x = tensor(F, &[4], Kind::Normal, 0);
    for i in [[0.0, 4.0, 1.0], [0.0, 1.0, -1.0]] {
        let inputs = [x.clone(), Tensor::from_f64(I, vec![3], &i)];
        let want =
            Reference::default().run_values(&program, library, &inputs).expect_err("a fault");
        let got = cpu.run(&inputs).expect_err("a fault");
        assert_eq!(got.to_string(), want.to_string());
    }
    let inputs = [x.clone(), Tensor::from_f64(I, vec![3], &[3.0, 0.0, 3.0])];
    let want = Reference::default().run_values(&program, library, &inputs).expect("a value");
    compare("picked", &cpu.run(&inputs).expect("a value")[0], &want[0].to_f64());
}
