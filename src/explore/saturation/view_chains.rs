//! A normal form for chains of views: chains that read the same elements in the same order are merged, however they are
//! spelled.
//!
//! A chain of reshapes, transpositions and broadcasts is represented by the extents and strides with which it reads its operand in
//! row-major order; adjacent axes are joined if one stride covers both. A reshape does not change this representation, so chains
//! that differ only in reshapes coincide. Extents are polynomials; an axis is split only if the division is exact for all values
//! of the symbols. Never looks at elements.

use crate::graph::Graph;
use crate::graph::language::{ENode, Head};
use crate::proof::log::Reason;
use egg::Id;
use mlc_dsl::ir::canon;
use mlc_dsl::ir::{Attr, Extent};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Walks kept for each class.
const KEPT: usize = 4;

/// What a reshape, which moves nothing, adds to the length of a chain, and what any other view does.
const CHEAP: usize = 2;
const DEAR: usize = 3;

/// Passes over the classes in a round: operands need not come before what reads them.
const PASSES: usize = 8;

/// A step through a value: so many elements, so far apart in row-major order; 0 apart repeats one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Piece {
    extent: Extent,
    stride: Extent,
}

/// How a class walks a value.
#[derive(Clone, Debug, PartialEq)]
struct AccessOrder {
    base: Id,
    /// From the outermost; none of them of one element, no two that are one.
    pieces: Vec<Piece>,
    /// The length of the shortest chain that is known.
    length: usize,
}

/// Joins those of the classes that walk one value alike, and adds the shortest chain where a longer one is known. True if
/// anything was joined.
pub(crate) fn join(graph: &mut Graph, classes: &[Id]) -> bool {
    let mut ids: Vec<Id> = classes.iter().map(|&id| graph.egg.find(id)).collect();
    ids.sort_unstable();
    ids.dedup();
    let walks = walks(graph, &ids);
    let mut known: HashMap<(Id, Vec<Extent>, Vec<Piece>), Id> = HashMap::new();
    let mut joined = false;
    for &id in &ids {
        for walk in walks.get(&id).into_iter().flatten() {
            let shape = graph.type_of(id).shape.clone();
            let base = graph.type_of(walk.base).shape.clone();
            if shape == base && whole(&base).as_ref() == Some(&walk.pieces) {
                joined |= graph.union(id, walk.base, Reason::SameElements);
                continue;
            }
            let key = (walk.base, shape, walk.pieces.clone());
            let first = *known.entry(key).or_insert(id);
            joined |= graph.union(id, first, Reason::SameElements);
            if first == id
                && let Some(short) = shortest(graph, id, walk)
            {
                joined |= graph.union(id, short, Reason::SameElements);
            }
        }
    }
    joined
}

/// The walks of every class that is a view.
fn walks(graph: &Graph, ids: &[Id]) -> HashMap<Id, Vec<AccessOrder>> {
    let mut views: Vec<(Id, &ENode)> = Vec::new();
    for &id in ids {
        let mut own: Vec<&ENode> =
            graph.egg[id].nodes.iter().filter(|n| is_view(graph, n)).collect();
        own.sort();
        views.extend(own.into_iter().map(|n| (id, n)));
    }
    let mut out: HashMap<Id, Vec<AccessOrder>> = HashMap::new();
    for _ in 0..PASSES {
        let mut news = false;
        for (id, node) in &views {
            let arg = graph.egg.find(node.args[0]);
            let plain = whole(&graph.type_of(arg).shape);
            let start = plain.map(|pieces| AccessOrder { base: arg, pieces, length: 0 });
            let below = out.get(&arg).into_iter().flatten().cloned();
            let found: Vec<AccessOrder> = start
                .into_iter()
                .chain(below)
                .filter(|w| w.base != *id)
                .filter_map(|w| viewed(graph, node, arg, w))
                .collect();
            let own = out.entry(*id).or_default();
            let before = own.clone();
            for walk in found {
                let same = |w: &&mut AccessOrder| w.base == walk.base && w.pieces == walk.pieces;
                match own.iter_mut().find(same) {
                    Some(w) => w.length = w.length.min(walk.length),
                    None => own.push(walk),
                }
            }
            // The farther down a walk begins, the more chains it has in common with others.
            own.sort_by_key(|w| (Reverse(w.length), w.base));
            own.truncate(KEPT);
            news |= *own != before;
        }
        if !news {
            break;
        }
    }
    out
}

fn is_view(graph: &Graph, node: &ENode) -> bool {
    let s = &graph.structural;
    matches!(node.head, Head::Apply(c, _) if [s.reshape, s.transpose, s.broadcast].contains(&Some(c)))
}

