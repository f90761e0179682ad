//! Checks texts and builds a library: resolves names, elaborates shapes, reports all errors.
//!
//! Never fails: the valid items of faulty texts are kept, the others are diagnosed.

mod architectures;
mod elaborate;
mod laws;
mod meaning;
mod onnx;
mod recursion;
mod report;
mod resolve;
mod signature;
mod targets;

pub use laws::hidden;
pub use meaning::operator_properties;
pub use targets::{CLASSES, WORK};

use crate::diagnostics::span::SourceSpan;
use crate::diagnostics::{Diag, Severity};
use crate::library::{
    CallId, CallKind, Callable, DTypePattern, Dim, FuseItem, Input, Law, Library, OnnxItem,
    OpClass, Source,
};
use crate::syntax::ast::{Def, Elem, Expr, ExprKind, File, Item, ItemKind, Op, Rule, StoredType};
use crate::syntax::names::Names;
use crate::syntax::{parse, print_file};
use report::{error, name};
use resolve::Scope;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A diagnostic and the source text it belongs to.
#[derive(Clone, Debug)]
pub struct SourceDiag {
    /// Index into [`Library::sources`].
    pub source: u32,
    /// The message, with byte offsets into the text.
    pub diag: Diag,
}

/// A text that is parsed; one may be part of several libraries.
#[derive(Clone, Debug)]
pub struct Text {
    source: Source,
    file: File,
    diags: Vec<Diag>,
}

impl Text {
    /// Its name and its text.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Its names: what its items declare, and every place where a name stands.
    pub fn names(&self) -> Names {
        Names::of(&self.file, &self.source.text)
    }

    /// In canonical form; what could not be read is missing.
    pub fn canonical(&self) -> String {
        print_file(&self.file)
    }

    /// True if it declares operators or layers, and neither targets nor operators of ONNX: what is built of such texts alone has
    /// operators, and few laws.
    pub fn is_of_operators(&self) -> bool {
        let declares = |i: &Item| match i.kind {
            ItemKind::Op(_) | ItemKind::Def(_) | ItemKind::Extern(_) => true,
            ItemKind::Rule(_) | ItemKind::Fuse(_) => false,
            ItemKind::Onnx(_) | ItemKind::Target(_) | ItemKind::Architecture(_) => false,
        };
        self.file.items.iter().any(declares)
    }

    /// Texts without mistakes as bytes, for the same build of this crate to read.
    ///
    /// # Errors
    /// They cannot be encoded.
    pub fn to_bytes(texts: &[Text]) -> Result<Vec<u8>, postcard::Error> {
        let all: Vec<_> = texts.iter().map(|t| (&t.source, &t.file)).collect();
        postcard::to_stdvec(&all)
    }

    /// What [`Text::to_bytes`] wrote. Whoever gives the bytes answers for them.
    ///
    /// # Errors
    /// The bytes are no texts.
    pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Text>, postcard::Error> {
        let all: Vec<(Source, File)> = postcard::from_bytes(bytes)?;
        Ok(all.into_iter().map(|(source, file)| Text { source, file, diags: vec![] }).collect())
    }
}

/// Reads texts, given as (file name, text), into one library.
pub fn library<S: AsRef<str> + Sync>(texts: &[(S, S)]) -> (Library, Vec<SourceDiag>) {
    library_of(&parsed(texts))
}

/// The library of texts that are parsed.
pub fn library_of<'t>(texts: impl IntoIterator<Item = &'t Text>) -> (Library, Vec<SourceDiag>) {
    let mut b = LibraryBuilder::default();
    let mut items: Vec<(u32, &Item)> = Vec::new();
    for (source, text) in (0..).zip(texts) {
        b.library.sources.push(text.source.clone());
        b.report(source, text.diags.clone());
        items.extend(text.file.items.iter().map(|item| (source, item)));
    }
    b.declare(&items);
    b.bodies(&items);
    b.rest(&items);
    b.diags.sort_by_key(|d| (d.source, d.diag.labels.first().map_or(0, |l| l.0.start)));
    (b.library, b.diags)
}

