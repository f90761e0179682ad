//! Vectorised loops of a thread: contiguous elements are loaded and stored in accesses of up to 16 bytes.
//!
//! Only accesses whose alignment follows from extents and strides are combined; all others stay scalar.

use super::{Emitter, coordinates, offset_of};
use crate::generate::product::strided_read::StridedRead;
use crate::generate::spelling as spell;
use mlc_backends::reference::code::{Affine, Slot};
use mlc_dsl::ir::{DType, Value};
use std::collections::HashMap;

/// Bytes of the widest access.
const WIDEST: i64 = 16;

/// The open vectorised loop.
#[derive(Clone)]
pub(super) struct VectorLoop {
    /// Its vector width.
    width: i64,
    /// The axes of a vector's elements, the last one fastest.
    group: Vec<(Slot, i64)>,
    /// The variable with the position of a vector's first element along them, a multiple of the width.
    side: String,
    /// Variables from this one on belong to the loop.
    variables: usize,
    /// The line before the loop, where vectors are loaded.
    mark: usize,
    depth: usize,
    /// How many scopes are open in the loop's body.
    pub(super) scopes: usize,
    /// Loaded vectors, by value and offset.
    packs: HashMap<(Value, String), String>,
    /// Stored vectors: the name, and where it goes.
    writes: Vec<(String, String)>,
}

/// Memory accesses of vectorised loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Vector accesses.
    pub vectorized: usize,
    /// Accesses of single elements.
    pub scalar: usize,
}

/// The first of the fewest last axes whose extent is a multiple of the width: a vector never leaves them.
fn group_of(axes: &[(Slot, i64)], width: i64) -> Option<usize> {
    let mut extent = 1i64;
    (0..axes.len()).rev().find(|&a| {
        extent = extent.saturating_mul(axes[a].1);
        extent > 0 && extent % width == 0
    })
}

/// The largest vector width, of `most` at most, that these axes allow.
pub fn vector_width(axes: &[(Slot, i64)], most: i64) -> i64 {
    [8, 4, 2].into_iter().find(|&w| w <= most && group_of(axes, w).is_some()).unwrap_or(1)
}

impl VectorLoop {
    /// Its vector width.
    pub(super) fn width(&self) -> i64 {
        self.width
    }

    /// The C++ type of a vector.
    pub(super) fn pack(&self, dtype: DType) -> String {
        pack(dtype, self.width)
    }

    /// The condition that a variable is below a number, if it is uniform over a vector.
    pub(super) fn condition(&self, slot: Slot, n: i64) -> Option<String> {
        let Some(at) = self.group.iter().position(|g| g.0 == slot) else {
            let is_outer = slot < self.variables;
            return is_outer.then(|| format!("{} < {}", Emitter::name(slot), spell::int(n)));
        };
        // Of the outermost axis the position along all of them tells it.
        let each: i64 = self.group[1..].iter().map(|g| g.1).product();
        let end = n.checked_mul(each)?;
        (at == 0 && end % self.width == 0).then(|| format!("{} < {}", self.side, spell::int(end)))
    }

    /// The offset of a vector access, if the elements are contiguous and aligned; else whether they are all the same element. Axes of
    /// one element do not count.
    pub(super) fn place(&self, offset: &Affine, extents: &[i64]) -> Result<String, bool> {
        let own: Vec<i64> = self.group.iter().map(|g| offset.factor(g.0)).collect();
        if own.iter().zip(&self.group).all(|(f, g)| *f == 0 || g.1 == 1) {
            return Err(true);
        }
        let mut stride = 1;
        for (factor, (_, n)) in own.iter().zip(&self.group).rev() {
            if *n != 1 && *factor != stride {
                return Err(false);
            }
            stride *= n;
        }
        let mut rest = offset.clone();
        rest.terms.retain(|t| extents[t.0] != 1 && !self.group.iter().any(|g| g.0 == t.0));
        let known = rest.terms.iter().all(|t| t.0 < self.variables && t.1 % self.width == 0);
        if !known || rest.constant % self.width != 0 {
            return Err(false);
        }
        if rest.terms.is_empty() && rest.constant == 0 {
            return Ok(self.side.clone());
        }
        let rest = spell::affine(&rest, &Emitter::name);
        let bare = rest.strip_prefix('(').and_then(|r| r.strip_suffix(')')).unwrap_or(&rest);
        Ok(format!("{bare} + {}", self.side))
    }
}

