//! Streams of runs: states in place against runs that are given all inputs, to the last bit, and against the reference interpreter.

use mlc_rewrite::ndarray::{ArrayD, IxDyn};
use mlc_rewrite::{AnyArray, ArrayMut, Binding, Device, ErrorKind, Model, Session};

/// A model with states, the pairs of output and input that are fed back, and those of them that are appended in place.
struct Case {
    name: &'static str,
    text: &'static str,
    feeds: &'static [(&'static str, &'static str)],
    appended: usize,
    /// The shape of `x` for so many steps at once.
    x: fn(usize) -> Vec<usize>,
    /// The shapes of states before the first step that have so many elements along the axis that grows.
    states: fn(usize) -> Vec<Vec<usize>>,
}

const CASES: &[Case] = &[
    Case {
        name: "attention over a cache of heads",
        text: "
def step(x: f32[b, 3, s, 4], keys: f32[b, 3, p, 4], values: f32[b, 3, p, 4])
  -> y: f32[b, 3, s, 4], all_keys: f32[b, 3, p + s, 4], all_values: f32[b, 3, p + s, 4]
  let k = concat(keys, tanh(x), axis=2)
  let v = concat(values, sin(x), axis=2)
  = (attention(x, k, v, scale=0.5), k, v)
",
        feeds: &[("all_keys", "keys"), ("all_values", "values")],
        appended: 2,
        x: |s| vec![2, 3, s, 4],
        states: |p| vec![vec![2, 3, p, 4]; 2],
    },
    Case {
        name: "products with a cache of heads, its parts and its sums",
        text: "
def step(x: f32[b, 3, s, 4], past: f32[b, 3, p, 4])
  -> y: f32[b, 3, s, p + s], rows: f32[b, 3, 4], old: f32[b, 3], norm: f32[b, 3, p + s, 4], flat: f32[b, 3 * p + 3 * s, 4], all: f32[b, 3, p + s, 4]
  let k = concat(past, tanh(x), axis=2)
  let sums = sum(transpose(k, perm=[0, 1, 3, 2]) * 1.5, axes=[3])
  = (x @ transpose(k, perm=[0, 1, 3, 2]), sums, sum(past, axes=[2, 3]), softmax(k, axis=2), reshape(k, shape=[b, 3 * p + 3 * s, 4]), k)
",
        feeds: &[("all", "past")],
        appended: 1,
        x: |s| vec![2, 3, s, 4],
        states: |p| vec![vec![2, 3, p, 4]],
    },
    Case {
        name: "positions before heads",
        text: "
def step(x: f32[b, s, 3, 4], past: f32[b, p, 3, 4])
  -> y: f32[b, 3, s, 4], all: f32[b, p + s, 3, 4]
  let q = transpose(x, perm=[0, 2, 1, 3])
  let k = concat(transpose(past, perm=[0, 2, 1, 3]), tanh(q), axis=2)
  = (attention(q, k, k, scale=0.5), transpose(k, perm=[0, 2, 1, 3]))
",
        feeds: &[("all", "past")],
        appended: 1,
        x: |s| vec![2, s, 3, 4],
        states: |p| vec![vec![2, p, 3, 4]],
    },
    Case {
        name: "rows of a table",
        text: "
def step(x: f32[s, 8], rows: i64[2], past: f32[p, 8]) -> y: f32[s, p + s], first: f32[2, 8], all: f32[p + s, 8], also: f32[p + s, 8]
  let k = concat(past, x * 2.0, axis=0)
  = (tanh(x) @ transpose(k, perm=[1, 0]), gather(k, rows, axis=0), k, k)
",
        feeds: &[("all", "past")],
        appended: 1,
        x: |s| vec![s, 8],
        states: |p| vec![vec![p, 8]],
    },
    Case {
        name: "two parts, one of them the state's own",
        text: "
def step(x: f32[2, s], past: f32[2, p]) -> y: f32[2, 2 * p], all: f32[2, p + s + 1], last: f32[2, 1]
  let new = x * broadcast(sum(past, axes=[1]), map=[0], shape=[2, s])
  let k = concat(concat(past, new, axis=1), slice(x, start=[0, 0], size=[2, 1], step=[1, 1]), axis=1)
  = (concat(past, past * 2.0, axis=1), k, slice(k, start=[0, p], size=[2, 1], step=[1, 1]))
",
        feeds: &[("all", "past")],
        appended: 1,
        x: |s| vec![2, s],
        states: |p| vec![vec![2, p]],
    },
    Case {
        name: "what is appended is read of the state",
        text: "
def step(x: f32[2, s], past: f32[2, p]) -> y: f32[2], all: f32[2, p + p]
  = (sum(x, axes=[1]), concat(past, past, axis=1))
",
        feeds: &[("all", "past")],
        appended: 0,
        x: |s| vec![2, s],
        states: |p| vec![vec![2, p.min(2)]],
    },
    Case {
        name: "what is new comes first",
        text: "
def step(x: f32[2, s], past: f32[2, p]) -> y: f32[2], all: f32[2, s + p]
  let k = concat(x, past, axis=1)
  = (sum(k, axes=[1]), k)
",
        feeds: &[("all", "past")],
        appended: 0,
        x: |s| vec![2, s],
        states: |p| vec![vec![2, p]],
    },
    Case {
        name: "a recurrent state and a window of the last steps",
        text: "
def step(x: f32[2, s], hidden: f32[2], window: f32[2, 4]) -> y: f32[2], next: f32[2], last: f32[2, 4]
  let h = tanh(hidden + sum(x, axes=[1]) + sum(window, axes=[1]))
  let w = slice(concat(window, x, axis=1), start=[0, s], size=[2, 4], step=[1, 1])
  = (h * 2.0, h, w)
",
        feeds: &[("next", "hidden"), ("last", "window")],
        appended: 0,
        x: |s| vec![2, s],
        states: |_| vec![vec![2], vec![2, 4]],
    },
];

