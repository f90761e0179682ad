//! Whole programs through the pipeline.

use mlc_backends::Backend;
use mlc_backends::reference::Reference;
use mlc_cpu::Cpu;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, Program, Tensor, Type};
use mlc_dsl::plan::faults;
use mlc_explore::explore;
use mlc_extract::cost::target::TargetPrices;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::Style;
use mlc_fuzz::oracle::examine;
use mlc_fuzz::{Subject, Verdict};
use mlc_proptests::{library, optimised, options, program, programs, seeded};
use mlc_rewrite::pipeline::selfcheck;
use mlc_rewrite::show;
use mlc_verify::random_inputs;
use proptest::prelude::*;

proptest! {
    #![proptest_config(seeded(64))]

    #[test]
    fn optimised_programs_compute_the_same(seed in any::<u64>()) {
        let p = program(seed, 12);
        let optimise = |p: &_| optimised(p, 1_000, 4).map(|o| o.program);
        let run = |p: &_, i: &[_]| {
            selfcheck::run(p, library(), i, 1).map_err(|e| e.to_string())
        };
        let subject = Subject { library: library(), optimise: &optimise, run: &run };
        let verdict = examine(&subject, &p, &[Style::Normal, Style::Whole], seed);
        if let Verdict::Differs(f) = verdict {
            let text = show::program(&p, library(), "case");
            prop_assert!(false, "{:?} {:?}: {}\n{}", f.stage, f.style, f.message, text);
        }
    }
}

proptest! {
    #![proptest_config(seeded(48))]

    #[test]
    fn what_is_launched_is_the_plan(seed in any::<u64>()) {
        let p = program(seed, 14);
        let target = library().target("cpu").expect("shipped");
        let as_read = select_kernels(p.clone(), library(), target);
        let optimised = optimised(&p, 500, 3).map(|o| o.plan).ok();
        for plan in std::iter::once(as_read).chain(optimised) {
            prop_assert_eq!(faults(&plan, library()), vec![]);
            let Some(inputs) = random_inputs::inputs(&plan.program, library(), seed) else { continue };
            let watched = Cpu::new(1).watched(&plan, library().clone());
            let watched = match watched {
                Ok(watched) => watched,
                Err(e) => {
                    // Constants that are indices may name what is not there.
                    let session = Reference::default().compile(&plan, library().clone());
                    let value = session.and_then(|s| s.run(&inputs));
                    prop_assert!(value.is_err(), "the reference interpreter has a value: {}", e);
                    continue;
                }
            };
            // Nothing is launched where shapes depend on data.
            let Ok(launched) = watched.kernels(&inputs) else { continue };
            if !launched.is_empty() && !plan.memory.nominal {
                prop_assert_eq!(launched, plan.launches().collect::<Vec<_>>());
            }
        }
    }
}

