//! Lints on the text of laws, without samples: laws that others imply, unused
//! variables, laws whose right side matches their left side. Never says anything about soundness.

use mlc_dsl::diagnostics::span::{SourceSpan, Span};
use mlc_dsl::diagnostics::{Code, Diag, Severity, render};
use mlc_dsl::expr::{AttrKind, Expr};
use mlc_dsl::library::{AttrParam, Dim, Law, LawOrigin, Library};
use mlc_dsl::term::{TermId, TermKind};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A warning about a law.
#[derive(Clone, Debug, Serialize)]
pub struct Lint {
    /// `V005`: another law implies it; `V006`: something is declared and not used; `V007`: its right side
    /// contains what it matches, and no condition stops it; `V008`: a procedure without a reference; `V009`: a layer or
    /// a law that nothing would match; `V010`: an operator without a value; `V012`: a definition that is not found in its body.
    pub code: &'static str,
    /// Name of the law that it is about.
    pub law: String,
    /// The file it is written in.
    pub file: String,
    /// One sentence.
    pub message: String,
    #[serde(skip)]
    diag: Diag,
    #[serde(skip)]
    text: Arc<str>,
}

impl Lint {
    fn of(library: &Library, law: &Law, code: &'static str, message: String, help: &str) -> Lint {
        Lint::at(library, law.source, &law.name, code, Severity::Warning, message, help)
    }

    /// What is said of a declaration, or of a part of its text.
    pub fn at(
        library: &Library,
        place: SourceSpan,
        name: &str,
        code: &'static str,
        severity: Severity,
        message: String,
        help: &str,
    ) -> Lint {
        let source = &library.sources[place.file as usize];
        let diag =
            Diag { severity, ..Diag::warning(Code(code), message.clone(), place.span).help(help) };
        Lint {
            code,
            law: name.to_string(),
            file: source.name.clone(),
            diag,
            message,
            text: source.text.clone(),
        }
    }

    /// True if it is a mistake rather than a suspicion.
    pub fn is_error(&self) -> bool {
        self.diag.severity == Severity::Error
    }

    /// Where it is.
    pub fn span(&self) -> Span {
        self.diag.span()
    }

    /// The warning for people, with its place.
    pub fn human(&self, color: bool) -> String {
        render(std::slice::from_ref(&self.diag), &self.file, &self.text, color)
    }
}

/// The warnings about a library's rules, or about those named.
pub fn lint(library: &Library, only: Option<&[String]>) -> Vec<Lint> {
    let mut out = Vec::new();
    let mut known: BTreeMap<String, Vec<(&Law, BTreeSet<String>)>> = BTreeMap::new();
    for law in &library.laws {
        let (sides, conditions) = canonical(library, law);
        known.entry(sides).or_default().push((law, conditions));
    }
    let names = only.map(super::named);
    for law in &library.laws {
        let wanted = names.as_ref().is_none_or(|names| names.contains(&*law.name));
        if !wanted || !matches!(law.origin, LawOrigin::Rule | LawOrigin::Reverse) {
            continue;
        }
        out.extend(implied(library, law, &known));
        if law.origin == LawOrigin::Rule {
            out.extend(unused(library, law));
        }
        if law.conditions.is_empty() && law.hints.is_empty() && feeds_itself(library, law) {
            let message =
                format!("the right side of `{}` contains what its left side matches", law.name);
            let help = "it fires on its own results without end; add a condition that stops it";
            out.push(Lint::of(library, law, "V007", message, help));
        }
    }
    out
}

type LawsByForm<'l> = BTreeMap<String, Vec<(&'l Law, BTreeSet<String>)>>;

fn implied(library: &Library, law: &Law, known: &LawsByForm) -> Option<Lint> {
    let (sides, conditions) = canonical(library, law);
    let others = known.get(&sides)?;
    let own = others.iter().position(|(l, _)| l.name == law.name)?;
    let (other, _) = others.iter().enumerate().find_map(|(i, (l, c))| {
        // Of equal laws the later one is too much.
        let more = c.is_subset(&conditions) && (c.len() < conditions.len() || i < own);
        (i != own && more && l.error <= law.error).then_some((l, c))
    })?;
    let message = format!("`{}` implies the law `{}`", other.name, law.name);
    Some(Lint::of(library, law, "V005", message, "remove it"))
}

/// Both sides and each condition with names by order of use, operands of commutative operators by
/// structure: equal for laws that differ in names alone.
fn canonical(library: &Library, law: &Law) -> (String, BTreeSet<String>) {
    let mut names = NameNumbering::of(library, law);
    let mut sides = String::new();
    for side in law.left.iter().chain(&law.right) {
        sides += if side.each { "each " } else { "" };
        sides += &names.term(side.root);
        sides += "; ";
    }
    let conditions = law.conditions.iter().map(|c| names.expr(c)).collect();
    (sides, conditions)
}

