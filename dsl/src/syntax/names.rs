//! The names of a text: what each item declares, and every place where a name stands, in the order of the text.
//!
//! For tools that edit texts. Knows nothing of other texts: whether an operator that is named is declared anywhere is for the checker to say.

use super::ast::*;
use std::collections::BTreeSet;

/// What a name is the name of; two occurrences with equal names and equal spaces are the same thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// An `op`, `def`, `fuse` or `extern`.
    Operator,
    /// A `rule`.
    Law,
    /// A `target`.
    Target,
    /// An `architecture`.
    Architecture,
    /// An operator of ONNX.
    Onnx,
    /// A parameter of the operator of this name, which calls may pass by name.
    Parameter(String),
    /// An attribute of the ONNX operator that the item of this index reads.
    OnnxAttribute(usize),
    /// A variable or an axis of the item of this index.
    Local(usize),
}

/// A place where a name stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// As written.
    pub name: String,
    /// Where.
    pub span: Span,
    /// Of what.
    pub space: Space,
    /// It is made here, rather than used.
    pub declares: bool,
    /// The index of the item that it stands in.
    pub item: usize,
}

/// An item as a list of contents shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// The word that opens it.
    pub word: &'static str,
    /// Its name.
    pub name: Ident,
    /// The whole item without its comment.
    pub span: Span,
    /// The lines of its documentation.
    pub doc: Vec<String>,
    /// Its parameters, or the variables that it is given, each with where it is declared.
    pub parameters: Vec<(String, Span)>,
}

/// The names of a text.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Its items.
    pub items: Vec<Outline>,
    /// Every name, in the order of the text.
    pub occurrences: Vec<Occurrence>,
}

impl Names {
    /// Of the items of a text that could be read.
    pub fn of(file: &File, text: &str) -> Names {
        let mut out = Names::default();
        for (index, item) in file.items.iter().enumerate() {
            let parameters = parameters(&item.kind);
            out.items.push(Outline {
                word: word(&item.kind),
                name: item.name.clone(),
                span: item.span,
                doc: item.doc.clone(),
                parameters: parameters.iter().map(|p| (p.name.text.clone(), p.span)).collect(),
            });
            let mut visit = Visit { text, item, index, locals: locals(&item.kind), out: vec![] };
            visit.item();
            out.occurrences.append(&mut visit.out);
        }
        out.occurrences.sort_by_key(|o| (o.span.start, !o.declares));
        out.occurrences.dedup_by_key(|o| o.span);
        out
    }

    /// The name at a byte of the text; one past its last byte counts, too.
    pub fn at(&self, byte: u32) -> Option<&Occurrence> {
        let near = |o: &&Occurrence| o.span.start <= byte && byte <= o.span.end;
        let mut found = self.occurrences.iter().filter(near);
        let first = found.next()?;
        Some(found.next().filter(|o| o.span.start == byte).unwrap_or(first))
    }
}

fn word(kind: &ItemKind) -> &'static str {
    match kind {
        ItemKind::Op(_) => "op",
        ItemKind::Def(_) => "def",
        ItemKind::Rule(_) => "rule",
        ItemKind::Fuse(_) => "fuse",
        ItemKind::Extern(_) => "extern",
        ItemKind::Onnx(_) => "onnx",
        ItemKind::Target(_) => "target",
        ItemKind::Architecture(_) => "architecture",
    }
}

fn parameters(kind: &ItemKind) -> &[Param] {
    match kind {
        ItemKind::Op(Op { params, .. })
        | ItemKind::Def(Def { params, .. })
        | ItemKind::Rule(Rule { given: params, .. })
        | ItemKind::Fuse(Fuse { params, .. })
        | ItemKind::Extern(Extern { params, .. })
        | ItemKind::Onnx(Onnx { params, .. })
        | ItemKind::Architecture(Architecture { params, .. }) => params,
        ItemKind::Target(_) => &[],
    }
}

/// The variables of an item, so that a schema's `f(x)` is told from a call of an operator.
fn locals(kind: &ItemKind) -> BTreeSet<String> {
    parameters(kind).iter().map(|p| p.name.text.clone()).collect()
}

struct Visit<'t> {
    text: &'t str,
    item: &'t Item,
    index: usize,
    locals: BTreeSet<String>,
    out: Vec<Occurrence>,
}

