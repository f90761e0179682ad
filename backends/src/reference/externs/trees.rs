//! Rust reference of decision tree ensembles.

use super::super::array::Array;
use super::{floats, results};
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{Attr, Type};
use std::collections::HashMap;

/// A tree, as node of the ensemble or as leaf.
#[derive(Clone, Copy)]
enum Place {
    Node(usize),
    Leaf(usize),
}

/// The trees, node by node.
struct Trees<'a> {
    splits: &'a [f64],
    modes: &'a [i64],
    /// The members of every node of mode 6, in the order of nodes from the roots down.
    members: Vec<&'a [f64]>,
    features: Vec<usize>,
    missing_is_true: Vec<i64>,
    /// Where to go if the comparison holds, and if not.
    branches: [Vec<Place>; 2],
}

/// For every row of `x[b, n]` the sum, mean, least or largest weight of the leaves that the trees lead to, per target of the leaf,
/// as TreeEnsemble of ONNX's operators for machine learning defines it.
pub(crate) fn follow_trees(
    env: &Env,
    args: &[Array],
    types: &[Type],
) -> Result<Vec<Array>, String> {
    let ([x, splits, modes, members, weights], [t]) = (args, types) else {
        return Err("five arguments yield one result".into());
    };
    let &[rows, columns] = x.shape() else { return Err("the argument has two axes".into()) };
    let shape = t.known_shape().ok_or("the shape is not known")?;
    let targets = shape.get(1).copied().unwrap_or_default();
    let (x, weights) = (floats(x)?, floats(weights)?);
    let modes = modes.ints().ok_or("modes are integers")?;
    let (trees, roots) = Trees::of(env, floats(splits)?, modes, floats(members)?)?;
    let leaf_targets = list(env, "leaf_targets")?;
    let leaves = Leaves::of(&list(env, "leaves")?, weights.len())?;
    let combine = env.attr("aggregate").and_then(Attr::as_i64).unwrap_or(1);
    let start = match combine {
        0 | 1 => 0.0,
        2 => t.dtype.largest(),
        3 => -t.dtype.largest(),
        other => return Err(format!("there is no aggregation {other}")),
    };
    let mut y = vec![start; rows * targets];
    for row in 0..rows {
        for &root in &roots {
            let leaf = trees.leaf(root, &x[row * columns..][..columns])?;
            for place in leaves.places(leaf) {
                let (weight, target) = (weights.get(place), leaf_targets.get(place));
                let (Some(&weight), Some(&target)) = (weight, target) else {
                    return Err(format!("there is no leaf {leaf}"));
                };
                let at = usize::try_from(target).ok().filter(|&t| t < targets);
                let to = &mut y[row * targets + at.ok_or("a leaf has no target")?];
                *to = match combine {
                    0 => *to + weight / roots.len() as f64,
                    1 => *to + weight,
                    2 => to.min(weight),
                    _ => to.max(weight),
                };
            }
        }
    }
    results(vec![y], types)
}

/// Where the weights of leaves are.
enum Leaves {
    /// Each leaf has the one of its number.
    Own,
    /// Places of weights by leaf.
    Listed(HashMap<usize, Vec<usize>>),
}

impl Leaves {
    fn of(leaves: &[i64], weights: usize) -> Result<Leaves, String> {
        if leaves.is_empty() {
            return Ok(Leaves::Own);
        }
        if leaves.len() != weights {
            return Err(format!("{weights} weights are those of {} leaves", leaves.len()));
        }
        let mut listed: HashMap<usize, Vec<usize>> = HashMap::new();
        for (place, &leaf) in leaves.iter().enumerate() {
            let leaf = usize::try_from(leaf).map_err(|_| format!("there is no leaf {leaf}"))?;
            listed.entry(leaf).or_default().push(place);
        }
        Ok(Leaves::Listed(listed))
    }

    fn places(&self, leaf: usize) -> impl Iterator<Item = usize> {
        let (own, listed): (_, &[usize]) = match self {
            Leaves::Own => (Some(leaf), &[]),
            Leaves::Listed(listed) => (None, listed.get(&leaf).map_or(&[], Vec::as_slice)),
        };
        own.into_iter().chain(listed.iter().copied())
    }
}

