//! Reproducible pseudo-random numbers for sampling and fuzzing: the same seed gives the same stream on every
//! machine and thread. Never seeded by a clock or the system.

/// Elements of random string tensors: they parse as numbers, as some operators require.
pub const NUMERALS: &[&str] = &["0", "1", "2", "10", "12"];

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The stream whose initial SplitMix64 state is `seed` itself.
    pub fn from_state(seed: u64) -> Random {
        Random(seed)
    }

    /// The stream of a seed and a name.
    pub fn of_name(seed: u64, name: &str) -> Random {
        let mut h = 0xcbf2_9ce4_8422_2325u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for b in name.bytes() {
            h = (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Random(h)
    }

    /// An independent stream, split off this one.
    pub fn fork(&mut self) -> Random {
        Random(self.bits())
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 if there is none.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.bits() % n as u64) as usize }
    }

    /// An integer of `low..=high`; `low` if that is empty.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let n = high.saturating_sub(low).saturating_add(1).max(1);
        low.wrapping_add((self.bits() % n as u64) as i64)
    }

    /// A real number of `0..1`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A normally distributed number.
    pub fn normal(&mut self) -> f64 {
        let u = self.unit().max(f64::MIN_POSITIVE);
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// One of `items`, which is not empty.
    pub fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// Brings `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// A random shape of `count` elements.
    pub fn shape(&mut self, count: i64) -> Vec<i64> {
        if count == 0 {
            return self.pick(&[vec![0], vec![0, 2], vec![3, 0]]);
        }
        let mut factors = Vec::new();
        let (mut n, mut p) = (count, 2);
        while n > 1 && p * p <= n {
            if n % p == 0 {
                factors.push(p);
                n /= p;
            } else {
                p += 1;
            }
        }
        if n > 1 {
            factors.push(n);
        }
        let groups = 1 + self.below(4);
        let mut shape = vec![1; groups];
        for f in factors {
            shape[self.below(groups)] *= f;
        }
        if !self.chance(0.3) {
            shape.retain(|&d| d != 1);
        }
        shape
    }
}
