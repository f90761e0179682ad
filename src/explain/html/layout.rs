//! Layered drawings of directed graphs (Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
//! structures", 1981): layers by the longest path, order within layers by barycentres, places by isotonic regression.
//!
//! Takes time nearly linear in boxes and edges, and yields the same for the same graph. Knows nothing of models.

/// Pixels between neighbours of a layer.
pub const GAP: i32 = 18;

/// Layers that an edge may cross and still be led around boxes; a longer one is drawn only where its ends are looked at.
const FAR: u32 = 14;

/// Passes over all layers, down and up, for the order and for the places.
const SWEEPS: usize = 4;

/// How much straighter an edge is to be between boxes than at them.
const STRAIGHT: f64 = 4.0;

/// Where boxes are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The layer of each box, from the top.
    pub layers: Vec<u32>,
    /// The middle of each box.
    pub middles: Vec<i32>,
    /// For each edge its places on the layers that it crosses; nothing of an edge that is not led around boxes.
    pub bends: Vec<Option<Vec<i32>>>,
    /// Pixels from the left end to the right end.
    pub width: i32,
}

/// A box, or a bend of an edge.
struct Vertex {
    width: f64,
    layer: u32,
    above: Vec<usize>,
    below: Vec<usize>,
    is_bend: bool,
}

/// Places boxes of these widths. An edge leads from a box to a later one; those that do not are left undrawn.
pub fn layered(widths: &[i32], edges: &[(usize, usize)]) -> Layout {
    let layers = layers(widths.len(), edges);
    let mut vertices: Vec<Vertex> =
        widths.iter().zip(&layers).map(|(w, l)| Vertex::of(f64::from(*w), *l, false)).collect();
    let bends = edges.iter().map(|&(from, to)| lead(&mut vertices, from, to)).collect::<Vec<_>>();
    let mut rows = vec![Vec::new(); layers.iter().map(|l| *l as usize + 1).max().unwrap_or(0)];
    for (v, vertex) in vertices.iter().enumerate() {
        rows[vertex.layer as usize].push(v);
    }
    order(&vertices, &mut rows);
    let x = places(&vertices, &rows);
    let ends = |sign: f64| move |(v, x): (&Vertex, &f64)| x + sign * v.width / 2.0;
    let left = vertices.iter().zip(&x).map(ends(-1.0)).fold(f64::INFINITY, f64::min);
    let right = vertices.iter().zip(&x).map(ends(1.0)).fold(0.0, f64::max);
    let pixel = |v: usize| (x[v] - left).round() as i32;
    Layout {
        middles: (0..widths.len()).map(pixel).collect(),
        bends: bends.into_iter().map(|b| b.map(|b| b.into_iter().map(pixel).collect())).collect(),
        width: if widths.is_empty() { 0 } else { (right - left).ceil() as i32 },
        layers,
    }
}

impl Vertex {
    fn of(width: f64, layer: u32, is_bend: bool) -> Vertex {
        Vertex { width, layer, above: vec![], below: vec![], is_bend }
    }
}

/// One more than the longest path from a source; sources are right above what reads them first.
fn layers(count: usize, edges: &[(usize, usize)]) -> Vec<u32> {
    let mut below = vec![Vec::new(); count];
    let mut is_source = vec![true; count];
    for &(from, to) in edges.iter().filter(|(from, to)| from < to) {
        below[from].push(to);
        is_source[to] = false;
    }
    let mut layers = vec![0u32; count];
    for from in 0..count {
        for &to in &below[from] {
            layers[to] = layers[to].max(layers[from] + 1);
        }
    }
    for v in (0..count).filter(|&v| is_source[v]) {
        let first = below[v].iter().map(|&to| layers[to]).min();
        layers[v] = first.map_or(0, |l| l - 1);
    }
    layers
}

/// The bends of an edge, one on each layer that it crosses, as new vertices.
fn lead(vertices: &mut Vec<Vertex>, from: usize, to: usize) -> Option<Vec<usize>> {
    let span = vertices[to].layer.checked_sub(vertices[from].layer).filter(|s| *s > 0)?;
    if span > FAR {
        return None;
    }
    let mut bends = Vec::new();
    let mut last = from;
    for layer in vertices[from].layer + 1..vertices[to].layer {
        let next = vertices.len();
        vertices.push(Vertex::of(0.0, layer, true));
        join(vertices, last, next);
        bends.push(next);
        last = next;
    }
    join(vertices, last, to);
    Some(bends)
}

fn join(vertices: &mut [Vertex], from: usize, to: usize) {
    vertices[from].below.push(to);
    vertices[to].above.push(from);
}

/// Sorts every row by the mean position of the neighbours, of the row above and of that below in turns.
fn order(vertices: &[Vertex], rows: &mut [Vec<usize>]) {
    let mut at = vec![0.0; vertices.len()];
    for row in rows.iter() {
        row.iter().enumerate().for_each(|(i, &v)| at[v] = i as f64);
    }
    for sweep in 0..2 * SWEEPS {
        let down = sweep % 2 == 0;
        let count = rows.len();
        for i in 0..count {
            let row = &mut rows[if down { i } else { count - 1 - i }];
            let key = |v: usize| {
                let near = if down { &vertices[v].above } else { &vertices[v].below };
                mean(near.iter().map(|&n| (at[n], 1.0))).unwrap_or(at[v])
            };
            let mut keyed: Vec<(f64, usize)> = row.iter().map(|&v| (key(v), v)).collect();
            // Stable: what has no preference stays where it is.
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            *row = keyed.into_iter().map(|(_, v)| v).collect();
            row.iter().enumerate().for_each(|(i, &v)| at[v] = i as f64);
        }
    }
}

