//! Small random e-graphs, and their optimum by brute force.

use mlc_extract::{ClassId, Cost, EGraphView, EGraphViewBuilder, NodeId, Solution};
use proptest::prelude::*;

const CLASSES: std::ops::RangeInclusive<usize> = 1..=8;

/// Denser graphs, where a tree is often not the best program: leaves are dear and operands shared.
pub fn dense() -> impl Strategy<Value = EGraphView> {
    let node =
        (prop::collection::vec(0..8_u32, 1..=3), prop_oneof![Just(0.0), Just(1.0), Just(3.0)]);
    let rows = prop::collection::vec(prop::collection::vec(node, 2..=3), 8);
    (rows, prop::collection::vec(8..20_u32, 3), prop::collection::vec(0..8_u32, 2..=3)).prop_map(
        |(rows, leaves, roots)| {
            let mut builder = EGraphViewBuilder::new();
            let ids: Vec<ClassId> = rows.iter().map(|_| builder.add_class()).collect();
            for (&class, rows) in ids.iter().zip(&rows) {
                for (children, cost) in rows {
                    let children: Vec<ClassId> =
                        children.iter().map(|&c| ClassId::new(c)).collect();
                    builder.add_node(class, &children, Cost::new(*cost));
                }
            }
            for (&class, &cost) in ids.iter().zip(&leaves) {
                builder.add_node(class, &[], Cost::new(f64::from(cost) / 4.0));
            }
            roots.into_iter().for_each(|root| builder.add_root(ClassId::new(root)));
            builder.build().expect("a sound view")
        },
    )
}

/// Graphs with anything: cycles, empty classes, several roots, zero costs, bundles.
pub fn views() -> impl Strategy<Value = EGraphView> {
    let cost = prop_oneof![
        Just(0.0),
        Just(1.0),
        Just(2.0),
        Just(5.0),
        (0..1000_u32).prop_map(|c| f64::from(c) / 100.0)
    ];
    CLASSES.prop_flat_map(move |classes| {
        let child = 0..u32::try_from(classes).expect("few");
        let node = (prop::collection::vec(child.clone(), 0..=3), cost.clone());
        let nodes = prop::collection::vec(prop::collection::vec(node, 0..=3), classes);
        let bundles = prop::collection::vec(
            prop::collection::btree_map(child.clone(), any::<prop::sample::Index>(), 0..4),
            0..3,
        );
        (nodes, prop::collection::vec(child, 1..=3), bundles).prop_map(
            |(classes, roots, bundles)| {
                let mut builder = EGraphViewBuilder::new();
                let ids: Vec<ClassId> = classes.iter().map(|_| builder.add_class()).collect();
                let mut nodes: Vec<Vec<NodeId>> = Vec::new();
                for (class, rows) in ids.iter().zip(&classes) {
                    let add = |(children, cost): &(Vec<u32>, f64)| {
                        let children: Vec<ClassId> =
                            children.iter().copied().map(ClassId::new).collect();
                        builder.add_node(*class, &children, Cost::new(*cost))
                    };
                    nodes.push(rows.iter().map(add).collect());
                }
                roots.into_iter().for_each(|root| builder.add_root(ClassId::new(root)));
                for bundle in bundles {
                    let pick = |(class, index): (u32, prop::sample::Index)| {
                        let nodes = &nodes[class as usize];
                        (!nodes.is_empty()).then(|| *index.get(nodes))
                    };
                    builder.add_bundle(bundle.into_iter().filter_map(pick));
                }
                builder.build().expect("a sound view")
            },
        )
    })
}

/// The cheapest valid solution, by trying every choice for the classes that the roots need.
pub fn brute_force(view: &EGraphView) -> Option<(f64, Solution)> {
    fn walk(
        view: &EGraphView,
        open: &[ClassId],
        choice: &mut Vec<Option<NodeId>>,
        best: &mut Option<(f64, Solution)>,
    ) {
        let solution = Solution::new(choice.clone());
        let cost = solution.dag_cost(view).seconds();
        if best.as_ref().is_some_and(|(least, _)| cost >= *least) {
            return;
        }
        let Some((&class, rest)) = open.split_first() else {
            if solution.validate(view).is_ok() {
                *best = Some((cost, solution));
            }
            return;
        };
        if choice[class.index()].is_some() {
            return walk(view, rest, choice, best);
        }
        for &node in view.nodes(class) {
            choice[class.index()] = Some(node);
            walk(view, &[rest, view.children(node)].concat(), choice, best);
            choice[class.index()] = None;
        }
    }
    let mut best = None;
    walk(view, view.roots(), &mut vec![None; view.class_count()], &mut best);
    best
}

/// Equal but for rounding.
pub fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(1.0)
}