struct NameNumbering<'l> {
    library: &'l Library,
    law: &'l Law,
    numbers: BTreeMap<String, usize>,
    /// Terms met before: their names have their numbers.
    known: BTreeMap<TermId, String>,
    skeletons: BTreeMap<TermId, String>,
}

/// A long text as its hash: terms share parts, and written out they would double again and again.
fn short(text: String) -> String {
    if text.len() <= 400 {
        return text;
    }
    let mut hash = std::hash::DefaultHasher::new();
    text.hash(&mut hash);
    format!("~{:016x}", hash.finish())
}

impl<'l> NameNumbering<'l> {
    fn of(library: &'l Library, law: &'l Law) -> NameNumbering<'l> {
        let (numbers, known, skeletons) = Default::default();
        NameNumbering { library, law, numbers, known, skeletons }
    }

    fn number(&mut self, name: &str) -> String {
        let next = self.numbers.len();
        format!("#{}", self.numbers.entry(name.to_string()).or_insert(next))
    }

    fn is_own(&self, word: &str) -> bool {
        let dims = |d: &Dim| matches!(d, Dim::Axis(n) | Dim::Seg(n) if **n == *word);
        let var =
            |v: &mlc_dsl::library::Input| *v.name == *word || v.ty.dims.iter().flatten().any(dims);
        self.law.vars.iter().any(var) || self.law.attrs.iter().any(|a| *a.name == *word)
    }

    /// The expression with the law's own names numbered.
    fn expr(&mut self, e: &Expr) -> String {
        let text = e.to_string();
        let mut out = String::new();
        for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_').len();
            let (name, rest) = word.split_at(end);
            out += &if self.is_own(name) { self.number(name) } else { name.to_string() };
            out += rest;
        }
        out
    }

    fn term(&mut self, t: TermId) -> String {
        if let Some(known) = self.known.get(&t) {
            return known.clone();
        }
        let text = short(self.text(t));
        self.known.insert(t, text.clone());
        text
    }

    fn text(&mut self, t: TermId) -> String {
        let term = self.law.terms.get(t);
        match &term.kind {
            TermKind::Var(i) => {
                let v = &self.law.vars[*i];
                let mut out = self.number(&v.name);
                out += &format!(":{:?}[", v.ty.dtype);
                for d in v.ty.dims.iter().flatten() {
                    out += &match d {
                        Dim::Axis(n) => self.number(n),
                        Dim::Seg(n) => format!("..{}", self.number(n)),
                        Dim::Value(e) | Dim::Splice(e) => self.expr(e),
                    };
                    out.push(',');
                }
                out + "]"
            }
            TermKind::Scalar(e) => self.expr(e),
            TermKind::Output(i) => format!("{}.{i}", self.term(term.args[0])),
            TermKind::EachPart(e) => {
                let whole = self.term(term.args[0]);
                format!("part({whole}, {})", self.expr(e))
            }
            TermKind::Apply(call, attrs) | TermKind::EachFold(call, attrs) => {
                let c = self.library.call(*call);
                let mut args = term.args.clone();
                if c.commutative {
                    args.sort_by_cached_key(|a| self.skeleton(*a));
                }
                let mut parts: Vec<String> = args.iter().map(|a| self.term(*a)).collect();
                parts.extend(attrs.iter().map(|a| match a {
                    Some(e) => self.expr(e),
                    None => "default".into(),
                }));
                format!("{}({})", c.name, parts.join(", "))
            }
        }
    }

    /// The structure of a term without its names.
    fn skeleton(&mut self, t: TermId) -> String {
        if let Some(known) = self.skeletons.get(&t) {
            return known.clone();
        }
        let term = self.law.terms.get(t);
        let head = match &term.kind {
            TermKind::Var(i) => format!("{:?}", self.law.vars[*i].ty.dims.as_ref().map(Vec::len)),
            TermKind::Scalar(_) => "number".into(),
            TermKind::Apply(call, _) | TermKind::EachFold(call, _) => {
                self.library.call(*call).name.to_string()
            }
            TermKind::Output(i) => format!("output {i}"),
            TermKind::EachPart(_) => "part".into(),
        };
        let commutes = matches!(&term.kind, TermKind::Apply(call, _)
            if self.library.call(*call).commutative);
        let mut args: Vec<String> = term.args.iter().map(|a| self.skeleton(*a)).collect();
        if commutes {
            args.sort();
        }
        let text = short(format!("{head}({})", args.join(", ")));
        self.skeletons.insert(t, text.clone());
        text
    }
}

