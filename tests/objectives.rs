//! `--objective`: each objective's own figure is never worse than under the others or than that of the program as read; and
//! what is planned for memory is what the CPU backend allocates.

use mlc_backends::Backend;
use mlc_cpu::Cpu;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Program, Tensor, Type, Value};
use mlc_dsl::library::Library;
use mlc_explore::Limits;
use mlc_onnx::{import, read_onnx};
use mlc_rewrite::pipeline::evaluation::{figure, stored};
use mlc_rewrite::pipeline::options::Objective;
use mlc_rewrite::pipeline::selfcheck;
use mlc_rewrite::pipeline::{self, Optimized, Options};
use mlc_rewrite::stdlib;
use mlc_verify::random_inputs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn options(objective: Objective) -> Options {
    Options {
        objective,
        limits: Limits {
            nodes: 8_000,
            rounds: 6,
            time: Duration::from_secs(60),
            threads: 1,
            ..Limits::default()
        },
        self_check: false,
        threads: 2,
        ..Options::default()
    }
}

fn library() -> Arc<Library> {
    stdlib::shipped()
}

/// A program under construction.
struct Graph<'a> {
    library: &'a Library,
    b: Builder<'a>,
    made: u64,
}

impl<'a> Graph<'a> {
    fn new(library: &'a Library) -> Graph<'a> {
        Graph { library, b: Builder::new(library), made: 0 }
    }

    fn input(&mut self, shape: &[usize]) -> Value {
        self.b.input("x", Type::known(DType::F32, shape))
    }

    fn weight(&mut self, shape: &[usize]) -> Value {
        self.made += 1;
        let n: usize = shape.iter().product();
        let value = |i: usize| ((i as u64 * 37 + self.made * 11) % 23) as f64 / 23.0 - 0.4;
        let values: Vec<f64> = (0..n).map(value).collect();
        self.b.constant(Tensor::from_f64(DType::F32, shape.to_vec(), &values))
    }

    fn apply(&mut self, op: &str, attrs: &[Attr], args: &[Value]) -> Value {
        let call = self.library.find(op).expect("declared");
        let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
        self.b.apply(call, &attrs, args).expect("types")[0]
    }
}

/// Two thin factors: their product is one kernel less and twice the bytes.
fn factors(library: &Library) -> Program {
    let mut g = Graph::new(library);
    let x = g.input(&[1, 64]);
    let (a, b) = (g.weight(&[64, 16]), g.weight(&[16, 64]));
    let y = g.apply("matmul", &[], &[x, a]);
    let y = g.apply("matmul", &[], &[y, b]);
    g.b.finish(vec![("y".into(), y)])
}

/// Wide products, each reduced at once: one product for all keeps all results alive.
fn branches(library: &Library) -> Program {
    let mut g = Graph::new(library);
    let x = g.input(&[4, 16]);
    let mut outputs = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let w = g.weight(&[16, 256]);
        let y = g.apply("matmul", &[], &[x, w]);
        outputs.push((name.to_string(), g.apply("max", &[Attr::ints([1])], &[y])));
    }
    g.b.finish(outputs)
}

/// A constant sum that is read twice, once repeated.
fn repeated(library: &Library) -> Program {
    let mut g = Graph::new(library);
    let x = g.input(&[64, 128]);
    let (a, b) = (g.weight(&[128]), g.weight(&[128]));
    let s = g.apply("add", &[], &[a, b]);
    let wide = g.b.broadcast(s, &[1], &[64.into(), 128.into()]).expect("broadcasts");
    let y = g.apply("mul", &[], &[x, wide]);
    let y = g.apply("exp", &[], &[y]);
    let y = g.apply("add", &[], &[y, wide]);
    g.b.finish(vec![("y".into(), y)])
}

fn shipped(library: &Library) -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/squeezenet1_1.onnx");
    import(read_onnx(&path).expect("reads"), library).expect("imports").program
}

type Make = fn(&Library) -> Program;

const PROGRAMS: &[(&str, Make)] = &[
    ("factors", factors),
    ("branches", branches),
    ("repeated", repeated),
    ("the shipped model", shipped),
];

const ALL: [Objective; 3] = [Objective::Latency, Objective::Memory, Objective::Size];

fn optimized(program: &Program, library: &Arc<Library>, objective: Objective) -> Optimized {
    let o = pipeline::optimize(program.clone(), library, &options(objective)).expect("optimises");
    let error = selfcheck::compare(&o.source, &o.program, library, 1, 2).expect("agrees");
    assert!(error < 1e-3, "{objective:?}: {error}");
    o
}

#[test]
fn each_objective_is_best_at_its_own_figure() {
    let library = library();
    for (name, make) in PROGRAMS {
        let program = make(&library);
        let results = ALL.map(|objective| optimized(&program, &library, objective));
        for (own, wanted) in results.iter().zip(ALL) {
            let figure = |o: &Optimized| figure(wanted, &o.plan, o.plan.cost, stored(&o.program));
            assert_eq!(own.report.objective_after, figure(own), "{name}: {wanted:?} is reported");
            let before = own.report.objective_before;
            assert!(figure(own) <= before, "{name}: {wanted:?} {} > {before}", figure(own));
            for (other, objective) in results.iter().zip(ALL) {
                let (a, b) = (figure(own), figure(other));
                assert!(a <= b, "{name}: {wanted:?} {a}, but {b} under {objective:?}");
            }
        }
    }
}

#[test]
fn objectives_choose_differently() {
    let library = library();
    let program = factors(&library);
    let weights = |o| stored(&optimized(&program, &library, o).program);
    assert_eq!(weights(Objective::Size), 4 * 2 * 64 * 16);
    assert_eq!(weights(Objective::Latency), 4 * 64 * 64);
    let program = branches(&library);
    let peak = |o| optimized(&program, &library, o).plan.memory.peak();
    let (memory, latency) = (peak(Objective::Memory), peak(Objective::Latency));
    assert!(memory < latency, "{memory} and {latency}");
}

#[test]
fn what_is_repeated_is_stored_once() {
    let library = library();
    for objective in ALL {
        let o = optimized(&repeated(&library), &library, objective);
        assert_eq!(stored(&o.program), 4 * 128, "{objective:?}");
    }
}

#[test]
fn planned_memory_is_what_the_cpu_allocates() {
    let library = library();
    for (name, make) in PROGRAMS {
        let program = make(&library);
        let inputs = random_inputs::inputs(&program, &library, 3).expect("known sizes");
        for objective in ALL {
            let plan = optimized(&program, &library, objective).plan;
            let executable = Cpu::new(2).compile(&plan, library.clone()).expect("compiles");
            for _ in 0..3 {
                executable.run(&inputs).expect("runs");
            }
            let used = executable.allocated().expect("the CPU keeps buffers");
            let m = &plan.memory;
            assert_eq!((used.arena, used.results), (m.arena, m.results), "{name}, {objective:?}");
            assert!(m.least <= m.alive && m.alive <= m.peak(), "{name}, {objective:?}");
            assert_eq!(plan.peak_bytes(), Some(used.arena + used.results));
        }
    }
}
