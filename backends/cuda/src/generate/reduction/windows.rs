//! Reductions over overlapping windows, such as depthwise convolution and pooling: a block has a tile of the result, and the tile's input
//! with its halo is in shared memory once. Recognised by access patterns, not by the operator.

use super::super::emit::{Emitter, SharedWindow, linear};
use super::super::grid::GridSize;
use super::super::spelling as spell;
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Affine, Int, Real, Slot};
use mlc_dsl::ir::{DType, Value};

/// Threads of a block.
const THREADS: i64 = 256;
/// Elements of a tile: at most so many, and fewer where these leave multiprocessors idle.
const MOST: i64 = 1024;
/// Elements of a tile along the last axis, before others are looked at.
const ALONG: i64 = 32;
/// Bytes of shared memory that a tile's windows may take.
const BYTES: i64 = 32 << 10;
/// Least reuse of an element by a tile for which shared memory pays.
const GAIN: i64 = 2;

/// The positions that windows read along an axis of a value, by output axes and variables of the reduction.
struct WindowedAxis {
    position: Affine,
    extent: i64,
    /// How many positions a tile reads, halo included.
    span: i64,
}

/// Windows over a value in memory.
pub struct WindowedReduction {
    read: Value,
    along: Vec<WindowedAxis>,
    over: Vec<(Slot, i64)>,
    /// Elements of a tile along each output axis.
    tile: Vec<i64>,
}

fn up(n: i64, by: i64) -> i64 {
    n / by + i64::from(n % by != 0)
}

impl WindowedReduction {
    /// The windows of a value, at these axes, that takes one reduction.
    pub fn recognise(
        e: &mut Emitter<'_>,
        v: Value,
        index: &[Int],
        axes: &[(Slot, i64)],
    ) -> Option<WindowedReduction> {
        let whole = e.analyse(&[(v, index.to_vec())]);
        let [(h, at)] = whole.reductions.as_slice() else { return None };
        let Body::Real(Real::Reduce(r)) = e.body_at(*h, at)? else { return None };
        let inner = e.analyse_real(*h, &r.body);
        if !inner.reductions.is_empty() {
            return None;
        }
        let mut found: Vec<WindowedReduction> = vec![];
        for (read, at) in &inner.reads {
            // Of a value that is read at two places, one may lie outside of the tile's windows.
            let all = inner.reads.iter().chain(&whole.reads);
            if all.filter(|o| o.0 == *read).count() > 1 {
                continue;
            }
            found.extend(WindowedReduction::over(e, *read, at, axes, &r.over));
        }
        found.into_iter().find(|w| w.is_gain(axes))
    }

    fn over(
        e: &Emitter<'_>,
        read: Value,
        at: &[Int],
        axes: &[(Slot, i64)],
        over: &[(Slot, i64)],
    ) -> Option<WindowedReduction> {
        let shape = e.kernel().program.ty(read).known_shape()?;
        let mut along = vec![];
        for (i, &n) in at.iter().zip(&shape) {
            let position = linear(i)?;
            let known = |s: Slot| axes.iter().chain(over).any(|a| a.0 == s);
            if !position.terms.iter().all(|t| known(t.0)) {
                return None;
            }
            along.push(WindowedAxis { position, extent: n as i64, span: 1 });
        }
        let mut w =
            WindowedReduction { read, along, over: over.to_vec(), tile: vec![1; axes.len()] };
        w.cut(e, axes);
        Some(w)
    }

    /// Chooses the tile: along the last axis first, then along those that windows overlap along, the shortest first.
    fn cut(&mut self, e: &Emitter<'_>, axes: &[(Slot, i64)]) {
        let size = e.type_of(self.read).size() as i64;
        let all = axes.iter().map(|a| a.1).product::<i64>();
        let each = all / (2 * i64::from(e.kernel().tuning.processors));
        let most = each.clamp(THREADS, MOST);
        let overlaps: Vec<bool> = axes.iter().map(|a| self.overlaps(a.0)).collect();
        loop {
            let open = |a: &usize| self.tile[*a] < axes[*a].1;
            let last = (0..axes.len()).rev().find(|&a| axes[a].1 != 1);
            let next = last
                .filter(|a| open(a) && self.tile[*a] < ALONG)
                .or_else(|| {
                    (0..axes.len())
                        .filter(|a| open(a) && overlaps[*a])
                        .min_by_key(|&a| self.tile[a])
                })
                .or_else(|| (0..axes.len()).rev().find(open));
            let Some(a) = next else { break };
            let before = self.tile[a];
            self.tile[a] = (2 * before).min(axes[a].1);
            self.measure(axes);
            if self.tile.iter().product::<i64>() > most
                || self.elements().is_none_or(|n| n * size > BYTES)
            {
                self.tile[a] = before;
                break;
            }
        }
        self.measure(axes);
    }

    /// Whether windows of neighbours along an output axis overlap.
    fn overlaps(&self, slot: Slot) -> bool {
        let slides = |a: &WindowedAxis| {
            a.position.factor(slot) != 0
                && self.over.iter().any(|o| o.1 > 1 && a.position.factor(o.0) != 0)
        };
        self.along.iter().any(slides)
    }

