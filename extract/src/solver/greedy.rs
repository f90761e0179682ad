//! Bottom-up greedy extraction: classes are settled in order of cost, each by a node whose operands
//! are settled already.
//!
//! This order makes every answer acyclic by construction, whatever the costs are, so
//! no sets of classes need be stored: time is O(edges + nodes log nodes) and memory O(nodes + edges)
//! for graphs of any depth. The costs decide how well sharing is accounted for: see [`Sharing`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::egraph_view::{Cost, number};
use crate::solver::pruned::Pruned;

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// What a user of a class is charged for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sharing<'a> {
    /// All of it: the price of a tree. Exact without sharing; doubles at each residual addition.
    Tree,
    /// The price divided by this count for each class, usually of its users.
    Split(&'a [u32]),
}

/// A choice for every class that can be computed, `NONE` for others; those `given` count as settled
/// and free, and get `NONE` too.
pub(crate) fn settle(
    trim: &Pruned,
    given: impl Fn(usize) -> bool,
    sharing: Sharing<'_>,
) -> Vec<u32> {
    let classes = trim.class_count();
    let mut choice = vec![NONE; classes];
    let mut done: Vec<bool> = (0..classes).map(given).collect();
    let mut waiting = vec![0_u32; trim.cost.len()];
    let mut price = trim.cost.clone();
    let mut ready = BinaryHeap::new();
    for class in (0..classes).filter(|&class| !done[class]) {
        for &node in trim.nodes.get(class) {
            let open = trim
                .children
                .get(node as usize)
                .iter()
                .filter(|&&child| !done[child as usize])
                .count();
            waiting[node as usize] = u32::try_from(open).unwrap_or(u32::MAX);
            if open == 0 {
                ready.push(Reverse((Cost::new(price[node as usize]), node)));
            }
        }
    }
    // Ties go to the lower node: the answer must not depend on the order of pushing.
    while let Some(Reverse((paid, node))) = ready.pop() {
        let class = trim.class_of[node as usize] as usize;
        if std::mem::replace(&mut done[class], true) {
            continue;
        }
        choice[class] = node;
        let charge = match sharing {
            Sharing::Tree => paid.seconds(),
            Sharing::Split(users) => paid.seconds() / f64::from(users[class].max(1)),
        };
        for &user in trim.users.get(class) {
            let user = user as usize;
            // Tree prices may exceed every float; an infinite price still has its turn.
            price[user] += charge;
            if !done[trim.class_of[user] as usize] {
                waiting[user] -= 1;
                if waiting[user] == 0 {
                    ready.push(Reverse((Cost::new(price[user]), number(user))));
                }
            }
        }
    }
    choice
}