/// The middle of every vertex: near to its neighbours, in the order of its row, and apart from the others.
fn places(vertices: &[Vertex], rows: &[Vec<usize>]) -> Vec<f64> {
    let mut x = vec![0.0; vertices.len()];
    for row in rows {
        let wanted = vec![0.0; row.len()];
        apart(vertices, row, &wanted, &mut x);
    }
    for sweep in 0..2 * SWEEPS + 1 {
        let last = sweep == 2 * SWEEPS;
        let down = sweep % 2 == 0;
        for i in 0..rows.len() {
            let row = &rows[if down { i } else { rows.len() - 1 - i }];
            let wanted = |&v: &usize| {
                let Vertex { above, below, is_bend, .. } = &vertices[v];
                let weigh = |&n: &usize| {
                    (x[n], if *is_bend && vertices[n].is_bend { STRAIGHT } else { 1.0 })
                };
                let (above, below) = (above.iter().map(weigh), below.iter().map(weigh));
                let of = match (last, down) {
                    (true, _) => mean(above.chain(below)),
                    (false, true) => mean(above),
                    (false, false) => mean(below),
                };
                of.unwrap_or(x[v])
            };
            let wanted: Vec<f64> = row.iter().map(wanted).collect();
            apart(vertices, row, &wanted, &mut x);
        }
    }
    x
}

/// The places nearest to those wanted at which neighbours of a row are apart: a regression that keeps the order, by pooling
/// adjacent violators.
fn apart(vertices: &[Vertex], row: &[usize], wanted: &[f64], x: &mut [f64]) {
    let mut offset = 0.0;
    let mut offsets = Vec::with_capacity(row.len());
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for (i, &v) in row.iter().enumerate() {
        if i > 0 {
            let gap =
                if vertices[row[i - 1]].is_bend && vertices[v].is_bend { GAP / 2 } else { GAP };
            offset += (vertices[row[i - 1]].width + vertices[v].width) / 2.0 + f64::from(gap);
        }
        offsets.push(offset);
        let mut pool = (wanted[i] - offset, 1.0, 1);
        while let Some(&(sum, weight, count)) = pools.last()
            && sum / weight >= pool.0 / pool.1
        {
            pools.pop();
            pool = (pool.0 + sum, pool.1 + weight, pool.2 + count);
        }
        pools.push(pool);
    }
    let mut i = 0;
    for (sum, weight, count) in pools {
        for _ in 0..count {
            x[row[i]] = sum / weight + offsets[i];
            i += 1;
        }
    }
}

/// A weighted mean; nothing of nothing.
fn mean(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weight) = values.fold((0.0, 0.0), |(s, w), (x, by)| (s + x * by, w + by));
    (weight > 0.0).then(|| sum / weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph whose edges lead on by up to so many boxes, by a fixed sequence.
    fn graph(count: usize, reach: usize) -> (Vec<i32>, Vec<(usize, usize)>) {
        let mut state = 7u64;
        let mut next = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let widths = (0..count).map(|_| 60 + next(120) as i32).collect();
        let edges = (1..count).flat_map(|v| {
            let from = |back: usize| (v.saturating_sub(1 + back), v);
            [from(next(reach)), from(next(reach))]
        });
        (widths, edges.collect())
    }

    #[test]
    fn boxes_do_not_overlap_and_edges_lead_down() {
        for (count, reach) in [(1, 1), (2, 1), (40, 3), (300, 12), (300, 120)] {
            let (widths, edges) = graph(count, reach);
            let drawn = layered(&widths, &edges);
            assert_eq!(drawn, layered(&widths, &edges), "deterministic");
            for &(from, to) in &edges {
                assert!(drawn.layers[from] < drawn.layers[to]);
            }
            let mut boxes: Vec<usize> = (0..count).collect();
            boxes.sort_by_key(|&v| (drawn.layers[v], drawn.middles[v]));
            for pair in boxes.windows(2).filter(|p| drawn.layers[p[0]] == drawn.layers[p[1]]) {
                let between = drawn.middles[pair[1]] - drawn.middles[pair[0]];
                assert!(2 * between >= widths[pair[0]] + widths[pair[1]], "{pair:?}");
            }
            for (middle, width) in drawn.middles.iter().zip(&widths) {
                assert!(2 * middle >= width - 1);
                assert!(middle + width / 2 <= drawn.width + 1);
            }
            for (edge, bends) in edges.iter().zip(&drawn.bends) {
                let span = drawn.layers[edge.1] - drawn.layers[edge.0];
                assert_eq!(
                    bends.as_ref().map(Vec::len),
                    (span <= FAR).then_some(span as usize - 1)
                );
            }
        }
    }

    #[test]
    fn a_chain_is_straight() {
        let drawn = layered(&[80, 120, 60, 90], &[(0, 1), (1, 2), (2, 3)]);
        assert_eq!(drawn.middles, [60; 4]);
        assert_eq!(drawn.layers, [0, 1, 2, 3]);
    }

    #[test]
    fn what_leads_back_is_left_undrawn() {
        let drawn = layered(&[50, 50], &[(1, 0), (0, 1), (0, 0)]);
        assert_eq!(drawn.bends, [None, Some(vec![]), None]);
        assert_eq!(layered(&[], &[]), Layout::default());
    }
}
