//! Decision-tree ensembles.
//!
//! Where branches lead is known when code is generated, and is a table in the code. Set members, modes and lists in memory
//! are distributed to the nodes before every run.

use super::super::procedure::{Operand, Procedure, ProcedureLaunch, Statements, TypedShape};
use super::super::spelling as spell;
use super::sort_scatter::{each, index, narrowed, part, widened};
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{Attr, DType};

/// Threads of the block that divides members.
const THREADS: u32 = 256;

/// Leaves have smaller numbers.
const MOST_LEAVES: i64 = 1 << 24;

/// Weights of leaves that have any number of them.
struct LeafWeights {
    /// Their places, in the order of their leaves.
    order: Vec<i64>,
    /// Where those of each leaf begin in that order, and the end.
    first: Vec<i64>,
}

/// The shape of the trees: nodes are numbers from 0 on, the leaf `i` is `-1 - i`.
struct TreeEnsemble {
    features: Vec<i64>,
    missing: Vec<i64>,
    branches: [Vec<i64>; 2],
    roots: Vec<i64>,
    leaf_targets: Vec<i64>,
    /// None if every leaf has the weight of its number.
    listed: Option<LeafWeights>,
}

impl TreeEnsemble {
    /// The trees of an application with so many splits, modes and weights.
    fn of(env: &Env, n: usize, modes: usize, weights: usize) -> Result<TreeEnsemble, String> {
        let list = |name: &str| {
            let integers = env.attr(name).and_then(Attr::as_i64s);
            integers.ok_or_else(|| format!("`{name}` is a list of integers"))
        };
        let place = |number: i64, is_leaf: bool| match usize::try_from(number) {
            Ok(_) if is_leaf => Ok(-1 - number),
            Ok(i) if i < n => Ok(number),
            _ => Err(format!("there is no node {number}")),
        };
        let branch = |numbers: &str, leaves: &str| -> Result<Vec<i64>, String> {
            let (numbers, leaves) = (list(numbers)?, list(leaves)?);
            numbers.into_iter().zip(leaves).map(|(i, leaf)| place(i, leaf != 0)).collect()
        };
        let branches =
            [branch("true_nodes", "true_leaves")?, branch("false_nodes", "false_leaves")?];
        let features = list("features")?;
        let mut missing = list("missing")?;
        let sizes = [modes, features.len(), branches[0].len(), branches[1].len()];
        if sizes != [n; 4] || !missing.is_empty() && missing.len() != n {
            return Err(format!("nodes are described by {n} splits and by {sizes:?} others"));
        }
        let roots: Result<Vec<i64>, String> =
            list("roots")?.into_iter().map(|r| place(r, false)).collect();
        missing.resize(n, 0);
        let leaf_targets = list("leaf_targets")?;
        let listed = by_leaf(&list("leaves")?, weights)?;
        let mut trees =
            TreeEnsemble { features, missing, branches, roots: roots?, leaf_targets, listed };
        // A root both of whose branches are the same leaf is that leaf.
        for root in &mut trees.roots {
            let [a, b] = [0, 1].map(|k| trees.branches[k][*root as usize]);
            *root = if a < 0 && a == b { a } else { *root };
        }
        Ok(trees)
    }

    /// The nodes in the order of a walk from the roots, true branches first.
    fn walk(&self) -> Result<Vec<i64>, String> {
        let mut open: Vec<i64> = self.roots.iter().rev().copied().collect();
        let mut order = vec![];
        let mut visited = vec![false; self.features.len()];
        while let Some(place) = open.pop() {
            let Ok(i) = usize::try_from(place) else { continue };
            if std::mem::replace(&mut visited[i], true) {
                return Err(format!("node {i} is reached twice"));
            }
            order.push(place);
            open.extend([self.branches[1][i], self.branches[0][i]]);
        }
        Ok(order)
    }
}

/// The weights of each leaf, if `leaves` tells whose they are.
fn by_leaf(leaves: &[i64], weights: usize) -> Result<Option<LeafWeights>, String> {
    if leaves.is_empty() {
        return Ok(None);
    }
    let most = leaves.iter().max().copied().unwrap_or(0);
    if leaves.len() != weights || leaves.iter().any(|&l| l < 0) || most >= MOST_LEAVES {
        return Err(format!("{weights} weights are those of {} leaves", leaves.len()));
    }
    let mut order: Vec<i64> = (0..leaves.len() as i64).collect();
    order.sort_by_key(|&place| leaves[place as usize]);
    let sorted: Vec<i64> = order.iter().map(|&place| leaves[place as usize]).collect();
    let first = (0..most + 2).map(|l| sorted.partition_point(|&s| s < l) as i64).collect();
    Ok(Some(LeafWeights { order, first }))
}

