//! Reads whose computed index depends on another index of the same read: elements are found by their number.

use super::{Axis, Entry, Item, Sources, WholeTensors};
use crate::expr::{Elem, Expr, ExprKind};
use crate::ir::{Attr, DType, Extent, Value};

impl<S: Sources> WholeTensors<'_, '_, S> {
    /// The axes up to the last computed one become one, whose places are numbers; the axes behind it are read whole.
    pub(super) fn read_by_number(
        &mut self,
        tensor: Value,
        index: &[Elem],
        otherwise: Option<&Expr>,
    ) -> Option<Item> {
        let shape = self.builder.ty(tensor).shape.clone();
        let entries = self.axes_of(index)?;
        let plain = |entry: &Entry<'_>, extent: &Extent| {
            let axis = match entry {
                Entry::Axis(axis) => *axis,
                Entry::Computed(e) => match e.kind {
                    ExprKind::Index(variable) => Axis { variable, part: 0 },
                    _ => return None,
                },
            };
            (self.extents.get(&axis) == Some(extent)).then_some(axis)
        };
        let axes: Vec<Option<Axis>> =
            entries.iter().zip(&shape).map(|(entry, extent)| plain(entry, extent)).collect();
        let front = 1 + axes.iter().rposition(Option::is_none)?;
        let mut number: Option<Item> = None;
        let mut inside: Option<Item> = None;
        for ((entry, extent), axis) in entries.iter().zip(&shape).zip(&axes).take(front) {
            let place = match (axis, entry) {
                (Some(axis), _) => self.places(*axis)?,
                (None, Entry::Computed(e)) => {
                    let item = self.expr(e)?;
                    let (i, own) = self.whole(item, DType::I64)?;
                    let matters = otherwise.is_some();
                    Item::Whole(self.bounded(e, i, &own, extent, matters, &mut inside)?, own)
                }
                (None, Entry::Axis(_)) => return None,
            };
            number = Some(match number {
                None => place,
                Some(before) => {
                    let extent = Item::Number(Attr::Int(extent.clone()));
                    let whole = self.apply("mul", vec![before, extent])?;
                    self.apply("add", vec![whole, place])?
                }
            });
        }
        let (i, mut own) = self.whole(number?, DType::I64)?;
        let rest = axes[front..].iter().copied().collect::<Option<Vec<Axis>>>()?;
        if rest.iter().any(|axis| own.contains(axis)) {
            return None;
        }
        let elements = shape[..front].iter().fold(Extent::from(1), |n, e| &n * e);
        let flat: Vec<Extent> = std::iter::once(elements).chain(shape[front..].to_vec()).collect();
        let mut flat = self.builder.reshape(tensor, &flat).ok()?;
        if otherwise.is_some() {
            flat = self.inhabited(flat, 0, &own)?;
        }
        let v = self.call("gather", &[("axis", Attr::int(0))], &[flat, i])?;
        own.extend(rest);
        self.ordered(v, own, inside, otherwise)
    }

    /// The places of an axis, from 0 on.
    fn places(&mut self, axis: Axis) -> Option<Item> {
        let size = Attr::Int(self.extents.get(&axis)?.clone());
        let v = self.call("iota", &[("size", size), ("to", Attr::DType(DType::I64))], &[])?;
        Some(Item::Whole(v, vec![axis]))
    }
}