fn wave(shape: &[usize], phase: f32) -> AnyArray {
    let mut at = 0.0;
    let next = || {
        at += 0.37;
        (at + phase as f64).sin() as f32
    };
    ArrayD::from_shape_simple_fn(IxDyn(shape), next).into()
}

/// Inputs that are not fed back.
fn given(session: &Session, x: &AnyArray) -> Vec<(&'static str, AnyArray)> {
    let rows = session.inputs().iter().any(|i| i.name() == "rows");
    let rows = rows.then(|| ("rows", AnyArray::from_vec(&[2], vec![0i64, 0]).expect("two")));
    [("x", x.clone())].into_iter().chain(rows).collect()
}

/// A stream that is given its states by hand, as one without bindings is.
struct ByHand<'s> {
    session: &'s Session,
    states: Vec<(&'static str, &'static str, AnyArray)>,
}

impl<'s> ByHand<'s> {
    fn new(case: &Case, session: &'s Session, p: usize) -> ByHand<'s> {
        let shapes = (case.states)(p);
        let state = |((o, i), shape): (&(&'static str, &'static str), Vec<usize>)| {
            (*o, *i, wave(&shape, 0.5))
        };
        ByHand { session, states: case.feeds.iter().zip(shapes).map(state).collect() }
    }

    fn step(&mut self, x: &AnyArray) -> Vec<(String, AnyArray)> {
        let states = self.states.iter().map(|(_, i, a)| (*i, a.clone()));
        let inputs: Vec<_> = states.chain(given(self.session, x)).collect();
        let outputs = self.session.run(inputs).expect("runs");
        for (o, _, a) in &mut self.states {
            *a = outputs.get(o).expect("an output").clone();
        }
        let fed = |name: &str| self.states.iter().any(|(o, _, _)| *o == name);
        outputs.into_iter().filter(|(name, _)| !fed(name)).collect()
    }
}

impl Case {
    fn session(&self, device: &Device) -> Session {
        let model = Model::from_rules(self.text);
        let model = model.unwrap_or_else(|e| panic!("{}: {e}", self.name));
        model.session_on(device).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    fn bound<'s>(&self, session: &'s Session, p: usize) -> Binding<'s> {
        let mut binding = session.bind();
        for ((output, input), shape) in self.feeds.iter().zip((self.states)(p)) {
            binding.feed_back(output, input).expect("a pair");
            binding.set(input, wave(&shape, 0.5)).expect("a state");
        }
        binding
    }

