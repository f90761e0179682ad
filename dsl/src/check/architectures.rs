//! Resolves the names in `architecture` items. Operands are checked where a file is read.

use super::{onnx, signature_help};
use crate::architecture::{Architecture, FileFunction, Steps, StoredType, Target};
use crate::check::report::{error, name, suggest};
use crate::diagnostics::Diag;
use crate::diagnostics::span::{SourceSpan, Span};
use crate::expr::{Expr, ExprKind, Name};
use crate::library::{CallId, DTypePattern, Dim, Library};
use crate::onnx::{Apply, Callee, NodeQuery};
use crate::syntax::ast;
use std::collections::BTreeSet;

/// What an item declares; what is wrong with it is diagnosed and left out.
pub(super) fn architecture(
    library: &Library,
    source: u32,
    item: &ast::Item,
    decl: &ast::Architecture,
) -> (Architecture, Vec<Diag>) {
    let mut r = Resolver { library, names: BTreeSet::new(), diags: vec![] };
    let options: Vec<_> = decl.params.iter().filter_map(|p| r.option(p)).collect();
    r.names.extend(options.iter().map(|(n, _)| n.clone()));
    let steps = decl.steps.iter().map(|s| r.steps(s)).collect();
    let found = Architecture {
        name: name(&item.name.text),
        doc: item.doc.clone(),
        options,
        format: name(&decl.format.text),
        names: decl.names.clone(),
        steps,
        source: SourceSpan::new(source, item.span),
    };
    (found, r.diags)
}

/// The type of stored tensors that an operator decodes.
pub(super) fn stored(
    library: &Library,
    call: CallId,
    one: &ast::StoredType,
) -> Result<StoredType, Diag> {
    let c = library.call(call);
    let bytes = DTypePattern::Fixed(crate::ir::DType::U8);
    let is_row = |dims: &Option<Vec<Dim>>, axes: usize| match dims.as_deref() {
        Some([Dim::Seg(_), rest @ ..]) => rest.len() == axes,
        _ => false,
    };
    let fits = match (c.inputs.as_slice(), c.outputs.as_slice()) {
        ([x], [(_, y)]) => {
            x.ty.dtype == bytes && is_row(&x.ty.dims, 2) && is_row(&y.dims, 1) && c.attrs.is_empty()
        }
        _ => false,
    };
    let format = name(&one.format.text);
    match fits {
        true => Ok(StoredType { format, number: one.number, call }),
        false => Err(error(
            "R006",
            one.format.span,
            format!("`{}` decodes no stored tensor", c.name),
            "what does takes `w: u8[..r, b, 20]`, the bytes of each block of a row, and yields `f32[..r, n]`",
        )),
    }
}

struct Resolver<'a> {
    library: &'a Library,
    names: BTreeSet<Name>,
    diags: Vec<Diag>,
}

impl Resolver<'_> {
    fn option(&mut self, p: &ast::Param) -> Option<(Name, Expr)> {
        match (&p.kind, &p.default) {
            (ast::ParamKind::Attr(_), Some(default)) => {
                Some((name(&p.name.text), self.expr(default)?))
            }
            _ => {
                let message = format!("`{}` is no option", p.name.text);
                let help = "an option is a number, a word or a truth value with a default: `last = false`; \
                            inputs are named by `input`";
                self.diags.push(error("R006", p.span, message, help));
                None
            }
        }
    }

    fn steps(&mut self, steps: &ast::Steps) -> Steps {
        let each = steps.each.as_ref().and_then(|(count, times)| {
            let times = self.expr(times)?;
            self.names.insert(name(&count.text));
            Some((name(&count.text), times))
        });
        let mut found = vec![];
        for step in &steps.steps {
            let value = self.expr(&step.value);
            let target = match &step.target {
                ast::StepTarget::Names(all) => {
                    self.names.extend(all.iter().map(|n| name(&n.text)));
                    Target::Names(all.iter().map(|n| name(&n.text)).collect())
                }
                ast::StepTarget::Output(text) => Target::Output(text.clone()),
            };
            found.extend(value.map(|value| (target, value)));
        }
        Steps { each, steps: found }
    }

    fn expr(&mut self, e: &ast::Expr) -> Option<Expr> {
        let names = self.names.iter().map(|n| &**n);
        let found = onnx::positional(self.library, names, e);
        let found = found.map_err(|d| self.diags.push(d)).ok()?;
        let before = self.diags.len();
        self.known(&found);
        (self.diags.len() == before).then_some(found)
    }

    /// Reports what has no meaning in an architecture.
    fn known(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Name(n) | ExprKind::Type(_, n) | ExprKind::Entry(n, _)
                if !self.names.contains(n) =>
            {
                let message = format!("`{n}` is not a name here");
                let help = suggest(n, self.names.iter().map(|n| &**n));
                let help = help.unwrap_or("name it by a `let` above, or by an option".into());
                self.diags.push(error("R002", e.span, message, &help));
            }
            ExprKind::Ask(question, _) if *question != NodeQuery::Present => {
                let message = format!("`{question}` asks about a node of an ONNX file");
                self.diags.push(error("R009", e.span, message, "ask `present(\"tensor or key\")`"));
            }
            ExprKind::Apply(call) => self.call(call, e.span),
            _ => {}
        }
        e.parts().into_iter().for_each(|p| self.known(p));
    }

    fn call(&mut self, call: &Apply, at: Span) {
        let Callee::Operator(called, id, function) = &call.callee else {
            if !matches!(call.callee, Callee::Unsupported) {
                let message = "this form belongs to `onnx` items".into();
                let help = "write a `def` that does it, and apply that";
                self.diags.push(error("R009", at, message, help));
            }
            return;
        };
        let asked = FileFunction::ALL.iter().find(|f| f.1 == &**called);
        if let Some((_, word, takes)) = asked {
            if !takes.contains(&call.args.len()) || call.args.iter().any(|a| a.name.is_some()) {
                let message = format!("`{word}` takes {} to {} values", takes.start(), takes.end());
                self.diags.push(error("R006", at, message, "the manual shows it"));
            }
            return;
        }
        let Some(id) = id else {
            if function.is_none() {
                let words = FileFunction::ALL.iter().map(|f| f.1);
                let known = self.library.calls.iter().map(|c| &*c.name).chain(words);
                let help = suggest(called, known).unwrap_or_else(|| "declare it".into());
                let message = format!("there is no operator `{called}`");
                self.diags.push(error("R003", at, message, &help));
            }
            return;
        };
        let c = self.library.call(*id);
        let takes = |n: &Name| {
            c.inputs.iter().any(|i| i.name == *n) || c.attrs.iter().any(|a| a.name == *n)
        };
        if let Some(n) = call.args.iter().filter_map(|a| a.name.as_ref()).find(|n| !takes(n)) {
            let message = format!("`{called}` has no parameter `{n}`");
            let diag = error("R005", at, message, &signature_help(c));
            self.diags.push(diag);
        }
    }
}
