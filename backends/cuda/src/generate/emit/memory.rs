//! Loads of elements: from global memory, from registers that hold a row, or from shared memory.

use super::expressions::NodeScope;
use super::{Emitter, Known, linear, offset_of};
use crate::generate::product::strided_read::StridedRead;
use crate::generate::spelling::{self as spell, ScalarKind};
use mlc_backends::reference::accelerated::affine::combine;
use mlc_backends::reference::code::{Affine, Int};
use mlc_dsl::ir::{DType, Value};

/// A part of a value in the shared array `window`, by its strides there. It begins at `window_first`.
#[derive(Clone)]
pub struct SharedWindow {
    pub value: Value,
    pub strides: Vec<i64>,
}

impl Emitter<'_> {
    /// Loads an element from memory.
    pub(super) fn load(&mut self, v: Value, index: &[Int]) -> String {
        self.read.insert(v);
        let ty = self.kernel.program.ty(v);
        let shape = ty.known_shape().unwrap_or_default();
        let mut offset: Vec<String> = vec![];
        let mut stride = 1i64;
        for (i, &n) in index.iter().zip(&shape).rev() {
            if n != 1 {
                let i = NodeScope { node: v, double: false }.int(self, i);
                offset.insert(
                    0,
                    if stride == 1 { i } else { format!("{i} * {}", spell::int(stride)) },
                );
            }
            stride *= n as i64;
        }
        let offset = if offset.is_empty() { "0".into() } else { offset.join(" + ") };
        let form = offset_of(&shape, index);
        self.loaded(v, index, &offset, form.as_ref())
    }

    /// The element of the window in shared memory, if the value has one.
    fn in_window(&self, v: Value, index: &[Int]) -> Option<String> {
        let window = self.window.as_ref().filter(|w| w.value == v)?;
        let mut place = Affine::default();
        for (i, stride) in index.iter().zip(&window.strides) {
            place = combine(&place, &linear(i)?, *stride)?;
        }
        Some(format!("window[{} - window_first]", spell::affine(&place, &Emitter::name)))
    }

    pub(super) fn loaded(
        &mut self,
        v: Value,
        index: &[Int],
        offset: &str,
        form: Option<&Affine>,
    ) -> String {
        self.read.insert(v);
        let (kind, dtype) = (self.kind(v), self.kernel.program.ty(v).dtype);
        let bare = offset.strip_prefix('(').and_then(|o| o.strip_suffix(')'));
        let bare = bare.filter(|o| !o.contains(['(', ')'])).unwrap_or(offset);
        // One load for equal elements of a scope.
        let key = Known::Load(v, offset.to_string());
        if let Some(name) = self.scopes.name_of(&key) {
            return name;
        }
        if let (Some(found), Some(form)) = (&mut self.found, form) {
            found.offsets.push((v, form.clone()));
            found.reads.push((v, index.to_vec()));
            if self.scopes.count() == self.outer_scopes {
                found.always.push((v, form.clone()));
            }
        }
        let kept = form.and_then(|form| self.kept(v, form, kind));
        if let Some((place, true)) = kept {
            let name = self.local();
            self.line(format!("{} {name} = {place};", kind.name()));
            self.scopes.remember(key, &name);
            return name;
        }
        let there = self.substitute.as_ref().filter(|i| i.0.0 == v && Some(&i.0.1) == form);
        let there = there.map(|i| i.1.clone()).or_else(|| self.in_window(v, index));
        let side = there.or_else(|| form.and_then(|form| self.packed(v, form)));
        let element = side.unwrap_or_else(|| format!("{}[{bare}]", self.stored[&v]));
        let text = spell::loaded(dtype, &element, kind == ScalarKind::Real(true));
        let name = self.local();
        self.line(format!("{} {name} = {text};", kind.name()));
        if let Some((place, _)) = kept {
            self.line(format!("{place} = {name};"));
        }
        self.raw.insert(name.clone(), (dtype, element));
        self.scopes.remember(key, &name);
        name
    }

    /// Whether loads of a value are replaced.
    pub(super) fn is_elsewhere(&self, v: Value) -> bool {
        self.window.as_ref().is_some_and(|w| w.value == v)
            || self.substitute.as_ref().is_some_and(|i| i.0.0 == v)
            || self.keeping.open.is_some()
    }

    /// Loads an element, or yields a number out of bounds, without a branch, at whose end threads would wait for the load: out of bounds
    /// the first element is loaded, and not used. `None` where elements are not loaded from memory.
    pub(super) fn guarded(&mut self, of: &StridedRead) -> Option<String> {
        let (v, outside) = (of.value, of.outside?);
        let ty = self.kernel.program.ty(v);
        if self.is_elsewhere(v) || ty.known_shape()?.contains(&0) {
            return None;
        }
        self.read.insert(v);
        let bounds = |(i, n): &(Affine, i64)| {
            let i = spell::affine(i, &Emitter::name);
            format!("0 <= {i} && {i} < {}", spell::int(*n))
        };
        let inside = of.inside.iter().map(bounds).collect::<Vec<_>>().join(" && ");
        let place = spell::affine(&of.offset, &Emitter::name);
        let key = Known::Guarded(v, of.offset.clone(), of.inside.clone(), outside.to_bits());
        if let Some(name) = self.scopes.name_of(&key) {
            return Some(name);
        }
        let (dtype, double) = (ty.dtype, self.kind(v) == ScalarKind::Real(true));
        let (condition, element) = self.packed_inside(of, &inside).unwrap_or_else(|| {
            let (condition, element) = (self.local(), self.local());
            let (of, stored) = (&self.stored[&v], spell::stored(dtype));
            let text = format!("{stored} {element} = {of}[{condition} ? {place} : 0];");
            self.line(format!("bool {condition} = {inside};"));
            self.line(text);
            (condition, element)
        });
        let name = self.local();
        let (kind, loaded) = (spell::real(double), spell::loaded(dtype, &element, double));
        let number = spell::float(outside, double);
        self.line(format!("{kind} {name} = {condition} ? {loaded} : {number};"));
        if outside.to_bits() == 0 {
            let element = format!("({condition} ? {element} : ({})0)", spell::stored(dtype));
            self.raw.insert(name.clone(), (dtype, element));
        }
        self.scopes.remember(key, &name);
        Some(name)
    }

    /// The type of a value's elements.
    pub fn type_of(&self, v: Value) -> DType {
        self.kernel.program.ty(v).dtype
    }

    /// The element in memory at an offset of a value.
    pub fn read_at(&mut self, v: Value, offset: &Affine) -> String {
        self.read.insert(v);
        format!("{}[{}]", self.stored[&v], spell::affine(offset, &Emitter::name))
    }

    /// A computed number as an element of memory: a float of 16 bits that was read there is not rounded again.
    pub fn stored_element(&self, dtype: DType, v: &str) -> String {
        let is_half = dtype.is_half();
        match self.raw.get(v) {
            Some((of, element)) if is_half && *of == dtype => element.clone(),
            _ => spell::element(dtype, v),
        }
    }
}