    /// Whether a bound stream is where one by hand is.
    fn same(&self, binding: &Binding<'_>, by_hand: &ByHand<'_>, at: &str) {
        for (_, input, state) in &by_hand.states {
            let bound = binding.get(input).expect("an input").expect("a state");
            assert_eq!(&bound, state, "{}: `{input}` {at}", self.name);
        }
    }
}

/// How many positions each step has.
const STEPS: &[&[usize]] = &[&[1; 40], &[5, 1, 1, 3, 1, 1, 1, 17, 1, 1, 40, 1, 1], &[1, 2]];

#[test]
fn bound_streams_are_runs_that_are_given_their_states() {
    for case in CASES {
        let session = case.session(&Device::cpu().threads(2));
        let appended = session.appended();
        let count = case.feeds.iter().filter(|pair| appended.contains(pair)).count();
        assert_eq!(count, case.appended, "{}: {appended:?}", case.name);
        for p in [0, 1, 2, 7, 16, 31] {
            for steps in STEPS {
                let (mut binding, mut by_hand) =
                    (case.bound(&session, p), ByHand::new(case, &session, p));
                // Doubles at every step.
                let most = if case.text.contains("p + p") { 6 } else { usize::MAX };
                for (i, &s) in steps.iter().enumerate().take(most) {
                    let at = format!("from {p}, step {i} of {s}");
                    let x = wave(&(case.x)(s), i as f32);
                    let outputs = binding.run(given(&session, &x));
                    let outputs = outputs.unwrap_or_else(|e| panic!("{} {at}: {e}", case.name));
                    let wanted = by_hand.step(&x);
                    let outputs: Vec<_> = outputs.into_iter().collect();
                    assert_eq!(outputs, wanted, "{} {at}", case.name);
                    case.same(&binding, &by_hand, &at);
                }
            }
        }
    }
}

#[test]
fn bound_streams_yield_what_the_reference_says() {
    for case in CASES {
        let session = case.session(&Device::cpu().threads(1));
        let reference = case.session(&Device::reference());
        let (mut binding, mut other) = (case.bound(&session, 3), case.bound(&reference, 3));
        for i in 0..5 {
            let x = wave(&(case.x)(1 + i % 2), i as f32);
            let (y, wanted) = (binding.run(given(&session, &x)), other.run(given(&session, &x)));
            let (y, wanted) = (y.expect("runs"), wanted.expect("runs"));
            for (name, _) in wanted.iter() {
                let (y, wanted) = (y.array::<f32>(name), wanted.array::<f32>(name));
                let (y, wanted) = (y.expect("f32"), wanted.expect("f32"));
                assert_eq!(y.shape(), wanted.shape(), "{}", case.name);
                for (a, b) in y.iter().zip(&wanted) {
                    let off = (a - b).abs();
                    assert!(off <= 1e-5 * (1.0 + b.abs()), "{} {i}: {a} is not {b}", case.name);
                }
            }
        }
    }
}

#[test]
fn a_stream_is_cloned_reset_set_and_fails_without_a_trace() {
    for case in CASES.iter().filter(|c| c.appended > 0) {
        let session = case.session(&Device::cpu().threads(1));
        let x = |i: usize| wave(&(case.x)(1), i as f32);
        let (mut binding, mut by_hand) = (case.bound(&session, 5), ByHand::new(case, &session, 5));
        for i in 0..3 {
            binding.run(given(&session, &x(i))).expect("runs");
            by_hand.step(&x(i));
        }
        // Two branches, and what was read before them.
        let seen = binding.get(case.feeds[0].1).expect("an input").expect("a state");
        let copy = seen.tensor().bytes().to_vec();
        let mut branch = binding.clone();
        let mut branch_by_hand = ByHand { session: &session, states: by_hand.states.clone() };
        for i in 10..14 {
            let (own, other) =
                (binding.run(given(&session, &x(i))), branch.run(given(&session, &x(2 * i))));
            let (own, other) = (own.expect("runs"), other.expect("runs"));
            assert_eq!(own.into_iter().collect::<Vec<_>>(), by_hand.step(&x(i)), "{}", case.name);
            let wanted = branch_by_hand.step(&x(2 * i));
            assert_eq!(other.into_iter().collect::<Vec<_>>(), wanted, "{}", case.name);
            case.same(&binding, &by_hand, "of a branch");
            case.same(&branch, &branch_by_hand, "of the other branch");
        }
        assert_eq!(seen.tensor().bytes()[..], copy[..], "{}", case.name);
        // An input that does not fit changes nothing.
        let error = binding.run(given(&session, &wave(&[1], 0.0))).expect_err("does not fit");
        assert_eq!(error.kind(), ErrorKind::Input);
        binding.run([] as [(&str, AnyArray); 0]).expect_err("an input is missing");
        case.same(&binding, &by_hand, "after an error");
        // A shorter state, then none.
        let start = (case.states)(2);
        for ((_, input), shape) in case.feeds.iter().zip(&start) {
            binding.set(input, wave(shape, 0.5)).expect("fits");
        }
        let mut short = ByHand::new(case, &session, 2);
        for i in 0..3 {
            let y = binding.run(given(&session, &x(i))).expect("runs");
            assert_eq!(y.into_iter().collect::<Vec<_>>(), short.step(&x(i)), "{}", case.name);
        }
        case.same(&binding, &short, "after a shorter state");
        binding.reset();
        assert_eq!(binding.get(case.feeds[0].1).expect("an input"), None);
        let error = binding.run(given(&session, &x(0))).expect_err("no state");
        assert!(error.message().contains("is missing"), "{error}");
    }
}

