//! Lists of extents as ONNX values: constants where they are known, else computed from the shapes of
//! the inputs. Equal extents are computed once.

use super::ExportError;
use super::nodes::NodeWriter;
use super::types::allowed;
use crate::raw::RawAttr;
use crate::raw::tensor::code;
use mlc_dsl::ir::{Atom, DType, Extent, Tensor, Type};
use std::collections::{HashMap, HashSet};

/// What is computed so far.
pub(crate) struct Shapes {
    inputs: Vec<(String, Type)>,
    /// Results of nodes that are kept. They are not there before these nodes, so they only say what nothing else does, and
    /// each extent is that of the first one.
    made: Vec<(String, Type)>,
    /// Results that are written already: they say in one node what would take several to compute.
    written: Vec<(String, Type)>,
    opset: i64,
    lists: HashMap<(Vec<Extent>, bool), String>,
}

impl Shapes {
    /// Nothing computed; symbols are found among the axes of these inputs, of which some are `made` by nodes that are kept.
    pub fn new(inputs: &[(String, Type)], made: &HashSet<&str>, opset: i64) -> Shapes {
        let is_made = |(name, _): &(String, Type)| made.contains(name.as_str());
        let (made, inputs) = inputs.iter().cloned().partition(is_made);
        Shapes { inputs, made, written: vec![], opset, lists: HashMap::new() }
    }

    /// Notes that a result of this name and type is there from now on.
    pub fn is_written(&mut self, name: &str, ty: &Type) {
        if ty.shape.iter().any(|e| !e.positive_parts().is_empty()) {
            self.written.push((name.to_string(), ty.clone()));
        }
    }

    /// The name of a tensor of 64-bit integers that holds the extents, without axes if `scalar`.
    pub fn list(
        &mut self,
        list: &[Extent],
        scalar: bool,
        out: &mut NodeWriter,
    ) -> Result<String, ExportError> {
        let known: Option<Vec<i64>> = list.iter().map(Extent::as_const).collect();
        if let Some(v) = known {
            let shape = if scalar { vec![] } else { vec![v.len()] };
            return Ok(out.constant(Tensor::from_i64(DType::I64, shape, &v), "extents"));
        }
        let key = (list.to_vec(), scalar);
        if let Some(name) = self.lists.get(&key) {
            return Ok(name.clone());
        }
        let clamped = list.iter().any(|e| !e.positive_parts().is_empty());
        let whole = self.written.iter().find(|(_, ty)| clamped && !scalar && ty.shape == list);
        let name = match list {
            _ if let Some(whole) = whole => self.slice_of_shape(whole, 0, list.len(), out),
            [e] if scalar && let Some((input, at)) = self.axis_of(e) => {
                let whole = out.node("Shape", &[&input.0], &[]);
                let at =
                    out.constant(Tensor::from_i64(DType::I64, vec![], &[at as i64]), "extents");
                out.node("Gather", &[&whole, &at], &[("axis", RawAttr::Int(0))])
            }
            [e] if scalar => {
                let one = self.list(std::slice::from_ref(e), false, out)?;
                out.node("Squeeze", &[&one], &[])
            }
            [e] => self.extent(e, out)?,
            _ => self.concat(list, out)?,
        };
        self.lists.insert(key, name.clone());
        Ok(name)
    }

