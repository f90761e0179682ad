//! A graph as it is drawn: whole, and with repeated blocks folded into one box each.

use super::layout::layered;
use super::repeats::{Repeat, repeats};
use serde::Serialize;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Pixels of a character, and around a text.
const CHARACTER: f64 = 6.3;
const MARGIN: f64 = 22.0;

/// A box is so wide at least and at most.
const NARROWEST: i32 = 64;
const WIDEST: i32 = 196;

/// A graph whose boxes are items of a list, in an order in which edges lead on.
#[derive(Debug, Default)]
pub(in crate::explain) struct Graph {
    pub widths: Vec<i32>,
    /// What boxes are when their names are left out.
    pub looks: Vec<u64>,
    /// From item to item.
    pub edges: BTreeSet<(usize, usize)>,
}

/// The drawings of a graph.
#[derive(Debug, Serialize)]
pub(super) struct Drawn {
    pub folded: View,
    /// The same as `folded` where nothing repeats: left out.
    pub open: Option<View>,
    pub repeats: Vec<Fold>,
}

/// Boxes of drawings in which one block alone is unfolded, for each box of the whole drawing: what has more is unfolded at once.
const SINGLE: usize = 3;

/// A repeated block.
#[derive(Debug, Serialize)]
pub(super) struct Fold {
    /// The first item of the first copy.
    pub first: usize,
    pub period: usize,
    pub count: usize,
    /// The drawing in which this block alone is unfolded; nothing where that is `open`, or stands for it.
    pub alone: Option<View>,
}

/// A drawing.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub width: i32,
    /// The item, or `-1 - n` for the n-th repeat's copies after the first; middle, layer, width.
    pub boxes: Vec<(i64, i32, u32, i32)>,
    /// From box to box; the middle on each layer between, nothing of an edge that is only drawn where its ends are looked at.
    pub edges: Vec<(usize, usize, Option<Vec<i32>>)>,
}

impl Graph {
    /// Adds a box with these lines; `look` is what makes it like another.
    pub fn push(&mut self, lines: &[&str], look: impl Hash) {
        self.widths.push(width(lines));
        let mut hasher = DefaultHasher::new();
        look.hash(&mut hasher);
        self.looks.push(hasher.finish());
    }

    /// The drawings.
    pub fn drawn(&self) -> Drawn {
        let repeats: Vec<(usize, Repeat)> = repeats(&self.looks).into_iter().enumerate().collect();
        let folded = self.view(&repeats);
        let open = (!repeats.is_empty()).then(|| self.view(&[]));
        let boxes: usize = repeats.iter().map(|(_, r)| folded.boxes.len() + r.saves()).sum();
        let is_few = repeats.len() > 1 && boxes <= SINGLE * self.widths.len();
        let fold = |&(n, r): &(usize, Repeat)| {
            let others = || [&repeats[..n], &repeats[n + 1..]].concat();
            let alone = is_few.then(|| self.view(&others()));
            Fold { first: r.first, period: r.period, count: r.count, alone }
        };
        let repeats = repeats.iter().map(fold).collect();
        Drawn { folded, open, repeats }
    }

    fn view(&self, repeats: &[(usize, Repeat)]) -> View {
        // The items of a block that is folded follow each other, so that the order of boxes is one of the items.
        let mut boxes: Vec<i64> = Vec::new();
        let mut box_of = vec![0; self.widths.len()];
        for (i, at) in box_of.iter_mut().enumerate() {
            let fold = repeats.iter().find(|(_, r)| r.others().contains(&i));
            let id = fold.map_or(i as i64, |(n, _)| -1 - *n as i64);
            if fold.is_none() || boxes.last() != Some(&id) {
                boxes.push(id);
            }
            *at = boxes.len() - 1;
        }
        let edges: BTreeSet<(usize, usize)> = self
            .edges
            .iter()
            .map(|&(a, b)| (box_of[a], box_of[b]))
            .filter(|(a, b)| a != b)
            .collect();
        let edges: Vec<(usize, usize)> = edges.into_iter().collect();
        let width_of = |&id: &i64| usize::try_from(id).map_or(FOLDED, |i| self.widths[i]);
        let widths: Vec<i32> = boxes.iter().map(width_of).collect();
        let layout = layered(&widths, &edges);
        let place = |(i, id)| (id, layout.middles[i], layout.layers[i], widths[i]);
        View {
            width: layout.width,
            boxes: boxes.into_iter().enumerate().map(place).collect(),
            edges: edges
                .into_iter()
                .zip(layout.bends)
                .map(|((a, b), bends)| (a, b, bends))
                .collect(),
        }
    }
}

/// Pixels of a box that stands for copies.
const FOLDED: i32 = 150;

/// Pixels of a box with these lines.
fn width(lines: &[&str]) -> i32 {
    let longest = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    ((longest as f64 * CHARACTER + MARGIN) as i32).clamp(NARROWEST, WIDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_block_are_one_box() {
        let mut graph = Graph::default();
        graph.push(&["x"], "x");
        for _ in 0..12 {
            for op in ["matmul", "add", "relu"] {
                graph.push(&[op], op);
            }
        }
        graph.push(&["y"], "y");
        graph.edges = (1..graph.widths.len()).map(|v| (v - 1, v)).collect();
        let drawn = graph.drawn();
        let ids: Vec<i64> = drawn.folded.boxes.iter().map(|b| b.0).collect();
        assert_eq!(ids, [0, 1, 2, 3, -1, 37]);
        assert_eq!(drawn.folded.edges.len(), 5);
        let (fold, open) = (&drawn.repeats[0], drawn.open.expect("something is folded"));
        assert_eq!((fold.first, fold.period, fold.count), (1, 3, 12));
        assert_eq!((open.boxes.len(), open.edges.len()), (38, 37));
        assert!(fold.alone.is_none(), "it is `open`");
    }

    #[test]
    fn blocks_are_unfolded_one_at_a_time() {
        let mut graph = Graph::default();
        let blocks = [["matmul", "add", "relu"], ["conv", "norm", "clip"]];
        let all = blocks.iter().flat_map(|b| std::iter::repeat_n(b, 5)).flatten();
        all.for_each(|op| graph.push(&[op], op));
        graph.edges = (1..graph.widths.len()).map(|v| (v - 1, v)).collect();
        let drawn = graph.drawn();
        let ids = |view: &View| view.boxes.iter().map(|b| b.0).collect::<Vec<i64>>();
        assert_eq!(ids(&drawn.folded), [0, 1, 2, -1, 15, 16, 17, -2]);
        let alone: Vec<_> = drawn.repeats.iter().map(|r| r.alone.as_ref().map(ids)).collect();
        let first: Vec<i64> = (0..18).chain([-2]).collect();
        let second: Vec<i64> = [0, 1, 2, -1].into_iter().chain(15..30).collect();
        assert_eq!(alone, [Some(first), Some(second)]);
    }
}
