//! The pages of texts: each declaration with what is known of it, and references to what it uses and what uses it.
//!
//! References come from the places of names in the texts, so that none leads to what is not declared.

use super::{Page, Sources, escaped, place};
use mlc_dsl::library::{CallId, CallKind, LawOrigin, LawTest, Library, OpClass};
use mlc_dsl::syntax::names::{Names, Outline, Space};
use mlc_dsl::syntax::print_resolved;
use mlc_dsl::term::TermKind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// References that are told at most of one kind.
const MOST: usize = 60;

/// A declaration: the text that it is in, and which of its items it is.
type At = (usize, usize);

/// All declarations, and which use which.
pub struct Declarations {
    texts: Vec<Names>,
    /// Where the page of each text is, from `src/`.
    pages: Vec<String>,
    /// The id of each item on its page.
    ids: Vec<Vec<String>>,
    operators: BTreeMap<String, At>,
    targets: BTreeMap<String, At>,
    uses: BTreeMap<At, BTreeSet<At>>,
    used_by: BTreeMap<At, BTreeSet<At>>,
}

impl Declarations {
    /// Of all texts.
    pub fn of(sources: &Sources<'_>) -> Declarations {
        let texts: Vec<Names> = sources.texts.iter().map(|t| t.names()).collect();
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        let page = |name: &str| {
            let (part, stem) = place(name);
            let path = format!("{part}/{stem}");
            let n = taken.entry(path.clone()).or_default();
            *n += 1;
            // Two texts of one name in different folders.
            if *n == 1 { format!("{path}.md") } else { format!("{path}-{n}.md") }
        };
        let pages = sources.texts.iter().map(|t| t.source().name.as_str()).map(page).collect();
        let mut out = Declarations {
            ids: texts.iter().map(ids).collect(),
            texts,
            pages,
            operators: BTreeMap::new(),
            targets: BTreeMap::new(),
            uses: BTreeMap::new(),
            used_by: BTreeMap::new(),
        };
        out.declared();
        out.referred();
        out.applied(sources.library);
        out
    }

    /// What is applied by a sign, such as `add` by `+`: it has no name in the text. Laws of a schema speak of what their operators
    /// are, not of what they are written with.
    fn applied(&mut self, library: &Library) {
        let mut found = Vec::new();
        for call in &library.calls {
            if let CallKind::Def(body) = &call.kind {
                found.push((call.source, &body.terms));
            }
        }
        let rules =
            library.laws.iter().filter(|l| l.schema.is_none() && l.origin == LawOrigin::Rule);
        found.extend(rules.map(|l| (l.source, &l.terms)));
        for (source, terms) in found {
            let items = self.texts.get(source.file as usize).map(|t| &t.items);
            let item = items.and_then(|items| items.iter().position(|i| i.span == source.span));
            let Some(item) = item else { continue };
            let from = (source.file as usize, item);
            for (_, term) in terms.iter() {
                let (TermKind::Apply(call, _) | TermKind::EachFold(call, _)) = &term.kind else {
                    continue;
                };
                let Some(&to) = self.operators.get(&*library.call(*call).name) else { continue };
                if to != from {
                    self.uses.entry(from).or_default().insert(to);
                    self.used_by.entry(to).or_default().insert(from);
                }
            }
        }
    }

    fn declared(&mut self) {
        for (t, names) in self.texts.iter().enumerate() {
            for o in names.occurrences.iter().filter(|o| o.declares) {
                let map = match o.space {
                    Space::Operator => &mut self.operators,
                    Space::Target => &mut self.targets,
                    _ => continue,
                };
                map.entry(o.name.clone()).or_insert((t, o.item));
            }
        }
    }

    fn referred(&mut self) {
        for (t, names) in self.texts.iter().enumerate() {
            for o in names.occurrences.iter().filter(|o| !o.declares) {
                let found = match o.space {
                    Space::Operator => self.operators.get(&o.name),
                    Space::Target => self.targets.get(&o.name),
                    _ => None,
                };
                let Some(&to) = found.filter(|to| **to != (t, o.item)) else { continue };
                self.uses.entry((t, o.item)).or_default().insert(to);
                self.used_by.entry(to).or_default().insert((t, o.item));
            }
        }
    }

    fn outline(&self, (text, item): At) -> &Outline {
        &self.texts[text].items[item]
    }

    /// A reference from a page to a declaration.
    fn link(&self, to: At, from: &str) -> String {
        let up = "../".repeat(from.matches('/').count());
        let page = &self.pages[to.0];
        let path = if page == from { String::new() } else { format!("{up}{page}") };
        format!("[`{}`]({path}#{})", self.outline(to).name.text, self.ids[to.0][to.1])
    }

    /// A reference to the operator or layer of a name.
    pub fn link_to_operator(&self, name: &str, from: &str) -> Option<String> {
        self.operators.get(name).map(|at| self.link(*at, from))
    }

    /// The page of a text.
    pub fn page(&self, sources: &Sources<'_>, text: usize) -> Page {
        let source = sources.texts[text].source();
        let path = &self.pages[text];
        let (_, stem) = place(&source.name);
        let mut out = format!("# {}\n\n", stem.replace('_', " "));
        let doc = source.text.lines().map_while(|l| l.strip_prefix("//!"));
        let doc: Vec<String> = doc.map(|l| escaped(l.trim())).collect();
        let _ = writeln!(out, "{}\n\n`{}`", doc.join("\n"), source.name);
        for item in 0..self.texts[text].items.len() {
            self.item(sources, (text, item), path, &mut out);
        }
        Page { path: format!("src/{path}"), text: out }
    }