/// A list of integers among the attributes.
fn list(env: &Env, name: &str) -> Result<Vec<i64>, String> {
    let integers = env.attr(name).and_then(Attr::as_i64s);
    integers.ok_or_else(|| format!("`{name}` is a list of integers"))
}

impl<'a> Trees<'a> {
    /// The trees of an ensemble and their roots.
    fn of(
        env: &Env,
        splits: &'a [f64],
        modes: &'a [i64],
        members: &'a [f64],
    ) -> Result<(Trees<'a>, Vec<Place>), String> {
        let n = splits.len();
        let place = |number: i64, leaf: bool| match usize::try_from(number) {
            Ok(i) if leaf => Ok(Place::Leaf(i)),
            Ok(i) if i < n => Ok(Place::Node(i)),
            _ => Err(format!("there is no node {number}")),
        };
        let branch = |numbers: &str, leaves: &str| -> Result<Vec<Place>, String> {
            let (numbers, leaves) = (list(env, numbers)?, list(env, leaves)?);
            numbers.into_iter().zip(leaves).map(|(i, leaf)| place(i, leaf != 0)).collect()
        };
        let branches =
            [branch("true_nodes", "true_leaves")?, branch("false_nodes", "false_leaves")?];
        let features = list(env, "features")?.into_iter().map(|f| f as usize).collect::<Vec<_>>();
        let missing_is_true = list(env, "missing")?;
        let sizes = [modes.len(), features.len(), branches[0].len(), branches[1].len()];
        if sizes != [n; 4] || !missing_is_true.is_empty() && missing_is_true.len() != n {
            return Err(format!("nodes are described by {n} splits and by {sizes:?} others"));
        }
        let mut trees =
            Trees { splits, modes, members: vec![&[]; n], features, missing_is_true, branches };
        let roots = list(env, "roots")?;
        let roots = roots
            .into_iter()
            .map(|r| trees.root(place(r, false)?))
            .collect::<Result<Vec<_>, String>>()?;
        trees.assign_members(&roots, members)?;
        Ok((trees, roots))
    }

    /// A root both of whose branches are the same leaf is that leaf.
    fn root(&self, root: Place) -> Result<Place, String> {
        let Place::Node(i) = root else { return Ok(root) };
        match [self.branches[0][i], self.branches[1][i]] {
            [Place::Leaf(a), Place::Leaf(b)] if a == b => Ok(Place::Leaf(a)),
            _ => Ok(root),
        }
    }

    /// Divides `members`, lists that NaN ends, among the nodes of mode 6 in the order of a walk from the roots, true branches first.
    fn assign_members(&mut self, roots: &[Place], members: &'a [f64]) -> Result<(), String> {
        let mut lists = members.split(|m| m.is_nan());
        let mut open: Vec<Place> = roots.iter().rev().copied().collect();
        let mut visited = vec![false; self.splits.len()];
        while let Some(place) = open.pop() {
            let Place::Node(i) = place else { continue };
            if std::mem::replace(&mut visited[i], true) {
                return Err(format!("node {i} is reached twice"));
            }
            if self.modes[i] == 6 {
                self.members[i] = lists.next().ok_or("a node has no list of members")?;
            }
            open.extend([self.branches[1][i], self.branches[0][i]]);
        }
        Ok(())
    }

    /// The leaf that a row leads to.
    fn leaf(&self, root: Place, row: &[f64]) -> Result<usize, String> {
        let mut place = root;
        loop {
            let i = match place {
                Place::Leaf(leaf) => return Ok(leaf),
                Place::Node(i) => i,
            };
            let feature = self.features[i];
            let &v = row.get(feature).ok_or_else(|| format!("there is no feature {feature}"))?;
            let branch = usize::from(!self.holds(i, v)?);
            place = self.branches[branch][i];
        }
    }

    fn holds(&self, i: usize, v: f64) -> Result<bool, String> {
        let split = self.splits[i];
        let compared = match self.modes[i] {
            0 => v <= split,
            1 => v < split,
            2 => v >= split,
            3 => v > split,
            4 => v == split,
            5 => v != split,
            6 => self.members[i].contains(&v),
            other => return Err(format!("there is no comparison {other}")),
        };
        let missing = self.missing_is_true.get(i).is_some_and(|&m| m != 0);
        Ok(compared || missing && v.is_nan())
    }
}
