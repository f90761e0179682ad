//! Sequences of decisions: they turn one generator into many spellings.
//!
//! The sequence of zeros is the reference of every family. Equal sequences give equal graphs.

/// The decisions of one spelling.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    script: Vec<usize>,
    made: Vec<(usize, usize)>,
    random: Option<u64>,
}

impl Choices {
    /// Follows a script, then takes the first of everything.
    pub fn scripted(script: Vec<usize>) -> Choices {
        Choices { script, ..Choices::default() }
    }

    /// Decides by a seeded generator.
    pub fn random(seed: u64) -> Choices {
        let state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Choices { random: Some(state), ..Choices::default() }
    }

    /// One of `n`.
    pub fn pick(&mut self, n: usize) -> usize {
        let at = self.made.len();
        let value = match (self.script.get(at), &mut self.random) {
            (Some(&v), _) => v.min(n.saturating_sub(1)),
            (None, None) => 0,
            (None, Some(state)) => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                (*state >> 20) as usize % n.max(1)
            }
        };
        self.made.push((value, n));
        value
    }

    /// Yes or no; no comes first.
    pub fn flip(&mut self) -> bool {
        self.pick(2) == 1
    }

    /// The script that follows in the order of an odometer, if there is one.
    pub fn successor(&self) -> Option<Vec<usize>> {
        let last = self.made.iter().rposition(|(v, n)| v + 1 < *n)?;
        let mut script: Vec<usize> = self.made[..=last].iter().map(|m| m.0).collect();
        script[last] += 1;
        Some(script)
    }

    /// The decisions so far: which, of how many.
    pub fn made(&self) -> &[(usize, usize)] {
        &self.made
    }
}