    /// Runs of known extents, runs that are a part of an input's shape, and single ones.
    fn concat(&mut self, list: &[Extent], out: &mut NodeWriter) -> Result<String, ExportError> {
        let mut parts: Vec<String> = Vec::new();
        let mut rest = list;
        while let Some(first) = rest.first() {
            let n = if first.as_const().is_some() {
                rest.iter().take_while(|e| e.as_const().is_some()).count()
            } else if let Some((n, name)) = self.part_of_input(rest, out) {
                parts.push(name);
                rest = &rest[n..];
                continue;
            } else {
                1
            };
            parts.push(self.list(&rest[..n], false, out)?);
            rest = &rest[n..];
        }
        if let [one] = parts.as_slice() {
            return Ok(one.clone());
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(out.node("Concat", &parts, &[("axis", RawAttr::Int(0))]))
    }

    /// The longest head of the list, two extents or more, that stands in the shape of an input.
    fn part_of_input(&mut self, list: &[Extent], out: &mut NodeWriter) -> Option<(usize, String)> {
        let mut best: Option<(usize, usize, usize)> = None;
        for (i, (_, ty)) in self.inputs.iter().enumerate() {
            for from in 0..ty.rank() {
                let n = ty.shape[from..].iter().zip(list).take_while(|(a, b)| a == b).count();
                if n >= 2 && best.is_none_or(|b| n > b.0) {
                    best = Some((n, i, from));
                }
            }
        }
        let (n, input, from) = best?;
        let input = self.inputs[input].clone();
        Some((n, self.slice_of_shape(&input, from, from + n, out)))
    }

    fn slice_of_shape(
        &self,
        (name, ty): &(String, Type),
        from: usize,
        to: usize,
        out: &mut NodeWriter,
    ) -> String {
        if from == 0 && to == ty.rank() {
            return out.node("Shape", &[name], &[]);
        }
        let (from, to) = (from as i64, to as i64);
        if self.opset >= 15 {
            let attrs = [("start", RawAttr::Int(from)), ("end", RawAttr::Int(to))];
            return out.node("Shape", &[name], &attrs);
        }
        let whole = out.node("Shape", &[name], &[]);
        let at: Vec<i64> = (from..to).collect();
        let at = out.constant(Tensor::from_i64(DType::I64, vec![at.len()], &at), "extents");
        out.node("Gather", &[&whole, &at], &[("axis", RawAttr::Int(0))])
    }

    /// The first axis that has this extent, of a tensor that is there.
    fn axis_of(&self, e: &Extent) -> Option<(&(String, Type), usize)> {
        let has = |(_, ty): &&(String, Type)| ty.shape.contains(e);
        let input = self.inputs.iter().find(has);
        let input = input.or_else(|| self.written.iter().find(has));
        let input = input.or_else(|| self.made.iter().find(|made| has(made) && self.is_made(e)));
        input.and_then(|input| Some((input, input.1.shape.iter().position(|d| d == e)?)))
    }

    /// A list of one extent: a polynomial, term by term.
    fn extent(&mut self, e: &Extent, out: &mut NodeWriter) -> Result<String, ExportError> {
        if let Some((input, at)) = self.axis_of(e) {
            return Ok(self.slice_of_shape(input, at, at + 1, out));
        }
        if let Some((whole, bound)) = e.as_minimum().filter(|_| self.allows("Min")) {
            let whole = self.list(&[whole], false, out)?;
            let bound = self.list(&[Extent::from(bound)], false, out)?;
            return Ok(out.node("Min", &[&whole, &bound], &[]));
        }
        let mut sum: Option<String> = None;
        for (monomial, factor) in e.terms() {
            let mut product: Option<String> = None;
            if factor != 1 || monomial.is_empty() {
                product = Some(self.list(&[Extent::from(factor)], false, out)?);
            }
            for (atom, power) in &monomial {
                let a = self.atom(atom, e, out)?;
                for _ in 0..*power {
                    product = Some(match product {
                        Some(p) => out.node("Mul", &[&p, &a], &[]),
                        None => a.clone(),
                    });
                }
            }
            let Some(product) = product else { continue };
            sum = Some(match sum {
                Some(s) => out.node("Add", &[&s, &product], &[]),
                None => product,
            });
        }
        match sum {
            Some(s) => Ok(s),
            None => self.list(&[Extent::from(0)], false, out),
        }
    }

    /// True if only the results of kept nodes say what an extent is. What is computed of symbols is computed of them where
    /// they stand alone: the node whose result has such an extent may be the one that needs it first.
    fn is_made(&self, e: &Extent) -> bool {
        let alone = |s: &str, of: &[(String, Type)]| {
            let symbol = Extent::sym(s);
            of.iter().any(|(_, ty)| ty.shape.contains(&symbol))
        };
        let is_symbol = |s: &str| Extent::sym(s) == *e;
        e.symbols()
            .iter()
            .any(|s| !alone(s, &self.inputs) && (is_symbol(s) || !alone(s, &self.made)))
    }

    fn atom(
        &mut self,
        atom: &Atom,
        whole: &Extent,
        out: &mut NodeWriter,
    ) -> Result<String, ExportError> {
        let (a, b) = match atom {
            Atom::Sym(s) => {
                let e = Extent::sym(s);
                if e == *whole {
                    return Err(ExportError::Extent {
                        extent: whole.to_string(),
                        symbol: s.to_string(),
                    });
                }
                return self.list(&[e], false, out);
            }
            Atom::Positive(e) => return self.positive(e, whole, out),
            Atom::Common(all) => return self.common(all, whole, out),
            Atom::Div(a, b) | Atom::Mod(a, b) => (a, b),
        };
        let [x, y] = [a, b].map(|e| self.list(std::slice::from_ref(e), false, out));
        let (x, y) = (x?, y?);
        if matches!(atom, Atom::Mod(..)) {
            self.must_be_allowed("Mod", whole)?;
            return Ok(out.node("Mod", &[&x, &y], &[]));
        }
        // ONNX's division of integers rounds towards zero: what may be negative is rounded down first.
        if a.at_least(0) && b.at_least(0) {
            return Ok(out.node("Div", &[&x, &y], &[]));
        }
        self.must_be_allowed("Mod", whole)?;
        let rest = out.node("Mod", &[&x, &y], &[]);
        let multiple = out.node("Sub", &[&x, &rest], &[]);
        Ok(out.node("Div", &[&multiple, &y], &[]))
    }

    /// What axes have in common that broadcast: the largest extent, or 0 if one is. Until operator set 12 only real numbers have a largest.
    fn common(
        &mut self,
        all: &[Extent],
        whole: &Extent,
        out: &mut NodeWriter,
    ) -> Result<String, ExportError> {
        let is_real = !self.allows("Max");
        let mut values = vec![];
        for e in all {
            let value = self.list(std::slice::from_ref(e), false, out)?;
            values.push(if is_real { self.cast(&value, DType::F64, whole, out)? } else { value });
        }
        let mut values: Vec<&str> = values.iter().map(String::as_str).collect();
        let most = out.node("Max", &values, &[]);
        let one = match is_real {
            true => out.constant(Tensor::from_f64(DType::F64, vec![1], &[1.0]), "extents"),
            false => self.list(&[Extent::from(1)], false, out)?,
        };
        values.push(&one);
        let least = out.node("Min", &values, &[]);
        let both = out.node("Mul", &[&most, &least], &[]);
        if is_real { self.cast(&both, DType::I64, whole, out) } else { Ok(both) }
    }

    /// `max(e, 0)`: until operator set 12 only of real numbers, so that a comparison is multiplied with.
    fn positive(
        &mut self,
        e: &Extent,
        whole: &Extent,
        out: &mut NodeWriter,
    ) -> Result<String, ExportError> {
        let x = self.list(std::slice::from_ref(e), false, out)?;
        if self.allows("Max") {
            let zero = self.list(&[Extent::from(0)], false, out)?;
            return Ok(out.node("Max", &[&x, &zero], &[]));
        }
        let real = self.cast(&x, DType::F64, whole, out)?;
        let zero = out.constant(Tensor::from_f64(DType::F64, vec![1], &[0.0]), "extents");
        let above = out.node("Greater", &[&real, &zero], &[]);
        let above = self.cast(&above, DType::I64, whole, out)?;
        Ok(out.node("Mul", &[&x, &above], &[]))
    }

    /// The numbers of another element type. Operator sets without a product of integers compute no extents.
    fn cast(
        &self,
        x: &str,
        to: DType,
        whole: &Extent,
        out: &mut NodeWriter,
    ) -> Result<String, ExportError> {
        self.must_be_allowed("Mul", whole)?;
        Ok(out.node("Cast", &[x], &[("to", RawAttr::Int(code(to).into()))]))
    }

    fn allows(&self, op: &str) -> bool {
        let int = Some(DType::I64);
        allowed(op, self.opset, &[int, int], &[int])
    }

    fn must_be_allowed(&self, op: &str, whole: &Extent) -> Result<(), ExportError> {
        if self.allows(op) {
            return Ok(());
        }
        let (op, origin) = (op.to_lowercase(), format!("the extent {whole}"));
        Err(ExportError::Operator { op, origin, opset: self.opset })
    }
}
