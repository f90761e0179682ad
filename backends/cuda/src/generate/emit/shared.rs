//! Cooperative loops along a row that a block or a warp shares.
//!
//! What several loops of a row load from memory is loaded by the first one, and stays in registers for the others.

use super::{Emitter, coordinates, parts_name};
use crate::generate::spelling::ScalarKind;
use mlc_backends::reference::code::{Affine, Slot};
use mlc_dsl::ir::Value;

/// Registers of a thread that keep a row at most.
const KEPT: i64 = 64;

/// How threads share the loops of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Threads that share a row.
    pub threads: u32,
    /// Whether they are one warp of a block with a row per warp.
    pub by_warp: bool,
    /// The extents of the loops that the rest holds for.
    pub extents: Vec<i64>,
    /// Vector width of a thread.
    pub width: i64,
    /// Iterations, unrolled, with loaded elements kept in registers. 0 for long rows, whose loops are not unrolled.
    pub turns: i64,
}

/// A load that is kept in an array: the value, the factors of the loop's variables, and the rest of the offset.
type KeptRead = (Value, Vec<i64>, Affine);

/// The registers that keep a row, and the open loop.
#[derive(Clone, Default)]
pub(super) struct RowCache {
    /// The arrays in registers: their names and types.
    arrays: Vec<(KeptRead, String, &'static str)>,
    /// The variables of the open loop, the place in an array, how many scopes are open, and how many variables there were.
    pub(super) open: Option<(Vec<Slot>, String, usize, usize)>,
    /// Whether no loop follows the open one.
    is_last: bool,
}

impl Sharing {
    /// Loops of such lengths that are not unrolled.
    pub fn plain(threads: u32) -> Sharing {
        Sharing { threads, by_warp: false, extents: vec![], width: 1, turns: 0 }
    }

    /// The thread's index among those that share a row.
    pub fn thread(&self) -> &'static str {
        if self.by_warp { "threadIdx.x % 32" } else { "threadIdx.x" }
    }

    fn length(&self) -> i64 {
        self.extents.iter().product()
    }

    fn kept(&self) -> i64 {
        self.width * self.turns
    }
}

impl<'k> Emitter<'k> {
    /// Writes a loop over all elements along these axes; `name` begins the names of its variables.
    pub fn along(&mut self, name: &str, axes: &[(Slot, i64)], body: impl FnOnce(&mut Emitter<'k>)) {
        let sharing = self.threads.clone().expect("threads share loops");
        let (kind, threads, thread) = (self.index_type(), sharing.threads, sharing.thread());
        let extents: Vec<i64> = axes.iter().map(|a| a.1).collect();
        let length: i64 = extents.iter().product();
        if extents != sharing.extents {
            let at = format!("{name}at");
            self.open(&format!("for ({kind} {at} = {thread}; {at} < {length}; {at} += {threads})"));
            coordinates(self, &at, axes);
            body(self);
            return self.close();
        }
        let (at, width) = (format!("{name}at"), sharing.width);
        let by = if width == 1 { String::new() } else { format!(" * {width}") };
        if sharing.turns == 0 {
            let step = i64::from(threads) * width;
            let head = format!("{kind} {at} = {thread}{by}; {at} < {length}; {at} += {step}");
            self.open(&format!("for ({head})"));
            self.lanes(&at, axes, width, body);
            return self.close();
        }
        let turn = format!("{name}turn");
        self.line("#pragma unroll");
        self.open(&format!("for (int {turn} = 0; {turn} < {}; ++{turn})", sharing.turns));
        let own = format!("({thread} + {turn} * {threads})");
        self.line(format!("{kind} {at} = {own}{by};"));
        let whole = sharing.length() % (i64::from(threads) * width) == 0;
        self.open(&if whole { String::new() } else { format!("if ({at} < {length})") });
        let place = if width == 1 { turn } else { format!("{turn} * {width} + lane") };
        let slots: Vec<Slot> = axes.iter().map(|a| a.0).collect();
        let variables = self.extents.len();
        self.lanes(&at, axes, width, |e| {
            e.keeping.open = Some((slots, place, e.scopes.count(), variables));
            body(e);
            e.keeping.open = None;
        });
        self.close();
        self.close();
    }

    /// The same for the last loop of a row, after which nothing is kept.
    pub fn along_at_last(&mut self, axes: &[(Slot, i64)], body: impl FnOnce(&mut Emitter<'k>)) {
        self.keeping.is_last = true;
        self.along("", axes, body);
    }

    /// The array, and the place in it, where what is read at this offset is kept; whether it is there already.
    pub(super) fn kept(
        &mut self,
        v: Value,
        offset: &Affine,
        kind: ScalarKind,
    ) -> Option<(String, bool)> {
        let (slots, place, scopes, variables) = self.keeping.open.clone()?;
        let factors: Vec<i64> = slots.iter().map(|s| offset.factor(*s)).collect();
        let mut rest = offset.clone();
        rest.terms.retain(|t| !slots.contains(&t.0));
        let fixed = rest.terms.iter().all(|t| t.0 < variables);
        if scopes != self.scopes.count() || !fixed || factors.iter().all(|f| *f == 0) {
            return None;
        }
        let key = (v, factors, rest);
        if let Some((_, name, _)) = self.keeping.arrays.iter().find(|a| a.0 == key) {
            return Some((format!("{name}[{place}]"), true));
        }
        let each = self.threads.as_ref().map_or(0, Sharing::kept);
        if self.keeping.is_last || each * (self.keeping.arrays.len() as i64 + 1) > KEPT {
            return None;
        }
        let name = format!("row{}", self.keeping.arrays.len());
        self.keeping.arrays.push((key, name.clone(), kind.name()));
        Some((format!("{name}[{place}]"), false))
    }

    /// Declares at a place between lines the arrays that rows need.
    pub fn declare_arrays(&mut self, at: usize) {
        let each = self.threads.as_ref().map_or(0, Sharing::kept);
        let shared = self.parts.iter().map(|k| format!("SHARED({k}, {}, 32);", parts_name(k)));
        let kept = self.keeping.arrays.iter().map(|(_, name, k)| format!("{k} {name}[{each}];"));
        let lines: Vec<String> = shared.chain(kept).collect();
        lines.iter().rev().for_each(|a| self.insert(at, a));
    }
}