/// Tensor variables that no side has, and attributes that nothing mentions.
fn unused(library: &Library, law: &Law) -> Option<Lint> {
    let mut terms = BTreeSet::new();
    let mut stack: Vec<TermId> = law.left.iter().chain(&law.right).map(|s| s.root).collect();
    while let Some(t) = stack.pop() {
        if terms.insert(t) {
            stack.extend(&law.terms.get(t).args);
        }
    }
    let mut mentioned: BTreeSet<String> = BTreeSet::new();
    let mut mention = |e: &Expr| {
        let text = e.to_string();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        mentioned.extend(words.map(str::to_string));
    };
    law.conditions.iter().chain(&law.hints).for_each(&mut mention);
    let mut used = vec![false; law.vars.len()];
    for t in &terms {
        match &law.terms.get(*t).kind {
            TermKind::Var(i) => used[*i] = true,
            TermKind::Scalar(e) | TermKind::EachPart(e) => mention(e),
            TermKind::Apply(_, attrs) | TermKind::EachFold(_, attrs) => {
                attrs.iter().flatten().for_each(&mut mention);
            }
            TermKind::Output(_) => {}
        }
    }
    let in_test = |name: &str| {
        let source = &library.sources[law.source.file as usize].text;
        let text = source.get(law.source.span.range()).unwrap_or_default();
        text.split("never")
            .skip(1)
            .any(|t| t.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|w| w == name))
    };
    let vars = law.vars.iter().zip(used).filter(|(_, u)| !u).map(|(v, _)| &v.name);
    let attrs = law.attrs.iter().filter(|a| declares_nothing(a) && !mentioned.contains(&*a.name));
    let idle = vars.chain(attrs.map(|a| &a.name)).find(|n| !in_test(n))?;
    let message = format!("`{}` declares `{idle}`, which nothing uses", law.name);
    Some(Lint::of(library, law, "V006", message, "remove it from `given`"))
}

/// An `axis(n)` may only name a position that types show.
fn declares_nothing(a: &AttrParam) -> bool {
    a.ty.kind != AttrKind::Axis || a.ty.of.is_none()
}

/// True if a proper part of the right side is an instance of the left side, and not the left side itself.
fn feeds_itself(library: &Library, law: &Law) -> bool {
    let ([left], [right]) = (law.left.as_slice(), law.right.as_slice()) else { return false };
    if matches!(law.terms.get(left.root).kind, TermKind::Var(_) | TermKind::Scalar(_)) {
        return false;
    }
    let mut stack = law.terms.get(right.root).args.clone();
    let mut seen = BTreeSet::new();
    while let Some(t) = stack.pop() {
        if !seen.insert(t) {
            continue;
        }
        let mut found = Unification::default();
        if matches(library, law, left.root, t, &mut found)
            && found.vars.iter().any(|(v, t)| !is_variable(law, *v, *t))
        {
            return true;
        }
        stack.extend(&law.terms.get(t).args);
    }
    false
}

fn is_variable(law: &Law, var: usize, t: TermId) -> bool {
    matches!(law.terms.get(t).kind, TermKind::Var(i) if i == var)
}

/// What variables stand for, and which parts were found to fit: a part that is used twice is compared once.
#[derive(Default)]
struct Unification {
    vars: BTreeMap<usize, TermId>,
    fitting: BTreeSet<(TermId, TermId)>,
}

fn matches(
    library: &Library,
    law: &Law,
    pattern: TermId,
    term: TermId,
    bound: &mut Unification,
) -> bool {
    if bound.fitting.contains(&(pattern, term)) {
        return true;
    }
    let fits = fits(library, law, pattern, term, bound);
    if fits {
        bound.fitting.insert((pattern, term));
    }
    fits
}

fn fits(
    library: &Library,
    law: &Law,
    pattern: TermId,
    term: TermId,
    bound: &mut Unification,
) -> bool {
    let (p, t) = (law.terms.get(pattern), law.terms.get(term));
    let same = |a: TermId, b: TermId| {
        let mut names = NameNumbering::of(library, law);
        let first = names.term(a);
        first == names.term(b)
    };
    match (&p.kind, &t.kind) {
        (TermKind::Var(i), _) => match bound.vars.get(i) {
            Some(old) => same(*old, term),
            None => {
                bound.vars.insert(*i, term);
                true
            }
        },
        (TermKind::Scalar(a), TermKind::Scalar(b)) => {
            law.attrs.iter().any(|n| a.as_name() == Some(&n.name)) || a == b
        }
        (TermKind::Apply(f, a), TermKind::Apply(g, b)) => {
            let names = |e: &Expr| law.attrs.iter().any(|n| e.as_name() == Some(&n.name));
            let fits = |(a, b): (&Option<Expr>, &Option<Expr>)| match (a, b) {
                (Some(a), _) if names(a) => true,
                (Some(a), Some(b)) => a == b,
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            f == g
                && a.iter().zip(b).all(fits)
                && p.args.len() == t.args.len()
                && p.args.iter().zip(&t.args).all(|(p, t)| matches(library, law, *p, *t, bound))
        }
        _ => false,
    }
}
