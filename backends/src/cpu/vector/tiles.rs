//! The body of the register tile, for any kind of vector.

/// Where the vectors of a line of the right operand lie.
pub trait Lines<const V: usize>: Copy {
    /// The vectors of line `k`.
    ///
    /// # Safety
    /// `k` is below the depth.
    unsafe fn at(&self, k: usize) -> [*const f32; V];

    /// What is fetched for the next tile while vector `v` of line `k` is used.
    fn next(&self, line: [*const f32; V], v: usize) -> Option<*const f32>;
}

/// Packed panels: of two vectors, one after the other, or one of one vector.
#[derive(Clone, Copy)]
pub struct Packed<const W: usize> {
    pub first: *const f32,
    pub depth: usize,
}

impl<const V: usize, const W: usize> Lines<V> for Packed<W> {
    #[inline(always)]
    fn next(&self, _: [*const f32; V], _: usize) -> Option<*const f32> {
        None
    }

    #[inline(always)]
    unsafe fn at(&self, k: usize) -> [*const f32; V] {
        let wide = if V == 1 { 1 } else { 2 };
        // SAFETY: the panels hold the depth.
        std::array::from_fn(|v| unsafe {
            self.first.add(v / wide * self.depth * wide * W + (k * wide + v % wide) * W)
        })
    }
}

/// Lines that lie anywhere.
#[derive(Clone, Copy)]
pub struct Scattered {
    pub from: [*const f32; 2],
    pub lines: *const usize,
    /// From a vector to what the next tile reads in its place.
    pub next: usize,
}

impl<const V: usize> Lines<V> for Scattered {
    #[inline(always)]
    fn next(&self, line: [*const f32; V], v: usize) -> Option<*const f32> {
        Some(line[v].wrapping_add(self.next))
    }

    #[inline(always)]
    unsafe fn at(&self, k: usize) -> [*const f32; V] {
        // SAFETY: there is a line for every depth, inside the operand.
        unsafe {
            let line = *self.lines.add(k);
            std::array::from_fn(|v| self.from[v].add(line))
        }
    }
}