proptest! {
    #![proptest_config(seeded(24))]

    #[test]
    fn exploration_keeps_to_its_node_limit(p in programs(14), limit in 50usize..2000) {
        let laws: Vec<u32> = (0..library().laws.len() as u32).collect();
        let none = explore(library().clone(), p.clone(), &[], &options(limit, 4).limits);
        let some = explore(library().clone(), p, &laws, &options(limit, 4).limits);
        // What the program itself takes is there before any limit.
        let most = limit.max(none.size().0);
        prop_assert!(some.size().0 <= most, "{} nodes, {} allowed", some.size().0, most);
        prop_assert!(some.sizes.iter().all(|s| *s <= most), "{:?}, {} allowed", some.sizes, most);
    }

    #[test]
    fn the_result_is_never_dearer_than_the_source(p in programs(14)) {
        let o = optimised(&p, 500, 3);
        prop_assume!(o.is_ok());
        let report = o.map(|o| o.report).unwrap_or_default();
        prop_assert!(report.cost_after <= report.cost_before * (1.0 + 1e-9),
            "{} became {}\n{}", report.cost_before, report.cost_after, show::program(&p, library(), "case"));
    }

    #[test]
    fn extraction_is_never_above_the_incumbent(p in programs(14)) {
        let o = options(500, 3);
        let laws: Vec<u32> = (0..library().laws.len() as u32).collect();
        let target = library().target("cpu").expect("shipped");
        let prices = TargetPrices::new(library(), target, None);
        let mut explored = explore(library().clone(), p.clone(), &laws, &o.limits);
        let out = explored.extract(&prices, &mlc_extract::GreedyDag::default());
        let out = out.map_err(|e| TestCaseError::fail(format!("{e}\n{}", show::program(&p, library(), "p"))))?;
        if let Some(incumbent) = out.source_cost {
            prop_assert!(out.cost <= incumbent, "{} above {}", out.cost, incumbent);
        }
        prop_assert!(explored.prove(&out).is_some(), "no proof");
    }

    #[test]
    fn the_same_program_gives_the_same_text(p in programs(14)) {
        let text = || {
            optimised(&p, 800, 4).map(|o| show::program(&o.program, library(), "p"))
        };
        prop_assert_eq!(text(), text());
    }

    #[test]
    fn optimising_twice_costs_no_more(p in programs(10)) {
        let once = optimised(&p, 500, 3);
        prop_assume!(once.is_ok());
        let Ok(once) = once else { return Ok(()) };
        let twice = optimised(&once.program, 500, 3);
        let cost = twice.as_ref().map(|t| t.report.cost_after).map_err(Clone::clone);
        let text = show::program(&once.program, library(), "once");
        prop_assert!(cost.is_ok(), "{:?} on\n{}", cost, text);
        prop_assert!(cost.is_ok_and(|c| c <= once.report.cost_after * (1.0 + 1e-9)),
            "{} became {:?}\n{}", once.report.cost_after, twice.map(|t| t.report.cost_after), text);
    }
}

#[test]
fn generated_programs_are_deterministic_and_not_trivial() {
    let text = |seed| show::program(&program(seed, 25), library(), "p");
    assert!((0..20).all(|s| text(s) == text(s)));
    let operators: usize = (0..50).map(|s| mlc_fuzz::shrink::operators(&program(s, 25))).sum();
    assert!(operators > 50 * 4, "{operators} operators in 50 programs");
}

/// A program of one input and these operators, each applied to the result of the one before; all results are outputs.
fn chain(shape: &[usize], operators: &[&str]) -> Program {
    let mut b = Builder::new(library());
    let mut v = b.input("x", Type::known(DType::F32, shape));
    let mut outputs = vec![];
    for (i, name) in operators.iter().enumerate() {
        v = b.apply(library().find(name).expect("shipped"), &[], &[v]).expect("types")[0];
        outputs.push((format!("y{i}"), v));
    }
    b.finish(outputs)
}

/// The same, of which other kernels read all results.
fn with_readers(operators: &[&str]) -> Program {
    let mut b = Builder::new(library());
    let found = |name: &str| library().find(name).expect("shipped");
    let mut v = b.input("x", Type::known(DType::F32, &[2, 3, 4]));
    let mut sum = None;
    for name in operators {
        v = b.apply(found(name), &[], &[v]).expect("types")[0];
        // Changes of layout twice, so that all have one shape.
        let once = b.apply(found("channels_first"), &[], &[v]).expect("types")[0];
        let twice = b.apply(found("channels_last"), &[], &[once]).expect("types")[0];
        sum = Some(match sum {
            None => twice,
            Some(s) if b.ty(s) == b.ty(twice) => {
                b.apply(found("add"), &[], &[s, twice]).expect("types")[0]
            }
            Some(s) => s,
        });
    }
    b.finish(vec![("y".into(), sum.expect("an operator"))])
}

