//! Tables: what a view refuses, what a solution costs, which moves extraction must find.

use mlc_extract::{
    Anytime, ClassId, Cost, EGraphView, EGraphViewBuilder, EGraphViewError, Exact, ExtractError,
    Extractor, GreedyDag, GreedyTree, NodeId, Solution, SolutionError,
};

/// One of each kind.
fn all() -> [Box<dyn Extractor>; 4] {
    let exact = Exact { steps: u64::MAX, start: 0 };
    [
        Box::new(GreedyTree),
        Box::new(GreedyDag::default()),
        Box::new(Anytime::default()),
        Box::new(exact),
    ]
}

/// Class, children, cost.
type Row = (u32, &'static [u32], f64);

fn builder(classes: u32, rows: &[Row], roots: &[u32]) -> EGraphViewBuilder {
    let mut builder = EGraphViewBuilder::new();
    for _ in 0..classes {
        builder.add_class();
    }
    for &(class, children, cost) in rows {
        let children: Vec<ClassId> = children.iter().copied().map(ClassId::new).collect();
        builder.add_node(ClassId::new(class), &children, Cost::new(cost));
    }
    for &root in roots {
        builder.add_root(ClassId::new(root));
    }
    builder
}

fn view(classes: u32, rows: &[Row], roots: &[u32]) -> EGraphView {
    builder(classes, rows, roots).build().expect("a sound view")
}

fn solution(choice: &[Option<u32>]) -> Solution {
    Solution::new(choice.iter().map(|node| node.map(NodeId::new)).collect())
}

#[track_caller]
fn cost_of(extractor: &dyn Extractor, view: &EGraphView) -> f64 {
    let solution = extractor.extract(view, None).expect("a computable view");
    solution.validate(view).expect("a valid answer");
    solution.dag_cost(view).seconds()
}

#[test]
fn a_view_refuses_what_does_not_exist() {
    let (class, node) = (ClassId::new, NodeId::new);
    let refusal = |builder: EGraphViewBuilder| builder.build().expect_err("an unsound view");
    assert_eq!(
        refusal(builder(1, &[(1, &[], 0.0)], &[])),
        EGraphViewError::NoClass { node: node(0), class: class(1) }
    );
    assert_eq!(
        refusal(builder(1, &[(0, &[7], 0.0)], &[])),
        EGraphViewError::NoChild { node: node(0), child: class(7) }
    );
    assert_eq!(refusal(builder(1, &[], &[3])), EGraphViewError::NoRoot { root: class(3) });
    for cost in [-1.0, f64::INFINITY, f64::NAN] {
        assert_eq!(
            refusal(builder(1, &[(0, &[], cost)], &[])),
            EGraphViewError::BadCost { node: node(0), cost: Cost::new(cost) }
        );
    }
    let mut unknown = builder(1, &[(0, &[], 0.0)], &[]);
    unknown.add_bundle([node(0), node(1)]);
    assert_eq!(refusal(unknown), EGraphViewError::NoBundleNode { bundle: 0, node: node(1) });
    let mut clash = builder(1, &[(0, &[], 0.0), (0, &[], 1.0)], &[]);
    clash.add_bundle([node(0), node(1)]);
    assert_eq!(refusal(clash), EGraphViewError::BundleClash { bundle: 0, class: class(0) });
}

#[test]
fn negative_zero_is_zero() {
    assert_eq!(Cost::new(-0.0), Cost::ZERO);
    assert!(Cost::new(1.0) > Cost::new(0.5));
}

#[test]
fn a_view_answers_for_what_was_added() {
    let view = view(3, &[(2, &[0, 0], 1.0), (0, &[], 2.0), (2, &[], 3.0)], &[2]);
    assert_eq!((view.class_count(), view.node_count()), (3, 3));
    assert_eq!(view.nodes(ClassId::new(2)), [NodeId::new(0), NodeId::new(2)]);
    assert_eq!(view.nodes(ClassId::new(1)), []);
    assert_eq!(view.children(NodeId::new(0)), [ClassId::new(0), ClassId::new(0)]);
    assert_eq!(view.class_of(NodeId::new(1)), ClassId::new(0));
    assert_eq!(view.cost(NodeId::new(2)), Cost::new(3.0));
    assert_eq!(view.roots(), [ClassId::new(2)]);
}

#[test]
fn a_solution_is_priced_and_validated() {
    // A diamond over class 0, a detour through class 3 that needs class 2 again, and a class
    // without nodes.
    let rows: &[Row] = &[
        (0, &[], 4.0),
        (1, &[0], 1.0),
        (2, &[0, 1], 1.0),
        (3, &[2], 0.0),
        (1, &[3], 0.0),
        (1, &[4], 0.0),
    ];
    let view = view(5, rows, &[2, 1]);
    let good = solution(&[Some(0), Some(1), Some(2), Some(3), None]);
    assert_eq!(good.dag_cost(&view), Cost::new(6.0));
    assert_eq!(good.topological(&view), Ok(vec![NodeId::new(0), NodeId::new(1), NodeId::new(2)]));
    let class = ClassId::new;
    for (choice, error) in [
        (vec![], SolutionError::OtherView { expected: 5, found: 0 }),
        (vec![None, Some(1), Some(2), None, None], SolutionError::Unchosen { class: class(0) }),
        (vec![Some(0), Some(5), Some(2), None, None], SolutionError::Unchosen { class: class(4) }),
        (
            vec![Some(0), Some(0), Some(2), None, None],
            SolutionError::Foreign { class: class(1), node: NodeId::new(0) },
        ),
        (
            vec![Some(0), Some(9), Some(2), None, None],
            SolutionError::Foreign { class: class(1), node: NodeId::new(9) },
        ),
        (vec![Some(0), Some(4), Some(2), Some(3), None], SolutionError::Cycle { class: class(2) }),
    ] {
        assert_eq!(solution(&choice).validate(&view), Err(error), "{choice:?}");
    }
}

#[test]
fn shared_work_is_paid_once() {
    // As a tree 1+1+1.5 beats 2+2; as a DAG class 0 at 2 serves both.
    let rows: &[Row] = &[
        (0, &[], 2.0),
        (1, &[0], 0.0),
        (1, &[], 1.5),
        (2, &[0], 0.0),
        (2, &[], 1.5),
        (3, &[1, 2], 0.0),
    ];
    let view = view(4, rows, &[3]);
    assert_eq!(cost_of(&GreedyTree, &view), 3.0);
    assert_eq!(cost_of(&GreedyDag::default(), &view), 2.0);
}

/// Two products at 10 each (classes 1 and 2), or two slices of a merged one at 12 behind a split
/// (classes 3 and 4).
fn siblings() -> EGraphViewBuilder {
    let rows: &[Row] = &[
        (0, &[], 0.0),
        (1, &[0], 10.0),
        (2, &[0], 10.0),
        (3, &[0], 12.0),
        (4, &[3], 0.1),
        (1, &[4], 0.0),
        (2, &[4], 0.0),
        (5, &[1, 2], 1.0),
    ];
    builder(6, rows, &[5])
}

#[test]
fn siblings_merge_with_and_without_a_declared_bundle() {
    let mut declared = siblings();
    declared.add_bundle([NodeId::new(5), NodeId::new(6)]);
    for builder in [declared, siblings()] {
        let view = builder.build().expect("a sound view");
        assert_eq!(cost_of(&GreedyTree, &view), 21.0);
        assert_eq!(cost_of(&GreedyDag::default(), &view), 13.1);
    }
}

#[test]
fn a_bundle_that_does_not_pay_or_cannot_be_computed_is_left() {
    let rows: &[Row] = &[
        (0, &[], 3.0),
        (1, &[], 1.0),
        (1, &[0], 0.0),
        (2, &[], 1.0),
        (2, &[0], 0.0),
        (2, &[3], 0.0),
    ];
    let mut builder = builder(4, rows, &[1, 2]);
    builder.add_bundle([NodeId::new(2), NodeId::new(4)]);
    builder.add_bundle([NodeId::new(2), NodeId::new(5)]);
    assert_eq!(cost_of(&GreedyDag::default(), &builder.build().expect("a sound view")), 2.0);
}

#[test]
fn two_and_two_siblings_beat_three_and_one_only_by_a_move_of_all_four() {
    // Products 2..=5 of class 0; pairs 6 and 7; the four together in 8, cut into the pairs' slices
    // 9 and 10.
    let mut rows: Vec<Row> = vec![(0, &[], 0.0), (1, &[2, 3, 4, 5], 0.0)];
    rows.extend([(2, &[0][..], 10.0), (3, &[0], 10.0), (4, &[0], 10.0), (5, &[0], 10.0)]);
    rows.extend([(6, &[0][..], 25.0), (2, &[6], 0.0), (3, &[6], 0.0), (4, &[6], 0.0)]);
    rows.extend([(8, &[0][..], 30.0), (9, &[8], 0.0), (10, &[8], 0.0)]);
    rows.extend([(2, &[9][..], 0.0), (3, &[9], 0.0), (4, &[10], 0.0), (5, &[10], 0.0)]);
    assert_eq!(cost_of(&GreedyDag::default(), &view(11, &rows, &[1])), 30.0);
}

#[test]
fn the_incumbent_is_kept_on_a_tie_and_bettered_otherwise() {
    let view = view(1, &[(0, &[], 1.0), (0, &[], 1.0), (0, &[], 2.0)], &[0]);
    for extractor in all() {
        for (incumbent, answer) in [(0, 0), (1, 1), (2, 0)] {
            assert_eq!(
                extractor.extract(&view, Some(&solution(&[Some(incumbent)]))),
                Ok(solution(&[Some(answer)]))
            );
        }
    }
}

#[test]
fn what_cannot_be_extracted_is_said() {
    let only_cycle = view(2, &[(0, &[1], 0.0), (1, &[0], 0.0)], &[0]);
    let fine = view(1, &[(0, &[], 1.0)], &[0]);
    for extractor in all() {
        assert_eq!(
            extractor.extract(&only_cycle, None),
            Err(ExtractError::Uncomputable { root: ClassId::new(0) })
        );
        assert_eq!(
            extractor.extract(&fine, Some(&solution(&[None]))),
            Err(ExtractError::Incumbent(SolutionError::Unchosen { class: ClassId::new(0) }))
        );
        assert_eq!(extractor.extract(&view(0, &[], &[]), None), Ok(solution(&[])));
    }
}

#[test]
fn a_chain_may_be_a_hundred_thousand_deep() {
    const DEPTH: u32 = 100_000;
    let mut builder = EGraphViewBuilder::new();
    let mut last = builder.add_class();
    builder.add_node(last, &[], Cost::ZERO);
    for _ in 0..DEPTH {
        let class = builder.add_class();
        builder.add_node(class, &[last], Cost::new(2.0));
        builder.add_node(class, &[last, last], Cost::new(1.0));
        last = class;
    }
    builder.add_root(last);
    let view = builder.build().expect("a sound view");
    let best = GreedyDag { steps: 5_000_000 }.extract(&view, None).expect("a computable view");
    assert_eq!(best.dag_cost(&view), Cost::new(f64::from(DEPTH)));
    assert_eq!(best.topological(&view).map(|order| order.len()), Ok(DEPTH as usize + 1));
    let found = Anytime::default().search(&view, None, &|| false).expect("a computable view");
    assert_eq!((found.cost, found.proven()), (Cost::new(f64::from(DEPTH)), true));
}

#[test]
fn doubling_at_every_level_does_not_overflow() {
    // Tree prices reach 2^5000; a residual network doubles in the same way.
    let mut builder = EGraphViewBuilder::new();
    let mut last = builder.add_class();
    builder.add_node(last, &[], Cost::new(1.0));
    for _ in 0..5_000 {
        let (left, right, sum) = (builder.add_class(), builder.add_class(), builder.add_class());
        builder.add_node(left, &[last], Cost::new(1.0));
        builder.add_node(right, &[last], Cost::new(3.0));
        builder.add_node(right, &[left], Cost::new(1.0));
        builder.add_node(sum, &[left, right], Cost::new(1.0));
        last = sum;
    }
    builder.add_root(last);
    let view = builder.build().expect("a sound view");
    assert_eq!(cost_of(&GreedyDag { steps: 20_000_000 }, &view), 15_001.0);
    let found = Anytime::default().search(&view, None, &|| false).expect("a computable view");
    assert_eq!((found.cost.seconds(), found.proven()), (15_001.0, true));
}

#[test]
fn siblings_are_merged_and_proven_from_the_cheapest_trees() {
    let view = siblings().build().expect("a sound view");
    let found =
        Exact { steps: u64::MAX, start: 0 }.search(&view, None, &|| false).expect("computable");
    assert_eq!((found.cost, found.lower_bound), (Cost::new(13.1), Cost::new(13.1)));
}

#[test]
fn a_cycle_gives_no_value_for_nothing() {
    // Classes 1 and 2 compute each other for nothing; one of them has to be computed at a price.
    let rows: &[Row] =
        &[(0, &[1, 2], 0.0), (1, &[2], 0.0), (2, &[1], 0.0), (1, &[], 5.0), (2, &[], 4.0)];
    let view = view(3, rows, &[0]);
    for extractor in all() {
        let found = extractor.search(&view, None, &|| false).expect("computable");
        assert_eq!((found.cost, found.lower_bound), (Cost::new(4.0), Cost::new(4.0)));
    }
}

#[test]
fn deep_branches_fit_into_a_small_stack() {
    // A cover of the edges of a circulant graph: each edge needs one of its ends, and no bound tells which.
    const ENDS: u32 = 901;
    let mut rows: Vec<(u32, Vec<u32>, f64)> = (0..ENDS).map(|end| (end, vec![], 1.0)).collect();
    for end in 0..ENDS {
        for (place, step) in (0..).zip([1, 30, 217]) {
            let edge = ENDS + 3 * end + place;
            rows.push((edge, vec![end], 0.0));
            rows.push((edge, vec![(end + step) % ENDS], 0.0));
        }
    }
    let mut builder = EGraphViewBuilder::new();
    for _ in 0..4 * ENDS {
        builder.add_class();
    }
    for (class, children, cost) in rows {
        let children: Vec<ClassId> = children.into_iter().map(ClassId::new).collect();
        builder.add_node(ClassId::new(class), &children, Cost::new(cost));
    }
    (ENDS..4 * ENDS).for_each(|edge| builder.add_root(ClassId::new(edge)));
    let view = builder.build().expect("a sound view");
    let search = move || {
        let exact = Exact { steps: 50_000_000, start: 0 };
        let found = exact.search(&view, None, &|| false).expect("computable");
        assert!(found.lower_bound.seconds() >= f64::from(ENDS / 2), "{:?}", found.lower_bound);
        assert!(!found.proven());
    };
    let small = std::thread::Builder::new().stack_size(1 << 20);
    small.spawn(search).expect("a thread").join().expect("the stack is enough");
}