/// Defines `tiles` for the rows and strips (rows and vectors) of a level, whose module defines `Vector`, `LANES` and the
/// operations on it.
macro_rules! tiles {
    ($(#[$feature:meta])*, [$($rows:literal)*], [$(($strip_rows:literal, $vectors:literal))*]) => {
        use crate::cpu::gemm::chain::{Operand, Step};
        use crate::cpu::vector::tiles::{Lines, Packed, Scattered};
        use crate::cpu::gemm::kernel::{Panels, Part, Right, Target};

        /// # Safety
        /// As [`crate::cpu::gemm::kernel::tiles`], on a machine of this level.
        pub unsafe fn tiles(panels: Panels<'_>, right: Right<'_>, t: &Target<'_>) {
            let Panels { rows, depth, .. } = panels;
            // SAFETY: the contract of the caller is that of the callee.
            unsafe {
                match right {
                    Right::Packed(b) => {
                        let b = Packed::<LANES> { first: b.as_ptr(), depth };
                        match (rows, t.parts.len()) {
                            $(($rows, 1) => run::<$rows, 1, _>(panels, b, t),
                              ($rows, 2) => run::<$rows, 2, _>(panels, b, t),)*
                            $(($strip_rows, $vectors) => run::<$strip_rows, $vectors, _>(panels, b, t),)*
                            _ => unreachable!("the caller bounds the tile"),
                        }
                    }
                    Right::Lines { data, lines, first, from } => {
                        let from = from.map(|f| data.as_ptr().wrapping_add(f));
                        let next = if data.len() > FAR { t.parts.len() * LANES } else { 0 };
                        let b = Scattered { from, lines: lines.lines.as_ptr().wrapping_add(first), next };
                        match (rows, t.parts.len()) {
                            $(($rows, 1) => run::<$rows, 1, _>(panels, b, t),
                              ($rows, 2) => run::<$rows, 2, _>(panels, b, t),)*
                            _ => unreachable!("the caller bounds the tile"),
                        }
                    }
                }
            }
        }

        /// Elements of an operand that stays in the second-level cache.
        const FAR: usize = 1 << 19;

        /// Depth in which the lines of the result arrive.
        const LONG: usize = 64;

        /// How far ahead of its use the left panel is fetched into the first-level cache, in elements.
        const AHEAD: usize = 128;

        /// # Safety
        /// `R` is the rows of the panels, `b` holds lines for their depth; otherwise as [`tiles`].
        $(#[$feature])*
        unsafe fn run<const R: usize, const V: usize, B: Lines<V>>(panels: Panels<'_>, b: B, t: &Target<'_>) {
            let mut parts = [Part::default(); V];
            parts.copy_from_slice(&t.parts[..V]);
            let (depth, mut a) = (panels.depth, panels.data.as_ptr());
            // Spread evenly over all that is summed here.
            let mut ahead = panels.ahead.as_ptr();
            let pace = panels.ahead.len().div_ceil((panels.count * depth).max(1));
            for panel in 0..panels.count {
                if depth >= LONG {
                    for r in 0..R {
                        for v in 0..V {
                            prefetch_to_write(t.out.wrapping_add(parts[v].at + r * t.stride));
                        }
                    }
                }
                let mut sums = [[zero(); V]; R];
                for k in 0..depth {
                    // SAFETY: all lines are inside the operands.
                    unsafe {
                        prefetch(a.wrapping_add(AHEAD));
                        prefetch_later(ahead);
                        ahead = ahead.wrapping_add(pace);
                        let line = b.at(k);
                        if let Some(next) = b.next(line, panel % V) {
                            prefetch_later(next);
                        }
                        if V <= 2 {
                            let mut row = [zero(); V];
                            for v in 0..V {
                                row[v] = load(line[v]);
                            }
                            for r in 0..R {
                                let x = splat(*a.add(r));
                                for v in 0..V {
                                    sums[r][v] = multiply_add(x, row[v], sums[r][v]);
                                }
                            }
                        } else {
                            // More vectors than rows: the elements of the left line are what stays in registers.
                            let mut x = [zero(); R];
                            for r in 0..R {
                                x[r] = splat(*a.add(r));
                            }
                            for v in 0..V {
                                let y = load(line[v]);
                                for r in 0..R {
                                    sums[r][v] = multiply_add(x[r], y, sums[r][v]);
                                }
                            }
                        }
                        a = a.add(R);
                    }
                }
                if t.add {
                    for r in 0..R {
                        for v in 0..V {
                            // SAFETY: the part lies inside the result.
                            let before = unsafe { read(t.out.add(parts[v].at + r * t.stride), parts[v]) };
                            sums[r][v] = add(before, sums[r][v]);
                        }
                    }
                }
                let first = t.row + panel * R;
                // Written out here: what a function is given by reference would lie in memory all the time.
                for step in t.chain.steps() {
                    macro_rules! each {
                        ($r:ident, $v:ident, $f:ident, $x:expr) => {
                            for $r in 0..R {
                                for $v in 0..V {
                                    sums[$r][$v] = $f(sums[$r][$v], $x);
                                }
                            }
                        };
                    }
                    // SAFETY: the caller checked that the operand covers the tiles.
                    let row = |d: &[f32], r: usize| splat(unsafe { *d.as_ptr().add(first + r) });
                    // SAFETY: as above.
                    let column = |d: &[f32], part: Part| unsafe { read(d.as_ptr().add(part.column), part) };
                    // SAFETY: as above.
                    let dense = |d: &[f32], r: usize, part: Part| unsafe {
                        read(d.as_ptr().add(part.at + r * t.stride), part)
                    };
                    match *step {
                        Step::Add(Operand::Row(d)) => each!(r, v, add, row(d, r)),
                        Step::Mul(Operand::Row(d)) => each!(r, v, multiply, row(d, r)),
                        Step::Add(Operand::Column(d)) => each!(r, v, add, column(d, parts[v])),
                        Step::Mul(Operand::Column(d)) => each!(r, v, multiply, column(d, parts[v])),
                        Step::Add(Operand::Dense(d)) => each!(r, v, add, dense(d, r, parts[v])),
                        Step::Mul(Operand::Dense(d)) => each!(r, v, multiply, dense(d, r, parts[v])),
                        Step::Add(Operand::Number(x)) => each!(r, v, add, splat(x)),
                        Step::Mul(Operand::Number(x)) => each!(r, v, multiply, splat(x)),
                        Step::Max(x) => each!(r, v, positive_larger, splat(x)),
                        Step::Min(x) => each!(r, v, smaller, splat(x)),
                    }
                }
                for r in 0..R {
                    for v in 0..V {
                        // SAFETY: the part lies inside the result.
                        unsafe { write(t.out.add(parts[v].at + r * t.stride), parts[v], sums[r][v]) };
                    }
                }
                for part in &mut parts {
                    part.at += R * t.stride;
                }
            }
        }

        /// The larger; `x` if it is NaN. A positive zero is larger than a negative one.
        $(#[$feature])*
        #[inline]
        fn positive_larger(x: Vector, y: Vector) -> Vector {
            add(larger(x, y), zero())
        }

        /// A vector of which a part counts.
        ///
        /// # Safety
        /// The part is valid for reads.
        $(#[$feature])*
        #[inline]
        unsafe fn read(at: *const f32, part: Part) -> Vector {
            // SAFETY: only the elements that count are read.
            unsafe { if part.len == LANES { load(at) } else { load_part(at.wrapping_sub(part.skip), part) } }
        }

        /// Writes the part of a vector that counts.
        ///
        /// # Safety
        /// The part is valid for writes.
        $(#[$feature])*
        #[inline]
        unsafe fn write(at: *mut f32, part: Part, x: Vector) {
            // SAFETY: only the elements that count are written.
            unsafe { if part.len == LANES { store(at, x) } else { store_part(at.wrapping_sub(part.skip), part, x) } }
        }
    };
}
pub(super) use tiles;