/// A step whose operator fails after the cache was written: an index is out of range.
const FAILS: &str = "
def step(x: f32[1, 4], row: i64[1], past: f32[p, 4]) -> y: f32[1, 4], all: f32[p + 1, 4]
  let k = concat(past, x, axis=0)
  = (gather(k, row, axis=0), k)
";

#[test]
fn an_operator_that_fails_leaves_the_state() {
    let session = Model::from_rules(FAILS).expect("it is read").session().expect("a session");
    let mut binding = session.bind();
    assert_eq!(binding.feed_back_appended(), [("all".to_string(), "past".to_string())]);
    binding.set("past", wave(&[3, 4], 0.0)).expect("fits");
    let row = |n: i64| AnyArray::from_vec(&[1], vec![n]).expect("one");
    let x = |i: f32| wave(&[1, 4], i);
    for i in 0..4 {
        binding.run([("x", x(1.0)), ("row", row(0))]).expect("runs");
        let before = binding.get("past").expect("an input");
        let error = binding.run([("x", x(2.0)), ("row", row(99))]).expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::Run, "{error}");
        assert_eq!(binding.get("past").expect("an input"), before, "{i}");
        let y = binding.run([("x", x(3.0)), ("row", row(4 + 2 * i))]).expect("runs");
        assert_eq!(y["y"], x(3.0), "{i}");
    }
}

#[test]
fn nothing_of_a_state_is_copied_while_it_has_room() {
    let case = &CASES[0];
    let session = case.session(&Device::cpu().threads(1));
    let mut binding = case.bound(&session, 0);
    let mut places = std::collections::BTreeSet::new();
    // With one line the valid part is read where it lies.
    let rows = &CASES[3];
    let table = rows.session(&Device::cpu().threads(1));
    let mut stream = rows.bound(&table, 2);
    for i in 0..1000 {
        binding.run([("x", wave(&(case.x)(1), i as f32))]).expect("runs");
        stream.run(given(&table, &wave(&(rows.x)(1), i as f32))).expect("runs");
        let now = stream.get("past").expect("an input").expect("a state");
        places.insert(now.tensor().bytes().as_ptr() as usize);
    }
    assert!(places.len() <= 10, "{} places in 1000 steps", places.len());
    // The arena and results are those of a step: the cache is the binding's.
    let kept = session.allocated().expect("the CPU keeps buffers");
    assert!(kept.results < 64 << 10, "{} bytes", kept.results);
}

