//! Calls in an `architecture` item: what is asked of the file, and operators.

use super::{ArchitectureReading, Fault, Operand};
use mlc_dsl::architecture::FileFunction;
use mlc_dsl::eval::functions::Function;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{Expr, ExprKind, Name};
use mlc_dsl::ir::build::BuildError;
use mlc_dsl::ir::{Attr, DType, Extent, Tensor, Type, Value};
use mlc_dsl::library::{CallId, Callable, DTypePattern};
use mlc_dsl::onnx::{Apply, Callee};
use mlc_dsl::shown;
use mlc_weights::{Metadata, WeightsError};

impl ArchitectureReading<'_> {
    pub(crate) fn call(&mut self, call: &Apply, at: &Expr) -> Result<Operand, Fault> {
        let (name, id) = match &call.callee {
            Callee::Operator(name, id, _) => (name, *id),
            Callee::Unsupported => return Err(self.unsupported(call, at)?),
            Callee::Split | Callee::Fold(_) | Callee::Scalar => {
                let message = "this form belongs to `onnx` items";
                return Err(self.fault(at, message, "write a `def` that does it"));
            }
        };
        if let Some(f) = FileFunction::named(name) {
            let args: Vec<&Expr> = call.args.iter().map(|a| &a.value).collect();
            return self.asked(f, &args, at);
        }
        let mut args: Vec<Given> = vec![];
        for arg in &call.args {
            args.push(Given { name: arg.name.clone(), value: self.expr(&arg.value)? });
        }
        let is_attribute = |g: &Given| matches!(g.value, Operand::Attr(_));
        match (id, call.function()) {
            // A function on attributes of the operator's name.
            (_, Some(f)) if id.is_none() || args.iter().all(is_attribute) => {
                self.function(f, args, at)
            }
            (Some(id), _) => self.operator(id, args, at),
            (None, _) => Err(self.fault(at, format!("there is no `{name}`"), "declare it")),
        }
    }

    fn function(&self, f: Function, args: Vec<Given>, at: &Expr) -> Result<Operand, Fault> {
        let mut env = Env::default();
        let mut names = vec![];
        for (i, arg) in args.into_iter().enumerate() {
            let Operand::Attr(value) = arg.value else {
                let message = "a tensor stands where a number or a list is needed";
                return Err(self.fault(at, message, "apply an operator to tensors"));
            };
            let name = Name::from(format!("#{i}"));
            env.bind_attr(&name, value);
            names.push(Expr { kind: ExprKind::Name(name), span: at.span });
        }
        let call = Expr { kind: ExprKind::Call(f, names), span: at.span };
        eval(&call, &env)
            .map(Operand::Attr)
            .map_err(|e| self.fault(at, e.to_string(), "the manual lists what functions take"))
    }

    fn unsupported(&mut self, call: &Apply, at: &Expr) -> Result<Fault, Fault> {
        let reason = match call.args.first() {
            Some(arg) => self.text(&arg.value)?,
            None => return Err(self.fault(at, "`unsupported` takes a reason", "give a text")),
        };
        let place = format!("architecture `{}`", self.item.name);
        let help = "a text of yours (`--rules`) may say how it is read";
        Ok(WeightsError::new(&self.file.path, place, reason).help(help).into())
    }

    fn asked(&mut self, f: FileFunction, args: &[&Expr], at: &Expr) -> Result<Operand, Fault> {
        let wrong = |reading: &Self| {
            let message = "this does not take so few values";
            reading.fault(at, message, "the manual shows what it takes")
        };
        Ok(match (f, args) {
            (FileFunction::Metadata, [key, default @ ..]) => {
                let key = self.text(key)?;
                match (self.metadata(&key)?, default.first()) {
                    (Some(value), _) => Operand::Attr(value),
                    (None, Some(default)) => self.expr(default)?,
                    (None, None) => {
                        let reason = format!("the architecture `{}` needs it", self.item.name);
                        let place = format!("key `{}`", shown(&key));
                        let e = WeightsError::new(&self.file.path, place, reason);
                        return Err(e.help("it is missing: convert the model again").into());
                    }
                }
            }
            (FileFunction::Tensor, [name, shape, default @ ..]) => {
                let (name, shape) = (self.text(name)?, self.shape(shape)?);
                self.stored_tensor(&name, shape, default.first().copied(), at)?
            }
            (FileFunction::Rows, [name, shape, places]) => {
                let (name, shape) = (self.text(name)?, self.shape(shape)?);
                let places = self.tensor(places)?;
                Operand::Tensor(self.stored_rows(&name, &shape, places, at)?)
            }
            (FileFunction::Input, [name, dtype, shape]) => {
                let name = self.text(name)?;
                let Attr::DType(dtype) = self.attr(dtype)? else { return Err(wrong(self)) };
                let shape = self.shape(shape)?;
                if self.builder.program().inputs.iter().any(|(n, _)| *n == name) {
                    let message = format!("the input `{}` is there twice", shown(&name));
                    return Err(self.fault(at, message, "name it once and use the name"));
                }
                Operand::Tensor(self.input(&name, Type::new(dtype, shape)))
            }
            (FileFunction::Symbol, [name]) => {
                let name = self.text(name)?;
                Operand::Attr(Attr::Int(match self.symbols.get(&name) {
                    Some(n) => Extent::from(i64::try_from(*n).unwrap_or(i64::MAX)),
                    None => Extent::sym(&name),
                }))
            }
            _ => return Err(wrong(self)),
        })
    }

    fn metadata(&self, key: &str) -> Result<Option<Attr>, Fault> {
        const MOST: usize = 1 << 16;
        let long = |n: usize| -> Fault {
            let place = format!("key `{}`", shown(key));
            WeightsError::new(&self.file.path, place, format!("a list of {n} entries"))
                .help("an architecture reads lists of at most 65,536")
                .into()
        };
        let Some(value) = self.file.metadata.get(key) else { return Ok(None) };
        Ok(Some(match value {
            Metadata::Bool(b) => Attr::Bool(*b),
            Metadata::Int(n) => Attr::int(*n),
            Metadata::Float(v) => Attr::float(*v),
            Metadata::Text(text) => Attr::Str(text.clone()),
            Metadata::Ints(v) if v.len() <= MOST => Attr::ints(v.iter().copied()),
            Metadata::Floats(v) if v.len() <= MOST => Attr::floats(v.iter().copied()),
            Metadata::Bools(v) if v.len() <= MOST => Attr::ints(v.iter().map(|b| i64::from(*b))),
            Metadata::Texts(v) if v.len() <= MOST => Attr::Str(v.join(",")),
            Metadata::Ints(v) => return Err(long(v.len())),
            Metadata::Floats(v) => return Err(long(v.len())),
            Metadata::Bools(v) => return Err(long(v.len())),
            Metadata::Texts(v) => return Err(long(v.len())),
        }))
    }

    fn operator(&mut self, id: CallId, args: Vec<Given>, at: &Expr) -> Result<Operand, Fault> {
        let c = self.library.call(id);
        let mut tensors: Vec<Option<Operand>> = vec![None; c.inputs.len()];
        let mut attrs: Vec<Option<Attr>> = vec![None; c.attrs.len()];
        for (i, arg) in args.into_iter().enumerate() {
            let of_name = |known: &Name| arg.name.as_ref() == Some(known);
            let attr = c.attrs.iter().position(|a| of_name(&a.name));
            let input = match arg.name {
                None => Some(i).filter(|i| *i < tensors.len()),
                Some(_) => c.inputs.iter().position(|input| of_name(&input.name)),
            };
            match (attr, input, arg.value) {
                (Some(attr), _, Operand::Attr(value)) => attrs[attr] = Some(value),
                (None, Some(input), value) => tensors[input] = Some(value),
                _ => {
                    let message = format!("`{}` takes {} tensors", c.name, c.inputs.len());
                    return Err(self.fault(at, message, "pass attributes by name"));
                }
            }
        }
        let values = self.operands(c, tensors, at)?;
        let made = match self.library.is_part(id) {
            true => self.builder.expand(id, &attrs, &values),
            false => self.builder.apply(id, &attrs, &values).map_err(BuildError::Type),
        };
        let made = made.map_err(|e| self.misfit(c, &values, &e, at))?;
        Ok(match made.as_slice() {
            [one] => Operand::Tensor(*one),
            _ => Operand::Tuple(made.into_iter().map(Operand::Tensor).collect()),
        })
    }

    /// The tensors that a call is applied to; numbers take the element type of their partners.
    fn operands(
        &mut self,
        c: &Callable,
        operands: Vec<Option<Operand>>,
        at: &Expr,
    ) -> Result<Vec<Value>, Fault> {
        let first = operands.iter().flatten().find_map(|o| match o {
            Operand::Tensor(v) => Some(self.builder.ty(*v).dtype),
            Operand::Attr(_) | Operand::Tuple(_) => None,
        });
        let mut values = vec![];
        for (input, operand) in c.inputs.iter().zip(operands) {
            let dtype = match &input.ty.dtype {
                DTypePattern::Fixed(d) => *d,
                DTypePattern::Var(_) => first.unwrap_or(DType::F32),
            };
            values.push(match operand {
                Some(Operand::Tensor(v)) => v,
                Some(Operand::Attr(a)) => match constant(&a, dtype) {
                    Some(tensor) => self.builder.constant(tensor),
                    None => return Err(self.fault(at, format!("{a} is no tensor"), "")),
                },
                Some(Operand::Tuple(_)) | None => {
                    let message = format!("`{}` needs a tensor `{}`", c.name, input.name);
                    return Err(self.fault(at, message, format!("pass `{}=…`", input.name)));
                }
            });
        }
        Ok(values)
    }

    /// Why a call does not fit its arguments, with the stored tensors among them.
    fn misfit(&self, c: &Callable, values: &[Value], e: &BuildError, at: &Expr) -> Fault {
        let mut message = format!("`{}`: {e}", c.name);
        let named = c.inputs.iter().zip(values);
        let stored = named.filter_map(|(input, v)| {
            let name = self.stored.get(v)?;
            Some(format!(
                "`{}` is the tensor `{}`, {}",
                input.name,
                shown(name),
                self.builder.ty(*v)
            ))
        });
        let stored: Vec<String> = stored.collect();
        if !stored.is_empty() {
            message += &format!(" ({})", stored.join("; "));
        }
        self.fault(at, message, e.help())
    }
}

/// An argument.
struct Given {
    name: Option<Name>,
    value: Operand,
}

/// A number, or a list of numbers, as a tensor.
fn constant(a: &Attr, dtype: DType) -> Option<Tensor> {
    let tensor = |shape: Vec<usize>, v: &[f64]| Tensor::from_f64(dtype, shape, v);
    Some(match a {
        Attr::Ints(list) => {
            let v: Option<Vec<f64>> = list.iter().map(|e| e.as_const().map(|n| n as f64)).collect();
            tensor(vec![list.len()], &v?)
        }
        Attr::Floats(list) => {
            let v: Vec<f64> = list.iter().map(|b| f64::from_bits(*b)).collect();
            tensor(vec![list.len()], &v)
        }
        Attr::Int(_) | Attr::Float(_) => tensor(vec![], &[a.as_f64()?]),
        Attr::Bool(_) | Attr::Str(_) | Attr::DType(_) => return None,
    })
}
