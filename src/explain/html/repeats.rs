//! Runs of equal blocks in a sequence, as the layers of a network are.
//!
//! Only what is shown is folded: a block is a stretch of boxes that look alike, whatever their weights.

use std::collections::HashMap;

/// A block that follows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Where the first copy begins.
    pub first: usize,
    /// Boxes of a copy.
    pub period: usize,
    /// Copies.
    pub count: usize,
}

/// Boxes that folding must save.
const LEAST: usize = 6;

/// Boxes that must look alike for a period to be tried.
const GRAM: usize = 3;

/// Periods that are tried at each place.
const PERIODS: usize = 16;

/// Comparisons in all; what is found within them is folded.
const STEPS: usize = 20_000_000;

/// The repeats of a sequence from its beginning, at each place that which saves most.
pub fn repeats(looks: &[u64]) -> Vec<Repeat> {
    let mut places: HashMap<&[u64], Vec<usize>> = HashMap::new();
    for (i, gram) in looks.windows(GRAM).enumerate() {
        places.entry(gram).or_default().push(i);
    }
    let (mut out, mut at, mut steps) = (Vec::new(), 0, STEPS);
    while at + GRAM <= looks.len() && steps > 0 {
        let all = &places[&looks[at..at + GRAM]];
        let later = &all[all.partition_point(|&i| i <= at)..];
        let mut best: Option<Repeat> = None;
        for period in later.iter().take(PERIODS).map(|i| i - at) {
            let pairs = looks[at..].iter().zip(&looks[at + period..]);
            let alike = pairs.take_while(|(a, b)| a == b).count();
            steps = steps.saturating_sub(alike);
            let found = Repeat { first: at, period, count: 1 + alike / period };
            if found.saves() >= LEAST && best.is_none_or(|b| found.saves() > b.saves()) {
                best = Some(found);
            }
        }
        match best {
            Some(found) => {
                at += found.period * found.count;
                out.push(found);
            }
            None => at += 1,
        }
    }
    out
}

impl Repeat {
    /// Boxes of the copies after the first.
    pub fn saves(&self) -> usize {
        self.period * (self.count - 1)
    }

    /// Those boxes.
    pub fn others(&self) -> std::ops::Range<usize> {
        self.first + self.period..self.first + self.period * self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Repeat> {
        repeats(&text.bytes().map(u64::from).collect::<Vec<_>>())
    }

    #[test]
    fn blocks_that_follow_themselves_are_found() {
        let run = |first, period, count| Repeat { first, period, count };
        assert_eq!(of("xyabcdabcdabcdz"), [run(2, 4, 3)]);
        assert_eq!(of("abcdeabcdexuvwuvwuvw"), [run(11, 3, 3)]);
        assert_eq!(of("aaaaaaaaab"), [run(0, 1, 9)]);
        assert!(of("abcabx").is_empty() && of("ab").is_empty() && of("").is_empty());
    }

    #[test]
    fn ten_thousand_boxes_take_few_steps() {
        let looks: Vec<u64> = (0..10_000).map(|i| i % 17 + (i / 1000) * 100).collect();
        assert!(repeats(&looks).len() <= 20);
    }
}