#[test]
fn values_that_are_one_in_a_kernel_leave_it_by_either_name() {
    let target = library().target("cpu").expect("shipped");
    for operators in [
        &["tan", "elementwise"][..],
        &["tan", "elementwise", "elementwise"],
        &["tan", "elementwise", "exp"],
        &["elementwise"],
        &["channels_last", "elementwise"],
        &["channels_last", "elementwise", "elementwise", "tan"],
    ] {
        let whole = chain(&[2, 3, 4], operators);
        // All outputs, and the last one alone.
        let last =
            Program { outputs: whole.outputs[operators.len() - 1..].to_vec(), ..whole.clone() };
        for p in [whole, last, with_readers(operators)] {
            let plan = select_kernels(p.clone(), library(), target);
            let inputs = random_inputs::inputs(&p, library(), 1).expect("known extents");
            let of = |backend: &dyn Backend| {
                backend
                    .compile(&plan, library().clone())
                    .and_then(|e| e.run(&inputs))
                    .expect("runs")
            };
            let (got, wanted) = (of(&Cpu::new(1)), of(&Reference::default()));
            for (got, wanted) in got.iter().zip(&wanted) {
                let apart = selfcheck::difference(wanted, got).expect("of one type");
                assert!(apart < 1e-6, "{operators:?}: {apart:.1e}");
            }
        }
    }
}

/// Holds a program that is optimised after so many rounds, and more, against itself.
#[track_caller]
fn agrees_after_rounds(p: &Program) {
    for rounds in 1..7 {
        let optimise = |p: &_| optimised(p, 1_000, rounds).map(|o| o.program);
        let run = |p: &_, i: &[_]| selfcheck::run(p, library(), i, 1).map_err(|e| e.to_string());
        let subject = Subject { library: library(), optimise: &optimise, run: &run };
        if let Verdict::Differs(f) = examine(&subject, p, &[Style::Normal], 1) {
            panic!("after {rounds} rounds, {:?}: {}", f.stage, f.message);
        }
    }
}

#[test]
fn a_mean_of_no_elements_is_no_multiple_of_their_sum() {
    let mut b = Builder::new(library());
    let found = |name: &str| library().find(name).expect("shipped");
    let ints = |l: &[i64]| Some(Attr::Ints(l.iter().map(|&v| Extent::from(v)).collect()));
    let x = b.input("x", Type::known(DType::F32, &[0]));
    let attrs = [ints(&[2]), ints(&[3, 5, 0])];
    let wide = b.apply(found("broadcast"), &attrs, &[x]).expect("types")[0];
    let mean = b.apply(found("globalpool"), &[], &[wide]).expect("types")[0];
    agrees_after_rounds(&b.finish(vec![("y".into(), mean)]));
}

/// Numbers under an operator with a unit are merged as it says, not as a sum's are.
#[test]
fn numbers_of_bits_do_not_add_up() {
    for (name, bits) in [("bitwise_xor", [2.0, 2.0]), ("bitwise_or", [1.0, 3.0])] {
        let mut b = Builder::new(library());
        let found = |name: &str| library().find(name).expect("shipped");
        let x = b.input("x", Type::known(DType::I64, &[]));
        let [inner, outer] = bits.map(|v| b.constant(Tensor::from_f64(DType::I64, vec![], &[v])));
        let nothing = || Some(Attr::Ints(vec![]));
        let padded = b.apply(found("pad"), &[nothing(), nothing()], &[x, x]).expect("types")[0];
        let once = b.apply(found(name), &[], &[padded, inner]).expect("types")[0];
        let twice = b.apply(found(name), &[], &[outer, once]).expect("types")[0];
        agrees_after_rounds(&b.finish(vec![("y".into(), twice)]));
    }
}

/// What reaches zeros of both signs, all infinities and quotients of them by constants alone.
#[test]
fn constants_that_hinge_on_the_sign_of_a_zero_are_not_taken_for_others() {
    let mut b = Builder::new(library());
    let found = |name: &str| library().find(name).expect("shipped");
    let none = b.constant(Tensor::from_f64(DType::F32, vec![6, 6, 0, 4], &[]));
    let axis = [Some(Attr::Int(Extent::from(2)))];
    let shares = b.apply(found("softmax"), &axis, &[none]).expect("types")[0];
    let two = |a: i64, b: i64| Some(Attr::Ints(vec![Extent::from(a), Extent::from(b)]));
    let window = [two(2, 1), two(1, 3), two(1, 0), two(1, 0), two(1, 2)];
    let pooled = b.apply(found("sumpool"), &window, &[shares]).expect("types")[0];
    agrees_after_rounds(&b.finish(vec![("y".into(), pooled)]));
}