    fn item(&self, sources: &Sources<'_>, at: At, path: &str, out: &mut String) {
        let outline = self.outline(at);
        let source = sources.texts[at.0].source();
        let id = &self.ids[at.0][at.1];
        let _ = write!(out, "\n## `{}` {{#{id}}}\n\n", outline.name.text);
        let _ = writeln!(out, "*{}*\n", facts(sources.library, outline, at.0).join(" · "));
        let doc: Vec<String> = outline.doc.iter().map(|l| escaped(l)).collect();
        let _ = writeln!(out, "{}\n", doc.join("\n"));
        let code = source.text.get(outline.span.range()).unwrap_or_default();
        let _ = writeln!(out, "```rules,syntax\n{}\n```\n", code.trim_end());
        let line = source.text[..outline.span.start as usize].matches('\n').count() + 1;
        let mut list = sources.evidence.told(&source.name, line);
        list.extend(picked(sources.library, outline, at.0));
        let models = sources.uses.told(laws_of(sources.library, outline, at.0));
        if !models.is_empty() {
            list.push(format!("models whose results rest on it, with equations: {models}"));
        }
        for (said, set) in [("uses", &self.uses), ("used by", &self.used_by)] {
            let all: Vec<At> = set.get(&at).into_iter().flatten().copied().collect();
            let shown = all.iter().take(MOST).map(|to| self.link(*to, path));
            let shown = shown.collect::<Vec<_>>().join(", ");
            let more = match all.len().checked_sub(MOST) {
                Some(n) if n > 0 => format!(" and {n} more"),
                _ => String::new(),
            };
            if !shown.is_empty() {
                list.push(format!("{said} {shown}{more}"));
            }
        }
        list.iter().for_each(|l| out.push_str(&format!("- {l}\n")));
    }
}

/// An id for each item: its kind and its name, and a number where operators of ONNX have several items.
fn ids(names: &Names) -> Vec<String> {
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let id = |item: &Outline| {
        let plain = format!("{}-{}", item.word, item.name.text);
        let n = taken.entry(plain.clone()).or_default();
        *n += 1;
        if *n == 1 { plain } else { format!("{plain}-{n}") }
    };
    names.items.iter().map(id).collect()
}

/// The call that an item declares.
fn call_of(library: &Library, outline: &Outline, text: usize) -> Option<CallId> {
    let id = library.find(&outline.name.text)?;
    let source = library.call(id).source;
    (source.file as usize == text && source.span == outline.span).then_some(id)
}

/// The laws that an item is.
fn laws_of<'l>(library: &'l Library, outline: &Outline, text: usize) -> Vec<&'l str> {
    let own = library
        .laws
        .iter()
        .filter(|l| l.source.file as usize == text && l.source.span == outline.span);
    own.map(|l| &*l.name).collect()
}

/// What an item is, in a few words.
fn facts(library: &Library, outline: &Outline, text: usize) -> Vec<String> {
    let kind = match outline.word {
        "op" => "operator",
        "def" => "layer",
        "rule" => "law",
        "fuse" => "fused composition",
        "extern" => "procedure",
        "onnx" => "operator of ONNX",
        word => word,
    };
    let mut out = vec![kind.to_string()];
    if let Some(id) = call_of(library, outline, text) {
        let call = library.call(id);
        if matches!(call.kind, CallKind::Op(_)) {
            out.push(class(call.class).into());
        }
        let marks = [(call.commutative, "commutative"), (call.associative, "associative")];
        out.extend(marks.into_iter().filter(|m| m.0).map(|m| m.1.to_string()));
    }
    let own = || {
        library.laws.iter().filter(|l| {
            l.source.file as usize == text
                && l.source.span == outline.span
                && l.origin != LawOrigin::Unfold
        })
    };
    if let Some(first) = own().next() {
        out.push(format!("error class `{}`", first.error));
    }
    match own().filter(|l| l.origin == LawOrigin::Rule).count() {
        0 | 1 => {}
        n => out.push(format!("a schema of {n} laws")),
    }
    if outline.word == "target"
        && let Some(target) = library.target(&outline.name.text)
    {
        out.push(format!("{} kernels", target.kernels.len()));
    }
    out
}

fn class(class: OpClass) -> &'static str {
    match class {
        OpClass::Pointwise => "pointwise",
        OpClass::View => "a view",
        OpClass::Movement => "moves elements",
        OpClass::Reduction => "a reduction",
        OpClass::Contraction => "a contraction",
        OpClass::Other => "of its own kind",
    }
}

/// The extents at which a side of the law costs least, as its tests say.
fn picked(library: &Library, outline: &Outline, text: usize) -> Vec<String> {
    let own = library.laws.iter().filter(|l| {
        l.source.file as usize == text
            && l.source.span == outline.span
            && l.origin == LawOrigin::Rule
    });
    let mut out = Vec::new();
    for law in own.take(1) {
        for test in &law.tests {
            let LawTest::Picks { side, at, .. } = test else { continue };
            let at = at.iter().map(|(axis, e)| format!("{axis} = {}", print_resolved(e)));
            let at = at.collect::<Vec<_>>().join(", ");
            let is_left = law.left.iter().any(|s| s.root == *side);
            let side = if is_left { "the left side" } else { "the right side" };
            let place = if at.is_empty() { String::new() } else { format!(" at {at}") };
            out.push(format!("example that picks it: {side} costs least{place}"));
        }
    }
    out
}
