//! Tensors of the file: constants over its bytes, decoded as the language says.

use super::{ArchitectureReading, Fault, Operand};
use crate::names;
use mlc_dsl::expr::{Expr, ExprKind};
use mlc_dsl::ir::build::BuildError;
use mlc_dsl::ir::{Attr, DType, Extent, Tensor, Type, Value};
use mlc_dsl::library::{CallId, Dim};
use mlc_dsl::shown;
use mlc_dsl::typing::infer::infer;
use mlc_weights::{StoredKind, StoredTensor, WeightsError};

/// How the elements of a constant are read.
enum Decoding {
    /// As they are.
    Plain,
    /// As numbers of another type.
    Cast,
    /// By an operator over the bytes of blocks.
    Blocks(CallId),
}

impl ArchitectureReading<'_> {
    /// A stored tensor of a shape, decoded; without it what `default` says.
    pub(crate) fn stored_tensor(
        &mut self,
        name: &str,
        shape: Vec<Extent>,
        default: Option<&Expr>,
        at: &Expr,
    ) -> Result<Operand, Fault> {
        if !self.file.tensors.contains_key(name)
            && let Some(default) = default
        {
            let value = self.expr(default)?;
            return match value {
                Operand::Attr(a) => self.filled_tensor(&a, shape, at).map(Operand::Tensor),
                other => Ok(other),
            };
        }
        let (constant, decoding) = self.constant(name, &shape)?;
        let value = self.decoded(constant, &decoding, at)?;
        self.stored.insert(value, name.to_string());
        Ok(Operand::Tensor(value))
    }

    /// Rows of a stored tensor, chosen before they are decoded.
    pub(crate) fn stored_rows(
        &mut self,
        name: &str,
        shape: &[Extent],
        places: Value,
        at: &Expr,
    ) -> Result<Value, Fault> {
        let (constant, decoding) = self.constant(name, shape)?;
        let chosen = self.applied("gather", &[("axis", Attr::int(0))], &[constant, places], at)?;
        self.decoded(chosen, &decoding, at)
    }

    /// The type of a stored tensor, decoded.
    pub(crate) fn stored_type(&self, name: &str) -> Result<Type, Fault> {
        let stored = self.find(name)?;
        let dtype = match stored.kind {
            StoredKind::Elements(d) if !d.is_float() => d,
            _ => DType::F32,
        };
        Ok(Type::new(dtype, stored.shape.iter().map(|n| Extent::from(*n)).collect()))
    }

    fn find(&self, name: &str) -> Result<&StoredTensor, Fault> {
        self.file.tensors.get(name).ok_or_else(|| {
            let reason = format!("it is missing: the architecture `{}` needs it", self.item.name);
            let known: Vec<&str> = self.file.tensors.keys().map(String::as_str).collect();
            let help =
                names::did_you_mean(name, known, "convert the model again, or another model");
            let e = WeightsError::of_tensor(&self.file.path, name, reason);
            e.help(help.unwrap_or_default()).into()
        })
    }

    fn constant(&mut self, name: &str, shape: &[Extent]) -> Result<(Value, Decoding), Fault> {
        let stored = self.find(name)?;
        let fits = stored.shape.len() == shape.len()
            && stored.shape.iter().zip(shape).all(|(n, e)| e.is(*n as i64));
        if !fits {
            let wanted = Attr::Ints(shape.to_vec());
            let reason = format!(
                "its shape is {:?}, and the architecture `{}` needs {wanted}",
                stored.shape, self.item.name
            );
            let help = "the description and the tensors of the file do not belong together";
            return Err(WeightsError::of_tensor(&self.file.path, name, reason).help(help).into());
        }
        let (dtype, shape, decoding) = match stored.kind {
            StoredKind::Elements(dtype) => {
                let cast = dtype.is_float() && dtype != DType::F32;
                let decoding = if cast { Decoding::Cast } else { Decoding::Plain };
                (dtype, stored.shape.clone(), decoding)
            }
            StoredKind::Number(number) => {
                let (call, shape) = self.blocks(name, number, stored)?;
                (DType::U8, shape, Decoding::Blocks(call))
            }
        };
        let count = shape.iter().try_fold(dtype.size(), |n, d| n.checked_mul(*d));
        let bytes = stored.bytes(name, count)?;
        let tensor = Tensor::new(dtype, shape, bytes)
            .map_err(|e| WeightsError::of_tensor(&self.file.path, name, e.to_string()))?;
        let value = self.builder.constant(tensor.named(name));
        self.stored.insert(value, name.to_string());
        self.read.insert(name.to_string());
        Ok((value, decoding))
    }

    /// What decodes tensors of a number, and the shape of their bytes: blocks of a row, bytes of a block.
    fn blocks(
        &self,
        name: &str,
        number: u32,
        stored: &StoredTensor,
    ) -> Result<(CallId, Vec<usize>), Fault> {
        let bad = |reason: String, help: String| -> Fault {
            WeightsError::of_tensor(&self.file.path, name, reason).help(help).into()
        };
        let of_format = || self.library.stored.iter().filter(|s| &*s.format == self.file.format);
        let found = of_format().find(|s| s.number == i64::from(number));
        let Some(found) = found else {
            let mut known: Vec<String> = of_format()
                .map(|s| format!("{} ({})", s.number, self.library.call(s.call).name))
                .collect();
            known.sort();
            known.dedup();
            let reason = format!("its type {number} is not known");
            let help = format!(
                "known blocks are {}; an operator with `of {} {number}` adds it",
                known.join(", "),
                self.file.format
            );
            return Err(bad(reason, help));
        };
        let call = self.library.call(found.call);
        let dims = call.inputs.first().and_then(|i| i.ty.dims.as_deref());
        let bytes = match dims.and_then(<[Dim]>::last) {
            Some(Dim::Value(Expr { kind: ExprKind::Int(n), .. })) => usize::try_from(*n).ok(),
            _ => None,
        };
        let one = |bytes: usize| {
            let ty = Type::new(DType::U8, vec![Extent::from(1), Extent::from(bytes)]);
            let made = infer(call, &[&ty], &[]).ok()?;
            made.types.first()?.shape.first()?.as_const().and_then(|n| usize::try_from(n).ok())
        };
        let Some((bytes, elements)) = bytes.and_then(|b| Some((b, one(b).filter(|n| *n > 0)?)))
        else {
            let reason = format!("`{}` does not say how long its blocks are", call.name);
            return Err(bad(reason, "its parameter is `u8[..r, b, BYTES]`".into()));
        };
        let mut shape = stored.shape.clone();
        let row = shape.pop().unwrap_or(1);
        if !row.is_multiple_of(elements) {
            let reason = format!("its rows of {row} are no blocks of {elements}");
            return Err(bad(reason, "the file is damaged: fetch or convert it again".into()));
        }
        shape.extend([row / elements, bytes]);
        Ok((found.call, shape))
    }

    fn decoded(&mut self, value: Value, decoding: &Decoding, at: &Expr) -> Result<Value, Fault> {
        match decoding {
            Decoding::Plain => Ok(value),
            Decoding::Cast => {
                self.applied("cast", &[("to", Attr::DType(DType::F32))], &[value], at)
            }
            Decoding::Blocks(call) => {
                let made = self.builder.apply(*call, &[], &[value]).map_err(BuildError::Type);
                let made = made.map_err(|e| self.fault(at, e.to_string(), e.help()))?;
                Ok(made[0])
            }
        }
    }

    /// A tensor of equal elements.
    fn filled_tensor(&mut self, a: &Attr, shape: Vec<Extent>, at: &Expr) -> Result<Value, Fault> {
        let Some(number) = a.as_f64() else {
            let help = "give a number, or another tensor";
            return Err(self.fault(
                at,
                format!("{} is no default of a tensor", shown(&a.to_string())),
                help,
            ));
        };
        let one = self.builder.constant(Tensor::from_f64(DType::F32, vec![], &[number]));
        let made = self.builder.broadcast(one, &[], &shape);
        made.map_err(|e| self.fault(at, e.to_string(), e.help()))
    }

    /// A primitive applied by its name.
    fn applied(
        &mut self,
        name: &str,
        named: &[(&str, Attr)],
        args: &[Value],
        at: &Expr,
    ) -> Result<Value, Fault> {
        let Some(id) = self.library.find(name) else {
            return Err(self.fault(at, format!("`{name}` is not declared"), "declare it"));
        };
        let c = self.library.call(id);
        let of = |n: &str| named.iter().find(|(k, _)| *k == n).map(|(_, a)| a.clone());
        let attrs: Vec<Option<Attr>> = c.attrs.iter().map(|a| of(&a.name)).collect();
        let made = self.builder.apply(id, &attrs, args);
        let made = made.map_err(|e| self.fault(at, e.to_string(), e.help()))?;
        Ok(made[0])
    }
}