#[test]
fn outputs_are_written_to_arrays_of_the_caller() {
    let case = &CASES[3];
    let session = case.session(&Device::cpu().threads(1));
    let (mut binding, mut by_hand) = (case.bound(&session, 2), ByHand::new(case, &session, 2));
    for i in 0..4 {
        let x = wave(&[2, 8], i as f32);
        let (mut y, mut also) =
            (ArrayD::<f32>::zeros(vec![2, 4 + 2 * i]), ArrayD::<f32>::zeros(vec![4 + 2 * i, 8]));
        let arrays = [
            ("y", ArrayMut::new(y.view_mut()).expect("dense")),
            ("also", ArrayMut::new(also.view_mut()).expect("dense")),
        ];
        let others = binding.run_into(given(&session, &x), arrays).expect("runs");
        assert_eq!(others.names().collect::<Vec<_>>(), ["first"]);
        let wanted = by_hand.step(&x);
        let written = [AnyArray::from(y), others["first"].clone(), AnyArray::from(also)];
        for ((name, wanted), written) in wanted.into_iter().zip(written) {
            assert_eq!(written, wanted, "{name} {i}");
        }
    }
    let mut small = ArrayD::<f32>::zeros(vec![2, 3]);
    let x = wave(&[2, 8], 0.0);
    let mut refused = |name: &str, x: &AnyArray| {
        let array = ArrayMut::new(small.view_mut()).expect("dense");
        binding.run_into(given(&session, x), [(name, array)]).expect_err("refused").to_string()
    };
    let wanted = [
        ("y", "output `y` is f32[2, 12], the array for it f32[2, 3]"),
        ("all", "output `all` is fed back"),
        ("z", "the model has no output `z`"),
    ];
    for (name, message) in wanted {
        let refused = refused(name, &x);
        assert!(refused.contains(message), "{name}: {refused}");
    }
    case.same(&binding, &by_hand, "after outputs that do not fit");
    let mut turned = ArrayD::<f32>::zeros(vec![2, 3]);
    turned.swap_axes(0, 1);
    assert!(ArrayMut::new(turned.view_mut()).is_err());
}

#[test]
fn what_does_not_fit_a_stream_is_named() {
    let text = "
def step(x: f32[b, s], mask: f32[b, p], past: f32[b, p], h: f32[b, 4]) -> y: f32[b, p], all: f32[b, p + s], g: f32[b, 5], d: f64[b, p + s]
  let k = concat(past, x, axis=1)
  = (past * mask, k, concat(h, slice(h, start=[0, 0], size=[b, 1], step=[1, 1]), axis=1), cast(k, to=f64))
";
    let session = Model::from_rules(text).expect("it is read").session().expect("a session");
    let mut binding = session.bind();
    let mut errors = vec![
        binding.feed_back("none", "past").expect_err("no output"),
        binding.feed_back("all", "none").expect_err("no input"),
        binding.feed_back("g", "h").expect_err("another extent"),
        binding.feed_back("d", "past").expect_err("another type"),
        binding.limit("past", 4).expect_err("not fed"),
    ];
    binding.feed_back("all", "past").expect("a pair");
    binding.limit("past", 4).expect("it grows");
    binding.set("h", wave(&[2, 4], 0.0)).expect("fits");
    binding.set("past", wave(&[2, 3], 0.0)).expect("fits");
    errors.push(binding.set("past", wave(&[2], 0.0)).expect_err("another rank"));
    let run = |binding: &mut Binding<'_>, x: &[usize], mask: &[usize]| {
        binding.run([("x", wave(x, 0.0)), ("mask", wave(mask, 0.0))])
    };
    errors.push(run(&mut binding, &[3, 1], &[3, 3]).expect_err("another batch"));
    errors.push(run(&mut binding, &[2, 1], &[2, 4]).expect_err("another length"));
    run(&mut binding, &[2, 1], &[2, 3]).expect("runs");
    errors.push(run(&mut binding, &[2, 1], &[2, 4]).expect_err("beyond the limit"));
    let wanted = [
        "the model has no output `none`",
        "the model has no input `none`",
        "output `g` is f32[b, 5], and input `h` is f32[b, 4]",
        "output `d` is f64[b, ",
        "input `past` does not grow from run to run",
        "input `past`: expected f32[b, p], found f32[2]",
        "`b` is 3 in input `x` and 2 in axis 0",
        "`p` is 4 in input `mask` and 3 in axis 1",
        "input `past` would have 5 along axis 1, its limit is 4",
    ];
    assert_eq!(errors.len(), wanted.len());
    for (error, wanted) in errors.iter().zip(wanted) {
        assert!(error.to_string().contains(wanted), "{wanted}: {error}");
    }
}