/// A table of integers.
fn table(t: &mut Statements, name: &str, entries: &[i64]) {
    let entries: Vec<String> = entries.iter().map(|e| spell::int(*e)).collect();
    // There is no table without entries.
    let list = if entries.is_empty() { "0".into() } else { entries.join(", ") };
    t.line(1, format!("static const long long {name}[] = {{{list}}};"));
}

/// The loop of a block that numbers entries in order: `counts` is 1 for what counts, `put` stores the number `ordinal` of `at`.
fn numbered(t: &mut Statements, kind: &str, count: usize, counts: &str, put: &str) {
    t.line(1, "before = 0;");
    t.line(1, format!("for ({kind} from = 0; from < {count}; from += {THREADS}) {{"));
    t.line(2, format!("{kind} at = from + threadIdx.x;"));
    t.line(2, format!("long long own = at < {count} && {counts} ? 1 : 0, all = 0;"));
    t.line(
        2,
        "long long ordinal = before + scan_block(Sum(), own, 0LL, integer_parts, all, false);",
    );
    t.line(2, format!("if (own != 0) {put};"));
    t.line(2, "before += all;");
    t.line(1, "}");
}

/// For every row of `x[b, n]` the sum, mean, least or largest weight of the leaves that the trees lead to: members are divided among nodes,
/// every row follows every tree, then every target combines what is its own in the order of the trees.
pub fn tree_ensemble(
    env: &Env,
    args: &[TypedShape],
    results: &[TypedShape],
) -> Result<Procedure, String> {
    let ([(dtype, shape), (_, splits), (_, modes), (_, members), (_, weights)], [(_, of)]) =
        (args, results)
    else {
        return Err("five arguments yield one result".into());
    };
    let (&[b, columns], &[_, targets]) = (shape.as_slice(), of.as_slice()) else {
        return Err("the argument and the result have two axes".into());
    };
    let (nodes, members, leaves) = (splits[0], members[0], weights[0]);
    let trees = TreeEnsemble::of(env, nodes, modes[0], leaves)?;
    let walk = trees.walk()?;
    let combine = env.attr("aggregate").and_then(Attr::as_i64).unwrap_or(1);
    let all = (b * trees.roots.len().max(targets)).max(members).max(nodes) as u64;
    let kind = index(all.max((b * columns) as u64));
    let real = |name: &str| widened(*dtype, name);
    let argument = |i: usize| (Operand::Argument(i), false);
    let scratch = |i: usize, written: bool| (Operand::Scratch(i), written);

    let mut divide = Statements::default();
    divide.line(1, "SHARED(long long, integer_parts, 32);");
    table(&mut divide, "walk", &walk);
    divide.line(1, "long long before;");
    numbered(&mut divide, kind, walk.len(), "a2[walk[at]] == 6", "s0[walk[at]] = ordinal");
    let is_end = format!("{0} != {0}", real("a3[at]"));
    numbered(&mut divide, kind, members, &is_end, "s1[ordinal] = at");
    divide.line(1, format!("if (threadIdx.x == 0) s1[before] = {members};"));
    divide.line(1, format!("if (threadIdx.x == 0) s1[{}] = before;", members + 1));
    let operands = vec![argument(2), argument(3), scratch(0, true), scratch(1, true)];
    let blocks = u64::from(b > 0 && !walk.is_empty());
    let divide = ProcedureLaunch {
        name: "members",
        blocks,
        threads: THREADS,
        operands,
        faults: false,
        body: divide.0,
    };

    let mut follow = each((b * trees.roots.len()) as u64, kind);
    for (name, entries) in [
        ("roots", &trees.roots),
        ("features", &trees.features),
        ("when_true", &trees.branches[0]),
        ("when_false", &trees.branches[1]),
        ("missing", &trees.missing),
    ] {
        table(&mut follow, name, entries);
    }
    let fault = |axis: i64, index: &str, extent: usize| {
        format!("{{ out_of_range(fault, NODE, {axis}, {index}, {extent}); return; }}")
    };
    follow.line(1, format!("{kind} row = at / {0};", trees.roots.len().max(1)));
    follow.line(1, format!("long long place = roots[at % {}];", trees.roots.len().max(1)));
    follow.line(1, "while (place >= 0) {");
    follow.line(2, "long long feature = features[place];");
    follow.line(
        2,
        format!("if (!(0 <= feature && feature < {columns})) {}", fault(1, "feature", columns)),
    );
    let v = real(&format!("a0[row * {columns} + feature]"));
    follow.line(2, format!("double v = {v}, split = {};", real("a1[place]")));
    follow.line(2, "bool holds = false;");
    follow.line(2, "int mode = a2[place];");
    for (mode, sign) in ["<=", "<", ">=", ">", "==", "!="].iter().enumerate() {
        let other = if mode == 0 { "" } else { "else " };
        follow.line(2, format!("{other}if (mode == {mode}) holds = v {sign} split;"));
    }
    follow.line(2, "else if (mode == 6) {");
    follow.line(3, "long long list = s0[place];");
    follow.line(3, format!("if (list > s1[{}]) {}", members + 1, fault(0, "list", members)));
    follow.line(3, "long long member = list == 0 ? 0 : s1[list - 1] + 1;");
    follow.line(
        3,
        format!(
            "for (; member < s1[list] && !holds; ++member) holds = {} == v;",
            real("a3[member]")
        ),
    );
    follow.line(2, format!("}} else {}", fault(0, "mode", 7)));
    follow.line(2, "if (missing[place] != 0 && v != v) holds = true;");
    follow.line(2, "place = holds ? when_true[place] : when_false[place];");
    follow.line(1, "}");
    let numbers = trees.listed.as_ref().map_or(leaves, |w| w.first.len() - 1);
    // A leaf that is not listed has no weight.
    let checked = if trees.listed.is_none() {
        fault(0, "-1 - place", leaves)
    } else {
        format!("place = -1 - {numbers};")
    };
    follow.line(1, format!("if (-1 - place >= {numbers}) {checked}"));
    follow.line(1, "s2[at] = -1 - place;");
    let mut operands: Vec<_> = (0..4).map(argument).collect();
    operands.extend([scratch(0, false), scratch(1, false), scratch(2, true)]);
    let follow = part("follow", (b * trees.roots.len()) as u64, operands, follow);

    let largest = spell::float(dtype.largest(), true);
    let (start, add) = match combine {
        0 => ("0.0".to_string(), format!("total += weight / {}.0", trees.roots.len())),
        1 => ("0.0".to_string(), "total += weight".to_string()),
        2 => (largest, "total = fmin(total, weight)".to_string()),
        3 => (format!("-{largest}"), "total = fmax(total, weight)".to_string()),
        other => return Err(format!("there is no aggregation {other}")),
    };
    let mut total = each((b * targets) as u64, kind);
    table(&mut total, "leaf_targets", &trees.leaf_targets);
    total.line(1, format!("{kind} row = at / {targets}, target = at % {targets};"));
    total.line(1, format!("double total = {start};"));
    total.line(1, format!("for ({kind} tree = 0; tree < {}; ++tree) {{", trees.roots.len()));
    total.line(2, format!("long long leaf = s2[row * {} + tree];", trees.roots.len()));
    let known = trees.leaf_targets.len();
    if let Some(LeafWeights { order, first }) = &trees.listed {
        let mut first = first.clone();
        first.push(order.len() as i64);
        table(&mut total, "order", order);
        table(&mut total, "first", &first);
        total.line(2, "long long listed = leaf;");
        total.line(2, "for (long long at = first[listed]; at < first[listed + 1]; ++at) {");
        total.line(2, "leaf = order[at];");
    }
    total.line(2, format!("if (leaf >= {known}) {}", fault(0, "leaf", known)));
    total.line(
        2,
        format!(
            "if (!(0 <= leaf_targets[leaf] && leaf_targets[leaf] < {targets})) {}",
            fault(1, "leaf_targets[leaf]", targets)
        ),
    );
    total.line(2, "if (leaf_targets[leaf] != target) continue;");
    total.line(2, format!("double weight = {};", real("a4[leaf]")));
    total.line(2, format!("{add};"));
    if trees.listed.is_some() {
        total.line(2, "}");
    }
    total.line(1, "}");
    total.line(1, format!("y0[at] = {};", narrowed(*dtype, "total")));
    let operands = vec![argument(4), scratch(2, false), (Operand::Result(0), true)];
    let total = part("combine", (b * targets) as u64, operands, total);
    let scratch = vec![
        (DType::I64, vec![nodes]),
        (DType::I64, vec![members + 2]),
        (DType::I64, vec![b, trees.roots.len()]),
    ];
    let parts = vec![
        divide,
        ProcedureLaunch { faults: true, ..follow },
        ProcedureLaunch { faults: true, ..total },
    ];
    Ok(Procedure::new(scratch, parts))
}