/// The texts, given as (file name, text), with their items and mistakes. Parsing takes most of the time of reading a
/// library, and texts are parsed side by side.
pub fn parsed<S: AsRef<str> + Sync>(texts: &[(S, S)]) -> Vec<Text> {
    let text = |(name, text): &(S, S)| {
        let (name, text) = (name.as_ref(), text.as_ref());
        let (file, diags) = parse(text);
        let source = Source { name: name.into(), text: text.into() };
        Text { source, file, diags }
    };
    let done: Vec<OnceLock<Text>> = texts.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let each = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        for i in each.take_while(|i| *i < texts.len()) {
            done[i].get_or_init(|| text(&texts[i]));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(texts.len());
    std::thread::scope(|scope| {
        // Where no thread can be started, this one does all.
        let helps = |_: &usize| std::thread::Builder::new().spawn_scoped(scope, work).is_ok();
        let _ = (1..threads).take_while(helps).count();
        work();
    });
    let parsed = done.into_iter().zip(texts);
    parsed.map(|(d, given)| d.into_inner().unwrap_or_else(|| text(given))).collect()
}

#[derive(Default)]
struct LibraryBuilder {
    library: Library,
    diags: Vec<SourceDiag>,
    /// Per callable: something is wrong with it, or with what it is built on.
    faulty: Vec<bool>,
    /// Mistakes per text.
    mistakes: Vec<usize>,
    /// There were too many to go on.
    gave_up: bool,
}

/// Mistakes after which bodies and laws are no longer looked at: each costs a search for what was meant.
const MISTAKES: usize = 1000;

impl LibraryBuilder {
    fn report(&mut self, source: u32, diags: Vec<Diag>) {
        self.mistakes.resize(self.library.sources.len().max(self.mistakes.len()), 0);
        if let Some(n) = self.mistakes.get_mut(source as usize) {
            *n += diags.len();
        }
        self.diags.extend(diags.into_iter().map(|diag| SourceDiag { source, diag }));
    }

    /// Signatures first: bodies may refer to what comes later.
    fn declare(&mut self, items: &[(u32, &Item)]) {
        let mut seen: HashMap<String, SourceSpan> = HashMap::new();
        for (source, item) in items {
            let space = match item.kind {
                ItemKind::Rule(_) => "rule",
                ItemKind::Onnx(_) => continue,
                ItemKind::Target(_) => "target",
                ItemKind::Architecture(_) => "architecture",
                _ => "operator",
            };
            let key = format!("{space} {}", item.name.text);
            if let Some(SourceSpan { file: first, span }) = seen.get(&key) {
                let mut d = error(
                    "R001",
                    item.name.span,
                    format!("the {space} `{}` is declared twice", item.name.text),
                    "rename one of them, or delete it",
                );
                if first == source {
                    d.labels.push((*span, "first declared here".into()));
                } else if let Some(other) = self.library.sources.get(*first as usize) {
                    d.help =
                        Some(format!("it is declared in {}, too; rename one of them", other.name));
                }
                self.report(*source, vec![d]);
                continue;
            }
            seen.insert(key, SourceSpan::new(*source, item.name.span));
            let (callable, diags) = signature::callable(*source, item);
            let sound = diags.iter().all(|d| d.severity != Severity::Error);
            self.report(*source, diags);
            if let Some(c) = callable {
                self.faulty.push(!sound);
                let id = CallId(self.library.calls.len() as u32);
                self.library.by_name.insert(c.name.clone(), id);
                self.library.calls.push(c);
            }
        }
    }

    /// Bodies of definitions and the laws that they are, in the order of the texts; then rules. What is built on a
    /// faulty callable yields no law.
    fn bodies(&mut self, items: &[(u32, &Item)]) {
        let mut faulty = std::mem::take(&mut self.faulty);
        // What architectures are made of is inlined where files are read: it is found in no other program.
        let is_architecture = |i: &&(u32, &Item)| matches!(i.1.kind, ItemKind::Architecture(_));
        let parts: HashSet<u32> = items.iter().filter(is_architecture).map(|i| i.0).collect();
        let mut defined = Vec::new();
        for (source, item) in items {
            let (decl, lets, outputs) = match &item.kind {
                ItemKind::Def(d) => (&d.body, &d.lets, d.outputs.len()),
                ItemKind::Fuse(f) => (&f.body, &f.lets, f.outputs.len()),
                _ => continue,
            };
            let Some(id) = self.own(*source, item) else { continue };
            if self.gives_up(*source, item) {
                faulty[id.0 as usize] = true;
                continue;
            }
            let (body, diags) = laws::body(&self.library, id, lets, decl, outputs);
            let sound = diags.iter().all(|d| d.severity != Severity::Error);
            self.report(*source, diags);
            match body.filter(|_| sound) {
                Some(body) => {
                    self.library.calls[id.0 as usize].kind = CallKind::Def(body);
                    defined.push((*source, item, id));
                }
                None => faulty[id.0 as usize] = true,
            }
        }
        for (source, diag) in recursion::check(&mut self.library, &mut faulty) {
            self.report(source, vec![diag]);
        }
        for (source, item, id) in defined {
            if !faulty[id.0 as usize] && !parts.contains(&source) {
                self.definition(source, item, id);
            }
        }
        let mut named: HashMap<String, ()> = HashMap::new();
        for (source, item) in items {
            let ItemKind::Rule(rule) = &item.kind else { continue };
            if named.insert(item.name.text.clone(), ()).is_some() {
                continue; // Reported when signatures were declared.
            }
            if self.gives_up(*source, item) {
                continue;
            }
            let (laws, diags) = match laws::schema::is_schema(rule) {
                true => self.schema(*source, item, rule),
                false => laws::of_rule(&self.library, *source, item, rule),
            };
            self.report(*source, diags);
            let sound = laws.into_iter().filter(|l| !recursion::is_faulty(l, &faulty));
            self.library.laws.extend(sound);
        }
    }

    /// The laws of all instances of a schema. Its mistakes are those of the first instance that has any.
    fn schema(&self, source: u32, item: &Item, rule: &Rule) -> (Vec<Law>, Vec<Diag>) {
        let instances = match laws::schema::instances(&self.library, item, rule) {
            Ok(instances) => instances,
            Err(diag) => return (vec![], vec![diag]),
        };
        let mut out = Vec::new();
        for i in instances {
            let instance = Item { name: i.name, ..item.clone() };
            let (laws, mut diags) = laws::of_rule(&self.library, source, &instance, &i.rule);
            if diags.iter().any(|d| d.severity == Severity::Error) {
                for d in &mut diags {
                    d.message = format!("{} (in `{}`)", d.message, instance.name.text);
                }
                return (vec![], diags);
            }
            out.extend(laws.into_iter().map(|l| Law { schema: Some(i.schema.clone()), ..l }));
        }
        (out, vec![])
    }

    /// True once there are too many errors to be useful; reported once.
    fn gives_up(&mut self, source: u32, item: &Item) -> bool {
        let many = self.mistakes.get(source as usize).is_some_and(|n| *n > MISTAKES);
        if many && !std::mem::replace(&mut self.gave_up, true) {
            let message = format!("there are more than {MISTAKES} errors; the rest is not read");
            let diag = error("S019", item.name.span, message, "fix the first ones and try again");
            self.report(source, vec![diag]);
        }
        many
    }

    /// The laws that a definition is, and what a composition offers to kernels.
    fn definition(&mut self, source: u32, item: &Item, id: CallId) {
        let ItemKind::Fuse(f) = &item.kind else {
            let laws = laws::of_definition(&self.library, id, &[]);
            self.library.laws.extend(laws);
            return;
        };
        // What follows `pointwise` is open: only a composition under it is a law.
        let is_open = |e: &Expr| matches!(&e.kind, ExprKind::Call { callee, .. } if callee.text == "pointwise");
        let (mut inner, epilogue) = (0usize, is_open(&f.body));
        walk(&f.body, &mut |e| inner += usize::from(is_open(e)));
        let prologue = inner > usize::from(epilogue);
        let alone = targets::anchor(&self.library, id).filter(|_| epilogue || prologue);
        if alone.is_none() && !targets::is_bare(&self.library, id) {
            let c = self.library.call(id);
            let (scope, mut diags) = (Scope::of(&c.inputs, &c.attrs), vec![]);
            let hints: Vec<_> = f.hints.iter().filter_map(|h| scope.told(h, &mut diags)).collect();
            self.report(source, diags);
            let laws = laws::of_definition(&self.library, id, &hints);
            self.library.laws.extend(laws);
        }
        self.library.fuses.push(FuseItem {
            name: name(&item.name.text),
            doc: item.doc.clone(),
            call: id,
            covers: alone.unwrap_or(id),
            epilogue,
            prologue,
            on: f.on.iter().map(|(t, k)| (t.clone(), k.clone())).collect(),
            source: SourceSpan::new(source, item.span),
        });
    }

    fn rest(&mut self, items: &[(u32, &Item)]) {
        for (source, item) in items {
            match &item.kind {
                ItemKind::Onnx(decl) => {
                    let (decl, diags) = onnx::declaration(&self.library, decl);
                    self.report(*source, diags);
                    let (name, source) =
                        (name(&item.name.text), SourceSpan::new(*source, item.span));
                    self.library.onnx.push(OnnxItem { name, decl, source });
                }
                ItemKind::Target(t) => {
                    let (target, diags) = targets::target(&self.library, *source, item, t);
                    self.report(*source, diags);
                    self.library.targets.push(target);
                }
                ItemKind::Architecture(decl) => {
                    let (found, diags) =
                        architectures::architecture(&self.library, *source, item, decl);
                    self.report(*source, diags);
                    self.library.architectures.push(found);
                }
                ItemKind::Op(Op { stored, .. }) | ItemKind::Def(Def { stored, .. }) => {
                    self.stored(*source, item, stored);
                }
                _ => {}
            }
        }
        for (source, diags) in targets::offer(&mut self.library) {
            self.report(source, diags);
        }
        for (source, diags) in targets::inherit(&mut self.library.targets) {
            self.report(source, diags);
        }
    }

    /// The types of stored tensors that an item decodes.
    fn stored(&mut self, source: u32, item: &Item, all: &[StoredType]) {
        let Some(id) = self.own(source, item) else { return };
        for one in all {
            match architectures::stored(&self.library, id, one) {
                Ok(found) => self.library.stored.push(found),
                Err(diag) => self.report(source, vec![diag]),
            }
        }
    }

    /// The callable that this very item declared (not one of its name that came first).
    fn own(&self, source: u32, item: &Item) -> Option<CallId> {
        let id = self.library.find(&item.name.text)?;
        (self.library.call(id).source == SourceSpan::new(source, item.span)).then_some(id)
    }
}

/// A number of things: `1 tensor`, `2 tensors`.
fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// The expressions that an expression of a text is made of.
fn parts(e: &Expr) -> Vec<&Expr> {
    fn elems(items: &[Elem]) -> Vec<&Expr> {
        items.iter().map(Elem::expr).collect()
    }
    match &e.kind {
        ExprKind::List(items) => elems(items),
        ExprKind::Tuple(items) => items.iter().collect(),
        ExprKind::Unary(_, a) => vec![a],
        ExprKind::Binary(_, a, b) => vec![a, b],
        ExprKind::Call { args, .. } => args.iter().map(|a| &a.value).collect(),
        ExprKind::Index { index, otherwise, .. } => {
            let mut parts = elems(index);
            parts.extend(otherwise.as_deref());
            parts
        }
        ExprKind::Axes { of, index } => {
            let mut parts = elems(index);
            parts.push(of);
            parts
        }
        ExprKind::Reduce { axes, body, .. } => {
            let mut parts = elems(axes);
            parts.push(body);
            parts
        }
        ExprKind::If { cond, then, otherwise } => vec![cond, then, otherwise],
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Str(_)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Size(_) => vec![],
    }
}

/// Calls `f` on an expression of a text and all its parts.
fn walk(e: &Expr, f: &mut dyn FnMut(&Expr)) {
    f(e);
    for part in parts(e) {
        walk(part, f);
    }
}

/// True if `name` occurs in `e`.
fn occurs(e: &Expr, name: &str) -> bool {
    let mut found = false;
    walk(e, &mut |e| {
        found |= match &e.kind {
            ExprKind::Name(n) => n == name,
            ExprKind::Index { base, .. } => base.text == name,
            _ => false,
        }
    });
    found
}

/// The condition of a law that a text states; `None` if it is none.
pub fn condition(law: &Law, text: &str) -> Option<crate::expr::Expr> {
    let rule = format!("rule q\n  x => x\n  given x: F[..s]\n  if {text}\n  error exact\n");
    let (file, _) = parse(&rule);
    let condition = file.items.into_iter().find_map(|item| match item.kind {
        ItemKind::Rule(r) => r.conditions.into_iter().next(),
        _ => None,
    });
    Scope::of(&law.vars, &law.attrs).expr(&condition?).ok()
}

/// True if a variable's declared type mentions the axis or segment.
fn mentions(vars: &[Input], axis: &str) -> bool {
    vars.iter().flat_map(|v| v.ty.dims.iter().flatten()).any(|d| match d {
        Dim::Axis(n) | Dim::Seg(n) => &**n == axis,
        Dim::Value(_) | Dim::Splice(_) => false,
    })
}

fn dtype_name(d: &DTypePattern) -> String {
    match d {
        DTypePattern::Fixed(d) => format!("`{d}`"),
        DTypePattern::Var(v) => format!("`{v}`"),
    }
}

/// How a callable is written, for help lines.
fn signature_help(c: &Callable) -> String {
    let inputs = c.inputs.iter().map(|i| {
        let dims = i.ty.dims.as_deref().map(|d| format!("[{}]", elaborate::dims::keys(d)));
        format!(
            "{}: {}{}",
            i.name,
            dtype_name(&i.ty.dtype).trim_matches('`'),
            dims.unwrap_or_default()
        )
    });
    let attrs = c.attrs.iter().map(|a| format!("{}: {}", a.name, a.ty.kind));
    format!("its parameters are ({})", inputs.chain(attrs).collect::<Vec<_>>().join(", "))
}

/// What an operator's meaning shows of its structure.
fn class_of(c: &Callable) -> OpClass {
    meaning::classify::classify(c)
}