impl Visit<'_> {
    fn push(&mut self, name: &str, span: Span, space: Space, declares: bool) {
        let (name, item) = (name.to_string(), self.index);
        self.out.push(Occurrence { name, span, space, declares, item });
    }

    fn declare(&mut self, ident: &Ident, space: Space) {
        self.push(&ident.text, ident.span, space, true);
    }

    fn refer(&mut self, ident: &Ident, space: Space) {
        self.push(&ident.text, ident.span, space, false);
    }

    /// The space of a variable or an axis of the item.
    fn own(&self, name: &str) -> Space {
        let is = |p: &&Param| p.name.text == name;
        let param = parameters(&self.item.kind).iter().find(is);
        match (&self.item.kind, param) {
            (
                ItemKind::Op(_) | ItemKind::Def(_) | ItemKind::Fuse(_) | ItemKind::Extern(_),
                Some(_),
            ) => Space::Parameter(self.item.name.text.clone()),
            (ItemKind::Onnx(_), Some(Param { kind: ParamKind::Attr(_), .. })) => {
                Space::OnnxAttribute(self.index)
            }
            _ => Space::Local(self.index),
        }
    }

    fn local(&mut self, ident: &Ident, declares: bool) {
        let space = self.own(&ident.text);
        self.push(&ident.text, ident.span, space, declares);
    }

    /// A name that the tree has no place of its own for: the word in the place of what it is part of.
    fn within(&mut self, name: &str, span: Span, declares: bool) {
        let text = self.text.get(span.range()).unwrap_or_default();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let found = text.match_indices(name).find(|(at, _)| {
            !text[..*at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word)
        });
        let Some((at, _)) = found else { return };
        let start = span.start + at as u32;
        let span = Span { start, end: start + name.len() as u32 };
        let space = self.own(name);
        self.push(name, span, space, declares);
    }

    fn item(&mut self) {
        let item = self.item;
        let space = match item.kind {
            ItemKind::Op(_) | ItemKind::Def(_) | ItemKind::Fuse(_) | ItemKind::Extern(_) => {
                Space::Operator
            }
            ItemKind::Rule(_) => Space::Law,
            ItemKind::Onnx(_) => Space::Onnx,
            ItemKind::Target(_) => Space::Target,
            ItemKind::Architecture(_) => Space::Architecture,
        };
        self.declare(&item.name, space);
        self.params(parameters(&item.kind));
        match &item.kind {
            ItemKind::Op(op) => self.op(op),
            ItemKind::Def(d) => {
                self.outputs(&d.outputs);
                self.bindings(&d.wheres);
                self.bindings(&d.lets);
                self.expr(&d.body);
                self.exprs(&d.conditions);
            }
            ItemKind::Rule(r) => self.rule(r),
            ItemKind::Fuse(f) => {
                self.outputs(&f.outputs);
                self.bindings(&f.wheres);
                self.bindings(&f.lets);
                self.expr(&f.body);
                f.on.iter().for_each(|(target, _)| self.refer(target, Space::Target));
                self.exprs(&f.conditions);
                self.exprs(&f.hints);
            }
            ItemKind::Extern(e) => {
                self.outputs(&e.outputs);
                self.bindings(&e.wheres);
                self.exprs(&e.conditions);
            }
            ItemKind::Onnx(o) => self.onnx(o),
            ItemKind::Target(t) => self.target(t),
            ItemKind::Architecture(a) => self.architecture(a),
        }
    }

    fn op(&mut self, op: &Op) {
        self.outputs(&op.outputs);
        for t in &op.traits {
            match t {
                OpTrait::Unit(e) => self.expr(e),
                OpTrait::Commutative | OpTrait::Associative => {}
            }
        }
        self.bindings(&op.wheres);
        self.exprs(&op.conditions);
        for m in &op.meanings {
            self.local(&m.output, false);
            self.elems(&m.index, false);
            self.expr(&m.value);
        }
    }

    fn rule(&mut self, r: &Rule) {
        self.sides(&r.left, true);
        self.sides(&r.right, false);
        self.bindings(&r.wheres);
        self.exprs(&r.conditions);
        self.exprs(&r.hints);
        for test in &r.tests {
            match test {
                RuleTest::Check { name, low, high } => {
                    self.local(name, false);
                    self.expr(low);
                    self.expr(high);
                }
                RuleTest::Picks { side, at } => {
                    self.expr(side);
                    for (name, value) in at {
                        self.local(name, false);
                        self.expr(value);
                    }
                }
                RuleTest::Never { sides, .. } => self.sides(sides, false),
            }
        }
    }

    fn onnx(&mut self, o: &Onnx) {
        o.outputs.iter().for_each(|name| self.local(name, true));
        self.exprs(&o.conditions);
        self.bindings(&o.lets);
        for a in &o.reads {
            self.expr(&a.value);
            self.exprs(&a.conditions);
        }
        for p in &o.prints {
            // Variables of a pattern are its own; to rename them with those of the item is right, too.
            self.params(&p.given);
            self.expr(&p.pattern);
            self.exprs(&p.inputs);
            for (name, value) in &p.attrs {
                self.refer(name, Space::OnnxAttribute(self.index));
                self.expr(value);
            }
            p.result.iter().for_each(|name| self.local(name, false));
            self.exprs(&p.conditions);
        }
    }

    fn target(&mut self, t: &Target) {
        t.extends.iter().for_each(|base| self.refer(base, Space::Target));
        for k in &t.kernels {
            let named = k.covers.iter().chain(k.epilogue.iter().flatten());
            named.for_each(|name| self.refer(name, Space::Operator));
        }
    }

    fn architecture(&mut self, a: &Architecture) {
        for part in &a.steps {
            if let Some((name, count)) = &part.each {
                self.local(name, true);
                self.expr(count);
            }
            for step in &part.steps {
                if let StepTarget::Names(names) = &step.target {
                    names.iter().for_each(|name| self.local(name, true));
                }
                self.expr(&step.value);
            }
        }
    }

    fn sides(&mut self, sides: &[Side], declares: bool) {
        for side in sides {
            side.names.iter().for_each(|name| self.local(name, declares));
            self.expr(&side.value);
        }
    }

    fn params(&mut self, params: &[Param]) {
        for p in params {
            self.local(&p.name, true);
            match &p.kind {
                ParamKind::Tensor { ty, .. } => self.tensor(ty, true),
                ParamKind::ConstInput { ty, .. } | ParamKind::Attr(Some(ty)) => self.attr(ty),
                ParamKind::Attr(None) => {}
            }
            p.default.iter().for_each(|e| self.expr(e));
        }
    }

    fn outputs(&mut self, outputs: &[Output]) {
        for o in outputs {
            o.name.iter().for_each(|name| self.local(name, true));
            self.tensor(&o.ty, false);
        }
    }

    fn tensor(&mut self, ty: &TensorType, declares: bool) {
        self.elems(ty.dims.as_deref().unwrap_or_default(), declares);
        ty.domain.iter().for_each(|d| self.expr(&d.bound));
    }

    fn attr(&mut self, ty: &AttrType) {
        ty.of.iter().for_each(|axis| self.local(axis, false));
        let (low, high) = ty.range.as_ref().map_or((None, None), |(l, h)| (l.as_ref(), h.as_ref()));
        low.into_iter().chain(high).for_each(|e| self.expr(e));
    }

    fn bindings(&mut self, bindings: &[Binding]) {
        for b in bindings {
            b.names.iter().for_each(|name| self.local(name, true));
            self.expr(&b.value);
        }
    }

    fn exprs(&mut self, exprs: &[Expr]) {
        exprs.iter().for_each(|e| self.expr(e));
    }

    fn elems(&mut self, elems: &[Elem], declares: bool) {
        for e in elems.iter().map(Elem::expr) {
            match &e.kind {
                ExprKind::Name(name) => self.within(name, e.span, declares),
                _ => self.expr(e),
            }
        }
    }

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Str(_) | ExprKind::Bool(_) => {}
            ExprKind::Name(name) | ExprKind::Size(name) => self.within(name, e.span, false),
            ExprKind::List(items) => self.elems(items, false),
            ExprKind::Tuple(items) => self.exprs(items),
            ExprKind::Unary(_, a) => self.expr(a),
            ExprKind::Binary(_, a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Call { callee, args } => self.call(callee, args),
            ExprKind::Index { base, index, otherwise } => {
                self.local(base, false);
                self.elems(index, false);
                otherwise.iter().for_each(|e| self.expr(e));
            }
            ExprKind::Axes { of, index } => {
                self.expr(of);
                self.elems(index, false);
            }
            ExprKind::Reduce { axes, body, .. } => {
                self.elems(axes, false);
                self.expr(body);
            }
            ExprKind::If { cond, then, otherwise } => {
                [then, cond, otherwise].into_iter().for_each(|e| self.expr(e));
            }
        }
    }

    fn call(&mut self, callee: &Ident, args: &[Arg]) {
        let is_variable = self.locals.contains(&callee.text);
        match is_variable {
            true => self.local(callee, false),
            false => self.refer(callee, Space::Operator),
        }
        for arg in args {
            if let Some(name) = arg.name.as_ref().filter(|_| !is_variable) {
                self.refer(name, Space::Parameter(callee.text.clone()));
            }
            self.expr(&arg.value);
        }
    }
}
