//! Search with a proof against brute force, on graphs with cycles, several roots and shared nodes.

use crate::graphs::{brute_force, close, dense, views};
use mlc_extract::{
    Anytime, ClassId, Cost, EGraphView, EGraphViewBuilder, Exact, Extraction, Extractor, GreedyDag,
    GreedyTree,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Computable graphs of each kind that are solved; dense ones take brute force long.
const CASES: usize = 8_800;
const DENSE: usize = 1_200;

/// Search that starts from trees and has to find the rest by itself.
const FROM_TREES: Exact = Exact { steps: u64::MAX, start: 0 };

const fn anytime(steps: u64, threads: usize) -> Anytime {
    Anytime { steps, threads }
}

/// A long graph: operands lie near their users, above or below, so that regions meet only at few classes; too large for
/// brute force.
fn long() -> impl Strategy<Value = EGraphView> {
    const LENGTH: u32 = 60;
    let cost = prop_oneof![Just(0.0), Just(1.0), (0..400_u32).prop_map(|c| f64::from(c) / 100.0)];
    let node = (prop::collection::vec(0..9_u32, 1..=3), cost);
    prop::collection::vec((prop::collection::vec(node, 1..=4), 0..8_u32), LENGTH as usize).prop_map(
        |rows| {
            let mut builder = EGraphViewBuilder::new();
            let ids: Vec<ClassId> = rows.iter().map(|_| builder.add_class()).collect();
            for (place, (rows, leaf)) in (0..).zip(&rows) {
                let class = ids[place as usize];
                for (operands, cost) in rows {
                    // Six below to two above.
                    let near =
                        |o: &u32| ClassId::new((place + o).saturating_sub(6).min(LENGTH - 1));
                    let children: Vec<ClassId> = operands.iter().map(near).collect();
                    builder.add_node(class, &children, Cost::new(*cost));
                }
                let below: &[ClassId] = if *leaf == 0 {
                    &[]
                } else {
                    &ids[(place as usize).saturating_sub(1)..place as usize]
                };
                builder.add_node(class, below, Cost::new(f64::from(3 + leaf)));
            }
            builder.add_root(ids[LENGTH as usize - 1]);
            builder.build().expect("a sound view")
        },
    )
}

/// The first computable graphs of a fixed sequence, with the price of their optimum.
fn cases(
    count: usize,
    strategy: &impl Strategy<Value = EGraphView>,
    mut each: impl FnMut(&EGraphView, f64),
) {
    let mut runner = TestRunner::deterministic();
    let mut done = 0;
    while done < count {
        let view = strategy.new_tree(&mut runner).expect("a view").current();
        if let Some((least, _)) = brute_force(&view) {
            done += 1;
            each(&view, least);
        }
    }
}

#[track_caller]
fn run(extractor: &dyn Extractor, view: &EGraphView) -> Extraction {
    let found = extractor.search(view, None, &|| false).expect("computable");
    assert_eq!(found.solution.validate(view), Ok(()));
    assert_eq!(found.cost, found.solution.dag_cost(view));
    found
}

#[track_caller]
fn solved(extractor: &dyn Extractor, view: &EGraphView, least: f64) {
    let found = run(extractor, view);
    assert!(close(found.cost.seconds(), least), "{} against {least}", found.cost.seconds());
    assert!(found.proven(), "bounded by {} only", found.lower_bound.seconds());
    assert_eq!(found.gap(), 0.0);
}

#[test]
fn every_small_graph_is_solved_and_proven() {
    let check = |view: &EGraphView, least: f64| {
        solved(&FROM_TREES, view, least);
        solved(&Exact::default(), view, least);
        solved(&anytime(u64::MAX, 1), view, least);
    };
    cases(CASES, &views(), check);
    cases(DENSE, &dense(), check);
}

#[test]
fn larger_graphs_have_one_optimum_from_wherever_search_starts() {
    let mut runner = TestRunner::deterministic();
    let mut gains = 0;
    for _ in 0..200 {
        let view = long().new_tree(&mut runner).expect("a view").current();
        let found = run(&FROM_TREES, &view);
        assert!(found.proven());
        let least = found.cost.seconds();
        solved(&Exact::default(), &view, least);
        solved(&anytime(u64::MAX, 1), &view, least);
        let greedy = run(&GreedyDag::default(), &view);
        assert!(greedy.cost.seconds() >= least * (1.0 - 1e-9));
        assert!(greedy.lower_bound.seconds() <= least * (1.0 + 1e-9));
        let tree = GreedyTree.extract(&view, None).expect("computable");
        gains += u32::from(!close(tree.dag_cost(&view).seconds(), least));
    }
    assert!(gains > 50, "trees miss the optimum of {gains} only");
}

#[test]
fn a_budget_leaves_a_program_and_a_bound_around_the_optimum() {
    let mut steps = 0;
    let mut open = 0;
    cases(400, &dense(), |view, least| {
        steps = (steps + 37) % 4_000;
        let tree = run(&GreedyTree, view);
        let greedy = run(&GreedyDag { steps }, view);
        let exact = run(&Exact { steps, start: 0 }, view);
        let near = run(&anytime(steps, 1), view);
        for found in [&tree, &greedy, &exact, &near] {
            let (low, high) = (found.lower_bound.seconds(), found.cost.seconds());
            assert!(low <= least * (1.0 + 1e-9), "bound {low} above the optimum {least}");
            assert!(high >= least * (1.0 - 1e-9), "cost {high} below the optimum {least}");
            assert!((0.0..=1.0).contains(&found.gap()));
            open += usize::from(!found.proven());
        }
        assert!(exact.cost <= tree.cost && near.cost <= greedy.cost);
    });
    assert!(open > 100, "{open} searches ended early");
}

#[test]
fn incumbents_are_bettered_or_kept() {
    cases(300, &dense(), |view, least| {
        let tree = GreedyTree.extract(view, None).expect("computable");
        for extractor in [&FROM_TREES as &dyn Extractor, &anytime(20_000, 1)] {
            let found = extractor.search(view, Some(&tree), &|| false).expect("computable");
            assert!(found.cost <= tree.dag_cost(view));
            if close(tree.dag_cost(view).seconds(), least) {
                assert_eq!(found.solution, tree, "an optimal incumbent stays");
            }
        }
    });
}

#[test]
fn threads_change_nothing() {
    cases(300, &dense(), |view, _| {
        for steps in [500, 5_000, u64::MAX] {
            assert_eq!(run(&anytime(steps, 1), view), run(&anytime(steps, 2), view));
        }
    });
}

#[test]
fn a_search_that_is_stopped_at_once_gives_the_greedy_answer() {
    cases(100, &dense(), |view, least| {
        let found = Anytime::default().search(view, None, &|| true).expect("computable");
        let greedy = GreedyDag { steps: Anytime::default().steps }.extract(view, None);
        assert_eq!(Ok(found.solution), greedy);
        assert!(found.lower_bound.seconds() <= least * (1.0 + 1e-9));
    });
}
