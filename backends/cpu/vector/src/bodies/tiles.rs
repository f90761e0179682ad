//! The body of the GEMM micro-kernel, for any kind of vector.

/// Defines `tiles` for the rows and strips (rows and vectors) of a level, whose module defines `Vector`, `LANES` and the
/// operations on it.
macro_rules! tiles {
    ($(#[$feature:meta])*, [$($rows:literal)*], [$(($strip_rows:literal, $vectors:literal))*], [$(($wide_rows:literal, $wide:literal))*]) => {
        use crate::epilogue::{Operand, ClampedLinear, Scale, EpilogueStep};
        use crate::bodies::operands::{StridedPanels, PackedLeftRows, RightRows, PackedRightRows, PointerPanel, LeftRows, IndirectRows};
        use crate::tile::{PanelRows, LeftPanels, VectorSpan, RightOperand, TileOutput};
        use std::mem::MaybeUninit;

        /// # Safety
        /// As [`crate::tile::tiles`], on a machine of this level.
        pub unsafe fn tiles(panels: LeftPanels<'_>, right: RightOperand<'_>, t: &TileOutput<'_>) {
            let depth = panels.depth;
            // SAFETY: the contract of the caller is that of the callee.
            unsafe {
                match right {
                    RightOperand::Packed(b) => packed(panels, PackedRightRows { first: b.as_ptr(), depth }, t),
                    RightOperand::F16(b) => packed(panels, PackedRightRows { first: b.as_ptr(), depth }, t),
                    RightOperand::Bf16(b) => packed(panels, PackedRightRows { first: b.as_ptr(), depth }, t),
                    RightOperand::Indirect { data, lines, first, from } => {
                        let from = from.map(|f| data.as_ptr().wrapping_add(f));
                        let next = if data.len() > FAR { t.parts.len() * LANES } else { 0 };
                        let b = IndirectRows { from, lines: lines.lines.as_ptr().wrapping_add(first), next };
                        let a = PackedLeftRows { first: panels.data.as_ptr(), depth };
                        match (panels.rows, t.parts.len()) {
                            $(($rows, 1) => run::<$rows, 1, _, _>(panels.count, panels.ahead, a, b, t),
                              ($rows, 2) => run::<$rows, 2, _, _>(panels.count, panels.ahead, a, b, t),)*
                            _ => unreachable!("the caller bounds the tile"),
                        }
                    }
                }
            }
        }

        /// Tiles of packed panels of both operands.
        ///
        /// # Safety
        /// As [`tiles`].
        unsafe fn packed<T: Element>(panels: LeftPanels<'_>, b: PackedRightRows<T, LANES>, t: &TileOutput<'_>) {
            let LeftPanels { rows, depth, count, ahead, .. } = panels;
            let a = PackedLeftRows { first: panels.data.as_ptr(), depth };
            // SAFETY: the contract of the caller is that of the callee.
            unsafe {
                match (rows, t.parts.len()) {
                    $(($rows, 1) => run::<$rows, 1, _, _>(count, ahead, a, b, t),
                      ($rows, 2) => run::<$rows, 2, _, _>(count, ahead, a, b, t),)*
                    $(($strip_rows, $vectors) => run::<$strip_rows, $vectors, _, _>(count, ahead, a, b, t),)*
                    $(($wide_rows, $wide) => run::<$wide_rows, $wide, _, _>(count, ahead, a, b, t),)*
                    _ => unreachable!("the caller bounds the tile"),
                }
            }
        }

        /// One tile whose left rows are given by pointers.
        ///
        /// # Safety
        /// As [`crate::tile::pointer_tile`], on a machine of this level.
        pub unsafe fn pointer_tile(rows: usize, a: PointerPanel<'_>, b: PanelRows<'_>, ahead: &[f32], t: &TileOutput<'_>) {
            let b = PackedRightRows::<_, LANES>::new(b, t.parts.len());
            // SAFETY: the contract of the caller is that of the callee.
            unsafe {
                match (rows, t.parts.len()) {
                    $(($rows, 1) => run::<$rows, 1, _, _>(1, ahead, a, b, t),
                      ($rows, 2) => run::<$rows, 2, _, _>(1, ahead, a, b, t),)*
                    $(($wide_rows, $wide) => run::<$wide_rows, $wide, _, _>(1, ahead, a, b, t),)*
                    _ => unreachable!("the caller bounds the tile"),
                }
            }
        }

        /// Tiles whose left rows are strided.
        ///
        /// # Safety
        /// As [`crate::tile::strided_tiles`], on a machine of this level.
        pub unsafe fn strided_tiles(count: usize, rows: usize, a: StridedPanels<'_>, b: PanelRows<'_>, ahead: &[f32], t: &TileOutput<'_>) {
            let b = PackedRightRows::<_, LANES>::new(b, t.parts.len());
            // SAFETY: the contract of the caller is that of the callee.
            unsafe {
                match (rows, t.parts.len()) {
                    $(($rows, 1) => run::<$rows, 1, _, _>(count, ahead, a, b, t),
                      ($rows, 2) => run::<$rows, 2, _, _>(count, ahead, a, b, t),)*
                    $(($wide_rows, $wide) => run::<$wide_rows, $wide, _, _>(count, ahead, a, b, t),)*
                    _ => unreachable!("the caller bounds the tile"),
                }
            }
        }

        /// Elements of an operand that stays in the second-level cache.
        const FAR: usize = 1 << 19;

        /// Depth in which the lines of the result arrive.
        const LONG: usize = 64;

        /// Steps of a tile that what is fetched takes to arrive.
        const SOON: usize = 16;

        /// Elements of a line of a cache.
        const CACHE_LINE: usize = 16;

        /// How far ahead of its use the left panel is fetched into the first-level cache, in elements.
        const AHEAD: usize = 128;

        /// Adds what is there to `$r` by `$v` sums if the target `$t` says so, applies its steps to them, whose first row is row `$row`, and
        /// writes them.
        ///
        /// Written out where sums are: what a function is given by reference would lie in memory all the time. Only for vectors that count as a whole
        /// and steps that are applied in registers, though, which is what most tiles are: the code would be twice as much for all.
        macro_rules! settle {
            ($R:expr, $V:expr, $sums:ident, $parts:ident, $t:ident, $row:expr) => {{
                let first = $row;
                if $t.epilogue.in_memory().is_empty() && $parts.iter().all(|p| p.len == LANES) {
                    let mut sums = $sums;
                    settled!($R, $V, sums, $parts, $t, first);
                    for r in 0..$R {
                        for v in 0..$V {
                            // SAFETY: the part lies inside the result.
                            unsafe { store($t.out.add($parts[v].at + r * $t.stride), sums[r][v]) };
                        }
                    }
                } else {
                    // These take a place in memory for more vectors than two, which the loop that sums would write in every step.
                    let sums = if $V > 2 { std::hint::black_box($sums) } else { $sums };
                    let mut tile = [const { MaybeUninit::<Vector>::uninit() }; LARGEST];
                    for r in 0..$R {
                        for v in 0..$V {
                            tile[r * $V + v].write(sums[r][v]);
                        }
                    }
                    // SAFETY: these vectors were written. Their parts lie inside the result, and the caller checked the operands.
                    unsafe {
                        let tile = std::slice::from_raw_parts_mut(tile.as_mut_ptr().cast::<Vector>(), $R * $V);
                        finish(tile, $t, &$parts, first);
                    }
                }
            }};
        }

        /// Adds what is there to sums of vectors that count as a whole if the target says so, and applies the steps that are applied in registers.
        macro_rules! settled {
            ($R:expr, $V:expr, $sums:ident, $parts:ident, $t:ident, $first:ident) => {{
                if $t.add {
                    for r in 0..$R {
                        for v in 0..$V {
                            // SAFETY: the part lies inside the result.
                            let before = unsafe { load($t.out.add($parts[v].at + r * $t.stride)) };
                            $sums[r][v] = add(before, $sums[r][v]);
                        }
                    }
                }
                for step in $t.epilogue.in_registers() {
                    macro_rules! each {
                        ($r:ident, $v:ident, $f:ident, $x:expr) => {
                            for $r in 0..$R {
                                for $v in 0..$V {
                                    $sums[$r][$v] = $f($sums[$r][$v], $x);
                                }
                            }
                        };
                    }
                    // SAFETY: the caller checked that the operand covers the tiles.
                    let row = |d: &[f32], r: usize| splat(unsafe { *d.as_ptr().add($first + r) });
                    // SAFETY: as above.
                    let column = |d: &[f32], part: VectorSpan| unsafe { load(d.as_ptr().add(part.column)) };
                    // SAFETY: as above.
                    let dense = |d: &[f32], r: usize, part: VectorSpan| unsafe { load(d.as_ptr().add(part.at + r * $t.stride)) };
                    match *step {
                        EpilogueStep::Add(Operand::Row(d)) => each!(r, v, add, row(d, r)),
                        EpilogueStep::Mul(Operand::Row(d)) => each!(r, v, multiply, row(d, r)),
                        EpilogueStep::Sub(Operand::Row(d)) => each!(r, v, subtract, row(d, r)),
                        EpilogueStep::Add(Operand::Column(d)) => each!(r, v, add, column(d, $parts[v])),
                        EpilogueStep::Mul(Operand::Column(d)) => each!(r, v, multiply, column(d, $parts[v])),
                        EpilogueStep::Sub(Operand::Column(d)) => each!(r, v, subtract, column(d, $parts[v])),
                        EpilogueStep::Add(Operand::Dense(d)) => each!(r, v, add, dense(d, r, $parts[v])),
                        EpilogueStep::Mul(Operand::Dense(d)) => each!(r, v, multiply, dense(d, r, $parts[v])),
                        EpilogueStep::Sub(Operand::Dense(d)) => each!(r, v, subtract, dense(d, r, $parts[v])),
                        EpilogueStep::Add(Operand::Number(x)) => each!(r, v, add, splat(x)),
                        EpilogueStep::Mul(Operand::Number(x)) => each!(r, v, multiply, splat(x)),
                        EpilogueStep::Sub(Operand::Number(x)) => each!(r, v, subtract, splat(x)),
                        EpilogueStep::Max(x) => each!(r, v, positive_larger, splat(x)),
                        EpilogueStep::Min(x) => each!(r, v, smaller, splat(x)),
                        EpilogueStep::ClampedGate(ramp) => each!(r, v, multiply, held(ramp, $sums[r][v])),
                        // Not in registers.
                        _ => {}
                    }
                }
            }};
        }

        /// Never a part of a larger function, in which sums would not stay in registers. Where vectors are a feature, callers without it see to that.
        ///
        /// # Safety
        /// `a` holds `count` panels of `R` rows, `b` lines for their depth; otherwise as [`tiles`].
        $(#[$feature])*
        #[cfg_attr(target_arch = "aarch64", inline(never))]
        unsafe fn run<const R: usize, const V: usize, A: LeftRows<R>, B: RightRows<V, Element: Element>>(
            count: usize,
            ahead: &[f32],
            a: A,
            b: B,
            t: &TileOutput<'_>,
        ) {
            const { assert!(A::STEPS == 1 || A::STEPS == 4, "the steps that are written out below") };
            let mut parts = [VectorSpan::default(); V];
            parts.copy_from_slice(&t.parts[..V]);
            let (pieces, length) = a.pieces();
            let depth = pieces * length;
            // Spread evenly over all that is summed here. If nothing is ahead, an address that is mapped is fetched again and again.
            let pace = ahead.len().div_ceil((count * depth).max(1)) * A::STEPS;
            // Of more than that, which few rows read once, the processor itself fetches what comes next, and is kept from it by being told.
            let (ahead, pace) = if pace > CACHE_LINE { (&[][..], 0) } else { (ahead, pace) };
            let mut ahead = if ahead.is_empty() { t.out.cast_const() } else { ahead.as_ptr() };
            // What the sums will meet is fetched shortly before: what is summed would drive it out of the first-level cache again.
            let soon = depth.saturating_sub(R * V + SOON);
            let dense = t.epilogue.dense().map_or(t.out.cast_const(), <[f32]>::as_ptr);
            for panel in 0..count {
                if V == 1 && depth >= LONG {
                    for r in 0..R {
                        prefetch_to_write(t.out.wrapping_add(parts[0].at + r * t.stride));
                    }
                }
                let mut sums = [[zero(); V]; R];
                let mut k = 0;
                for piece in 0..pieces {
                    // SAFETY: there is such a piece.
                    let mut cursor = unsafe { a.at(panel, piece) };
                    // A step, so many ahead of the cursor.
                    macro_rules! step {
                        ($ahead:expr) => {
                            // SAFETY: all pieces and lines are inside the operands.
                            unsafe {
                                let line = b.at(k + $ahead);
                                if let Some(next) = b.next(line, panel % V) {
                                    prefetch_later(next);
                                }
                                if V <= 2 {
                                    let mut row = [zero(); V];
                                    for v in 0..V {
                                        row[v] = B::Element::vector(line[v]);
                                    }
                                    for r in 0..R {
                                        let x = splat(*A::row(&cursor, r, $ahead));
                                        for v in 0..V {
                                            sums[r][v] = multiply_add(x, row[v], sums[r][v]);
                                        }
                                    }
                                } else {
                                    // More vectors than rows: the elements of the left line are what stays in registers.
                                    let mut x = [zero(); R];
                                    for r in 0..R {
                                        x[r] = splat(*A::row(&cursor, r, $ahead));
                                    }
                                    for v in 0..V {
                                        let y = B::Element::vector(line[v]);
                                        for r in 0..R {
                                            sums[r][v] = multiply_add(x[r], y, sums[r][v]);
                                        }
                                    }
                                }
                            }
                        };
                    }
                    // What is fetched is decided once for several steps: a step has no time for it.
                    for _ in 0..length / A::STEPS {
                        if V > 1 && k + A::STEPS > soon {
                            for i in k.max(soon)..k + A::STEPS {
                                let i = (i - soon).min(R * V - 1);
                                let at = parts[0].at + i / V * t.stride + i % V * LANES;
                                prefetch_to_write(t.out.wrapping_add(at));
                                prefetch(dense.wrapping_add(at));
                            }
                        }
                        prefetch(A::row(&cursor, 0, 0).wrapping_add(AHEAD));
                        if !A::MANY && R * A::STEPS > CACHE_LINE {
                            prefetch(A::row(&cursor, 0, 0).wrapping_add(AHEAD + CACHE_LINE));
                        }
                        prefetch_later(ahead);
                        ahead = ahead.wrapping_add(pace);
                        step!(0);
                        if A::STEPS > 1 {
                            step!(1);
                            step!(2);
                            step!(3);
                        }
                        A::advance(&mut cursor, A::STEPS);
                        k += A::STEPS;
                    }
                    for _ in 0..length % A::STEPS {
                        step!(0);
                        A::advance(&mut cursor, 1);
                        k += 1;
                    }
                }
                settle!(R, V, sums, parts, t, t.row + panel * R);
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
        unsafe fn read(at: *const f32, part: VectorSpan) -> Vector {
            // SAFETY: only the elements that count are read.
            unsafe { if part.len == LANES { load(at) } else { load_part(at.wrapping_sub(part.skip), part) } }
        }

        /// What a ramp yields.
        $(#[$feature])*
        #[inline]
        fn held(ramp: ClampedLinear, x: Vector) -> Vector {
            let line = add(multiply(x, splat(ramp.factor)), splat(ramp.shift));
            smaller(positive_larger(line, splat(ramp.low)), splat(ramp.high))
        }

        /// Writes the part of a vector that counts.
        ///
        /// # Safety
        /// The part is valid for writes.
        $(#[$feature])*
        #[inline]
        unsafe fn write(at: *mut f32, part: VectorSpan, x: Vector) {
            // SAFETY: only the elements that count are written.
            unsafe { if part.len == LANES { store(at, x) } else { store_part(at.wrapping_sub(part.skip), part, x) } }
        }
    };
}
pub(crate) use tiles;