    fn measure(&mut self, axes: &[(Slot, i64)]) {
        for a in &mut self.along {
            let tile = axes.iter().zip(&self.tile).map(|(x, t)| (x.0, *t));
            let steps = tile.chain(self.over.iter().copied());
            let reach =
                |(slot, n): (Slot, i64)| a.position.factor(slot).abs().saturating_mul(n - 1);
            a.span = steps.map(reach).fold(1, i64::saturating_add);
        }
    }

    /// Elements that a tile reads, halo included.
    fn elements(&self) -> Option<i64> {
        self.along.iter().try_fold(1i64, |n, a| n.checked_mul(a.span))
    }

    fn is_gain(&self, axes: &[(Slot, i64)]) -> bool {
        let outputs = self.tile.iter().product::<i64>();
        let times = self.over.iter().map(|o| o.1).product::<i64>();
        let reads = outputs.saturating_mul(times);
        let overlap = axes.iter().any(|a| a.1 > 1 && self.overlaps(a.0));
        overlap && self.elements().is_some_and(|n| n.saturating_mul(GAIN) <= reads)
    }

    /// Writes the function.
    pub fn write(
        &self,
        e: &mut Emitter<'_>,
        v: Value,
        dtype: DType,
        shape: &[i64],
        axes: &[(Slot, i64)],
    ) -> GridSize {
        let (kind, block) = (e.index_type(), e.block());
        let tiles: Vec<i64> = axes.iter().zip(&self.tile).map(|(a, t)| up(a.1, *t)).collect();
        let behind = |list: &[i64], a: usize| list[a + 1..].iter().product::<i64>();
        for (a, t) in self.tile.iter().enumerate() {
            e.line(format!(
                "{kind} from{a} = {block} / {} % {} * {t};",
                behind(&tiles, a),
                tiles[a]
            ));
        }
        self.load(e, axes);
        let outputs = self.tile.iter().product::<i64>();
        e.open(&format!("for (int at = threadIdx.x; at < {outputs}; at += {THREADS})"));
        let mut inside = vec![];
        for (a, (&(slot, n), t)) in axes.iter().zip(&self.tile).enumerate() {
            let name = Emitter::name(slot);
            e.line(format!("{kind} {name} = from{a} + at / {} % {t};", behind(&self.tile, a)));
            if n % t != 0 {
                inside.push(format!("{name} < {n}"));
            }
        }
        if !inside.is_empty() {
            e.line(format!("if (!({})) continue;", inside.join(" && ")));
        }
        let slots: Vec<Slot> = axes.iter().map(|a| a.0).collect();
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
        let text = e.element(v, &index);
        e.store_result(dtype, shape, &slots, &text);
        e.close();
        GridSize { blocks: tiles.iter().product::<i64>() as u64, threads: THREADS as u32 }
    }

    /// Writes the loop that loads the tile's input with its halo.
    fn load(&self, e: &mut Emitter<'_>, axes: &[(Slot, i64)]) {
        let kind = e.index_type();
        let spans: Vec<i64> = self.along.iter().map(|a| a.span).collect();
        let count = spans.iter().product::<i64>();
        let (of, source) = (e.type_of(self.read), e.stored[&self.read].clone());
        e.read.insert(self.read);
        e.line("// What the windows of a tile read is in shared memory.");
        e.line(format!("SHARED({}, window, {count});", spell::stored(of)));
        let strides: Vec<i64> =
            (0..spans.len()).map(|a| spans[a + 1..].iter().product::<i64>()).collect();
        for (i, a) in self.along.iter().enumerate() {
            // The least position: a factor below 0 is at its least where its variable is largest.
            let tile = axes.iter().zip(&self.tile).map(|(x, t)| (x.0, *t));
            let least = |(slot, n): (Slot, i64)| a.position.factor(slot).min(0) * (n - 1);
            let constant = tile.chain(self.over.iter().copied()).map(least).sum::<i64>();
            let mut text = spell::int(a.position.constant + constant);
            for (k, (slot, _)) in axes.iter().enumerate() {
                match a.position.factor(*slot) {
                    0 => {}
                    by => text += &format!(" + from{k} * {}", spell::int(by)),
                }
            }
            e.line(format!("{kind} first{i} = {text};"));
        }
        e.open(&format!("for (int at = threadIdx.x; at < {count}; at += {THREADS})"));
        let (mut offset, mut stride) = (vec![], 1i64);
        let mut inside = vec![];
        for (i, a) in self.along.iter().enumerate().rev() {
            if a.span == 1 {
                e.line(format!("{kind} place{i} = first{i};"));
            } else {
                e.line(format!("{kind} place{i} = first{i} + at / {} % {};", strides[i], a.span));
            }
            inside.push(format!("0 <= place{i} && place{i} < {}", a.extent));
            offset.push(format!("place{i} * {}", spell::int(stride)));
            stride *= a.extent;
        }
        let offset = if offset.is_empty() { "0".into() } else { offset.join(" + ") };
        let condition = if inside.is_empty() { "true".into() } else { inside.join(" && ") };
        e.line(format!("if ({condition}) window[at] = {source}[{offset}];"));
        e.close();
        e.line("__syncthreads();");
        let first =
            self.along.iter().enumerate().map(|(i, _)| format!("first{i} * {}", strides[i]));
        let first: Vec<String> = first.collect();
        let first = if first.is_empty() { "0".into() } else { first.join(" + ") };
        e.line(format!("{kind} window_first = {first};"));
        e.window = Some(SharedWindow { value: self.read, strides });
    }
}
