//! Selects a diverse subset of the generated programs to time: those that differ most in their work.

use super::programs::{KernelFamily, Point, ProgramDraw};
use mlc_dsl::random::Random;
use mlc_extract::Work;
use std::collections::HashSet;

/// Draws per program that is timed, at most.
const DRAWS: usize = 400;
/// Programs to choose from per program that is timed.
const CHOICE: usize = 6;

/// Coordinates in which programs differ.
type Place = [f64; 7];

fn place(w: &Work) -> Place {
    let log = |v: f64| (1.0 + v).log2();
    let part = |a: f64, b: f64| if b > 0.0 { 4.0 * a / b } else { 0.0 };
    [
        log(w.flops),
        log(w.slow),
        log(w.points),
        log(w.read),
        log(w.written),
        0.5 * log(w.rows),
        part(w.thin, w.flops) + part(w.moved, w.points),
    ]
}

/// Programs for a kernel, the most telling first.
pub fn points(
    draw: &ProgramDraw<'_>,
    family: &KernelFamily,
    count: usize,
    seed: u64,
) -> Vec<Point> {
    let mut rng = Random::of_name(seed, &family.kernel);
    let mut drawn: Vec<Point> = Vec::new();
    let mut known = HashSet::new();
    for _ in 0..DRAWS * count {
        if drawn.len() >= CHOICE * count {
            break;
        }
        if let Some(p) = draw.point(family, &mut rng)
            && known.insert(p.signature.clone())
        {
            drawn.push(p);
        }
    }
    farthest(drawn, count)
}

/// Programs by turns: one as it is drawn, for what is usual, and one that is the farthest from all chosen
/// ones, for what is not.
fn farthest(mut drawn: Vec<Point>, count: usize) -> Vec<Point> {
    let mut gaps = vec![f64::MAX; drawn.len()];
    let mut places: Vec<Place> = drawn.iter().map(|p| place(&p.work)).collect();
    let mut out = Vec::new();
    while out.len() < count && !drawn.is_empty() {
        let farthest =
            || (0..drawn.len()).max_by(|&a, &b| gaps[a].total_cmp(&gaps[b]).then(b.cmp(&a)));
        let at = if out.len() % 2 == 0 { 0 } else { farthest().unwrap_or(0) };
        let here = places.remove(at);
        gaps.remove(at);
        out.push(drawn.remove(at));
        for (g, p) in gaps.iter_mut().zip(&places) {
            let d: f64 = here.iter().zip(p).map(|(a, b)| (a - b) * (a - b)).sum();
            *g = g.min(d);
        }
    }
    out
}