/// A vector in memory.
pub struct VectorSource {
    /// The type in memory.
    pub dtype: DType,
    /// The name of the value.
    pub name: String,
    /// The offset of the first element.
    pub place: String,
    /// Conditions unless which the whole vector is 0.
    pub inside: Vec<String>,
}

/// The C++ type of a vector.
fn pack(dtype: DType, width: i64) -> String {
    format!("Pack<{}, {width}>", spell::stored(dtype))
}

impl<'k> Emitter<'k> {
    /// Writes a loop over `width` elements from the position `first` on, a multiple of the width, along these axes; within it,
    /// `lane` counts them.
    pub fn lanes(
        &mut self,
        first: &str,
        axes: &[(Slot, i64)],
        width: i64,
        body: impl FnOnce(&mut Emitter<'k>),
    ) {
        let Some(from) = group_of(axes, width).filter(|_| width > 1) else {
            coordinates(self, first, axes);
            return body(self);
        };
        let kind = self.index_type();
        let extent = axes[from..].iter().map(|a| a.1).product::<i64>();
        let side = match from {
            0 => first.to_string(),
            _ => {
                coordinates(self, &format!("({first} / {extent})"), &axes[..from]);
                let side = self.local();
                self.line(format!("{kind} {side} = {first} % {extent};"));
                side
            }
        };
        let (mark, depth) = (self.lines.len(), self.depth);
        self.line("#pragma unroll");
        self.open(&format!("for (int lane = 0; lane < {width}; ++lane)"));
        coordinates(self, &format!("({side} + lane)"), &axes[from..]);
        self.lanes = Some(VectorLoop {
            width,
            group: axes[from..].to_vec(),
            side,
            variables: self.extents.len(),
            mark,
            depth,
            scopes: self.scopes.count(),
            packs: HashMap::new(),
            writes: vec![],
        });
        body(self);
        let lanes = self.lanes.take().expect("the loop is open");
        self.close();
        for (name, place) in lanes.writes {
            self.line(format!("store_pack(out + {place}, {name});"));
        }
    }

    /// The name of an element that is loaded as part of a vector.
    pub(super) fn packed(&mut self, v: Value, offset: &Affine) -> Option<String> {
        let inner = self.lanes.as_ref().filter(|l| l.scopes == self.scopes.count())?;
        let place = match inner.place(offset, &self.extents) {
            Ok(place) if !self.unaligned.contains(&v) => place,
            Err(true) => return None,
            _ => {
                self.accesses.scalar += 1;
                return None;
            }
        };
        self.accesses.vectorized += 1;
        let key = (v, place.clone());
        if let Some(known) = inner.packs.get(&key) {
            return Some(format!("{known}.at[lane]"));
        }
        let name = format!("p{}", self.variables + 1);
        self.variables += 1;
        let dtype = self.kernel.program.ty(v).dtype;
        let width = inner.width;
        let of = &self.stored[&v];
        let text = format!("{} {name} = load_pack<{width}>({of} + {place});", pack(dtype, width));
        self.before_lanes(text);
        let lanes = self.lanes.as_mut().expect("the loop is open");
        lanes.packs.insert(key, name.clone());
        Some(format!("{name}.at[lane]"))
    }

    /// The names of the bounds check, uniform over a vector, and of an element that is loaded as part of it.
    pub(super) fn packed_inside(
        &mut self,
        of: &StridedRead,
        inside: &str,
    ) -> Option<(String, String)> {
        let inner = self.lanes.as_ref().filter(|l| l.scopes == self.scopes.count())?;
        let is_outer = |a: &Affine| {
            let of_group = |s: Slot| inner.group.iter().any(|g| g.0 == s && g.1 != 1);
            a.terms.iter().all(|t| t.0 < inner.variables && !of_group(t.0))
        };
        let is_aligned =
            !self.unaligned.contains(&of.value) && of.inside.iter().all(|i| is_outer(&i.0));
        let place = match inner.place(&of.offset, &self.extents) {
            Ok(place) if is_aligned => place,
            Err(true) => return None,
            _ => {
                self.accesses.scalar += 1;
                return None;
            }
        };
        self.accesses.vectorized += 1;
        let condition = format!("p{}", self.variables + 1);
        let name = format!("p{}", self.variables + 2);
        self.variables += 2;
        let width = inner.width;
        let ty = pack(self.kernel.program.ty(of.value).dtype, width);
        let from = &self.stored[&of.value];
        let text =
            format!("{ty} {name} = load_pack<{width}>({from} + ({condition} ? {place} : 0));");
        self.before_lanes(format!("bool {condition} = {inside};"));
        self.before_lanes(text);
        Some((condition, format!("{name}.at[lane]")))
    }

    /// Where the elements of such a loop lie in memory, if they are there side by side or all of them 0: `find` says what each one is. Writes
    /// what both are computed from, and no loop.
    pub fn source(
        &mut self,
        first: &str,
        axes: &[(Slot, i64)],
        width: i64,
        find: impl FnOnce(&mut Emitter<'k>) -> Option<StridedRead>,
    ) -> Option<VectorSource> {
        let (mut start, mut found) = (self.lines.len(), None);
        self.lanes(first, axes, width, |e| {
            start = e.lanes.as_ref().map_or(e.lines.len(), |l| l.mark);
            let Some(of) = find(e) else { return };
            let place = match &e.lanes {
                None => spell::affine(&of.offset, &Emitter::name),
                Some(lanes) => {
                    let together = |a: &Affine| lanes.group.iter().all(|g| a.factor(g.0) == 0);
                    let apart = e.unaligned.contains(&of.value)
                        || !of.inside.iter().all(|i| together(&i.0));
                    match lanes.place(&of.offset, &e.extents) {
                        Ok(place) if !apart => place,
                        _ => return,
                    }
                }
            };
            let name = |slot| Emitter::name(slot);
            let within = |(i, n): &(Affine, i64)| {
                let i = spell::affine(i, &name);
                format!("0 <= {i} && {i} < {}", spell::int(*n))
            };
            e.read.insert(of.value);
            found = Some(VectorSource {
                dtype: e.type_of(of.value),
                name: e.stored[&of.value].clone(),
                place,
                inside: of.inside.iter().map(within).collect(),
            });
        });
        self.lines.truncate(start);
        found
    }

    pub(super) fn before_lanes(&mut self, text: String) {
        let Some(lanes) = &mut self.lanes else { return };
        self.lines.insert(lanes.mark, format!("{}{text}", "  ".repeat(lanes.depth)));
        lanes.mark += 1;
    }

    /// Stores an element of a result of this shape at these index variables.
    pub fn store_result(&mut self, dtype: DType, shape: &[i64], slots: &[Slot], v: &str) {
        let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
        let index: Vec<_> = slots.iter().map(|s| Emitter::index(*s)).collect();
        let offset = offset_of(&shape, &index).expect("its bytes are an `i64`");
        self.store(dtype, &offset, v);
    }

    /// Writes an element of the result.
    pub fn store(&mut self, dtype: DType, offset: &Affine, v: &str) {
        let element = self.stored_element(dtype, v);
        let lanes = self.lanes.as_ref().filter(|l| l.scopes == self.scopes.count());
        let width = lanes.map_or(1, |l| l.width);
        let place = lanes.map(|l| l.place(offset, &self.extents));
        if let (Some(Ok(place)), false) = (&place, self.out_is_unaligned) {
            self.accesses.vectorized += 1;
            self.variables += 1;
            let name = format!("p{}", self.variables);
            self.before_lanes(format!("{} {name};", pack(dtype, width)));
            self.line(format!("{name}.at[lane] = {element};"));
            let lanes = self.lanes.as_mut().expect("the loop is open");
            return lanes.writes.push((name, place.clone()));
        }
        self.accesses.scalar += usize::from(place.is_some());
        let offset = spell::affine(offset, &Emitter::name);
        let bare = offset.strip_prefix('(').and_then(|o| o.strip_suffix(')')).unwrap_or(&offset);
        self.line(format!("out[{bare}] = {element};"));
    }

    /// Dry run of vectorised loops: the accesses that `write` would emit.
    pub fn count_accesses(&self, write: impl FnOnce(&mut Emitter<'k>)) -> Accesses {
        let mut other = Emitter { accesses: Accesses::default(), ..self.clone() };
        write(&mut other);
        other.accesses
    }
}

/// Elements of a type in the widest access.
pub fn widest(dtype: DType) -> i64 {
    (WIDEST / dtype.size() as i64).min(8)
}