/// The walk of a view of what `walk` is the walk of.
fn viewed(graph: &Graph, node: &ENode, arg: Id, walk: AccessOrder) -> Option<AccessOrder> {
    let Head::Apply(call, attrs) = node.head else { return None };
    let length = walk.length + if Some(call) == graph.structural.reshape { CHEAP } else { DEAR };
    if Some(call) == graph.structural.reshape {
        return Some(AccessOrder { length, ..walk });
    }
    let attrs = graph.attrs(attrs);
    let order = attrs.first()?.as_i64s()?;
    let groups = split(&walk.pieces, &graph.type_of(arg).shape)?;
    let group = |axis: &i64| groups.get(usize::try_from(*axis).ok()?).cloned();
    let pieces: Vec<Vec<Piece>> = if Some(call) == graph.structural.transpose {
        order.iter().map(group).collect::<Option<_>>()?
    } else {
        let shape = attrs.get(1)?.as_extents()?.iter().enumerate();
        let axis = |(i, extent): (usize, &Extent)| match order.iter().position(|&m| m == i as i64) {
            Some(from) => groups.get(from).cloned(),
            None => Some(vec![Piece { extent: extent.clone(), stride: Extent::from(0) }]),
        };
        shape.map(axis).collect::<Option<_>>()?
    };
    Some(AccessOrder { pieces: merged(pieces.into_iter().flatten()), length, ..walk })
}

/// A value as it stands; none if it is known to be empty or too large to be said.
fn whole(shape: &[Extent]) -> Option<Vec<Piece>> {
    let extent = shape.iter().fold(Extent::from(1), |n, d| &n * d);
    let said = !extent.is(0) && !extent.is_too_large();
    said.then(|| merged([Piece { extent, stride: Extent::from(1) }]))
}

/// The pieces without those of one element, neighbours joined.
fn merged(pieces: impl IntoIterator<Item = Piece>) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for piece in pieces.into_iter().filter(|p| !p.extent.is(1)) {
        match out.last_mut() {
            Some(outer) if outer.stride == &piece.stride * &piece.extent => {
                outer.extent = &outer.extent * &piece.extent;
                outer.stride = piece.stride;
            }
            _ => out.push(piece),
        }
    }
    out
}

/// The pieces of each axis of a shape; none if an axis ends within a piece that cannot be cut there.
fn split(pieces: &[Piece], shape: &[Extent]) -> Option<Vec<Vec<Piece>>> {
    let mut left = pieces.to_vec();
    let mut out: Vec<Vec<Piece>> = Vec::with_capacity(shape.len());
    for axis in shape.iter().rev() {
        let mut missing = axis.clone();
        let mut own: Vec<Piece> = Vec::new();
        while !missing.is(1) {
            let piece = left.pop()?;
            if let Some(rest) = missing.div_exact(&piece.extent) {
                own.push(piece);
                missing = rest;
                continue;
            }
            let outer = piece.extent.div_exact(&missing)?;
            left.push(Piece { extent: outer, stride: &piece.stride * &missing });
            own.push(Piece { extent: missing, stride: piece.stride });
            missing = Extent::from(1);
        }
        own.reverse();
        out.push(own);
    }
    out.reverse();
    left.is_empty().then_some(out)
}

/// The pieces in the order of the value that they walk; none if they do not walk all of it once.
fn in_memory(pieces: &[Piece], base: &[Extent]) -> Option<Vec<usize>> {
    let all = base.iter().fold(Extent::from(1), |n, d| &n * d);
    let mut order: Vec<usize> = Vec::new();
    let mut stride = Extent::from(1);
    let real = pieces.iter().filter(|p| !p.stride.is(0)).count();
    while order.len() < real {
        let next = pieces.iter().position(|p| p.stride == stride)?;
        stride = &stride * &pieces[next].extent;
        order.push(next);
    }
    order.reverse();
    (stride == all).then_some(order)
}

/// The class of the shortest chain for a walk, if that is shorter than what is known: split, permuted, repeated, merged.
fn shortest(graph: &mut Graph, id: Id, walk: &AccessOrder) -> Option<Id> {
    let base = graph.type_of(walk.base).shape.clone();
    let to = graph.type_of(id).shape.clone();
    let memory = in_memory(&walk.pieces, &base)?;
    let extents = |at: &[usize]| -> Vec<Extent> {
        at.iter().map(|&i| walk.pieces[i].extent.clone()).collect()
    };
    let real: Vec<usize> =
        (0..walk.pieces.len()).filter(|&i| !walk.pieces[i].stride.is(0)).collect();
    let all: Vec<usize> = (0..walk.pieces.len()).collect();
    let (split, full) = (extents(&memory), extents(&all));
    let permuted = memory != real;
    let repeated = real.len() < all.len();
    let steps = [
        (split != base && (permuted || repeated), CHEAP),
        (permuted, DEAR),
        (repeated, DEAR),
        (full != to, CHEAP),
    ];
    if steps.iter().filter(|s| s.0).map(|s| s.1).sum::<usize>() >= walk.length {
        return None;
    }
    let s = graph.structural;
    let mut v = canon::reshape(graph, s, walk.base, &split).ok()?;
    if permuted {
        let place = |i: &usize| memory.iter().position(|m| m == i).map(|p| p as i64);
        let perm: Vec<i64> = real.iter().map(place).collect::<Option<_>>()?;
        let transpose = s.transpose?;
        v = *canon::apply(graph, s, transpose, &[Some(Attr::ints(perm))], &[v]).ok()?.first()?;
    }
    if repeated {
        let map: Vec<i64> = real.iter().map(|&i| i as i64).collect();
        v = canon::broadcast(graph, s, v, &map, &full).ok()?;
    }
    canon::reshape(graph, s, v, &to).ok()
}
