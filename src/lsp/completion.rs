//! What may stand at the cursor, by its place: items in the first column, clauses where a line begins, types after a colon,
//! classes after `error`, targets, operators, and else what an expression is made of.
//!
//! Looks at the text before the cursor alone, so that a text that cannot be read yet is completed, too.

use crate::manual::{self, CLASSES};
use crate::workspace::Analysis;
use lsp_types::{CompletionItem, CompletionItemKind, Documentation, InsertTextFormat};
use mlc_dsl::eval::functions::FUNCTIONS;
use mlc_dsl::expr::{AttrKind, Mark, Monoid, Predicate};
use mlc_dsl::library::{CallKind, Library};
use mlc_dsl::syntax::{is_reserved, signature_of};
use std::collections::BTreeSet;

/// The clauses of each kind of item, in their canonical order.
pub const CLAUSES: &[(&str, &[&str])] = &[
    ("op", &["commutative", "associative", "unit", "where", "if", "of"]),
    ("def", &["where", "let", "if", "of"]),
    ("rule", &["given", "where", "if", "when", "error", "check", "picks", "never"]),
    ("fuse", &["where", "let", "on", "if", "when", "error"]),
    ("extern", &["where", "if", "reference"]),
    ("onnx", &["since", "until", "in", "opaque", "if", "let", "prints"]),
    ("target", &["extends", "on", "kernel"]),
    ("architecture", &["of", "each", "let"]),
];

/// Where the cursor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a comment or a string: nothing is offered.
    Nowhere,
    /// In the first column.
    Item,
    /// At the first word of a line of an item.
    Clause,
    /// After a colon.
    Type,
    /// After `error`.
    Class,
    /// After `extends`, or after the `on` of a `fuse`.
    Target,
    /// After `covers` or `epilogue`.
    Operator,
    /// In a condition: predicates, too.
    Condition,
    /// Within `when`: marks, too.
    Hint,
    /// In an expression.
    Expression,
}

/// The place of a byte, and the word that opens the item that it lies in.
pub fn place(text: &str, byte: usize) -> (Place, &'static str) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = &before[line_start..];
    let (item, start) = item_before(before);
    if line.contains("//") || line.matches('"').count() % 2 == 1 {
        return (Place::Nowhere, item);
    }
    let typed = line.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if typed.is_empty() {
        return (Place::Item, item);
    }
    if typed.trim().is_empty() {
        return (Place::Clause, item);
    }
    let all = before[start..].trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    // `|..s|:` never occurs: a colon comes before types alone.
    if all.trim_end().ends_with(':') {
        return (Place::Type, item);
    }
    let mut clause =
        all.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty());
    let clause = clause.rfind(|w| is_reserved(w) && !["in", "not", "and", "or"].contains(w));
    let place = match (clause, item) {
        (Some("error"), _) if all.trim_end().ends_with("error") => Place::Class,
        (Some("extends"), _) | (Some("on"), "fuse") => Place::Target,
        (Some("covers" | "epilogue"), _) => Place::Operator,
        (Some("if"), _) => Place::Condition,
        (Some("when"), _) => Place::Hint,
        _ => Place::Expression,
    };
    (place, item)
}

/// The word that opens the last item before the end of a text, and where it stands.
fn item_before(before: &str) -> (&'static str, usize) {
    let opens = |line: &str| {
        let word = line.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        CLAUSES.iter().map(|c| c.0).find(|w| *w == word)
    };
    let mut end = before.len();
    loop {
        let start = before[..end].rfind('\n').map_or(0, |at| at + 1);
        if let Some(word) = opens(&before[start..]) {
            return (word, start);
        }
        if start == 0 {
            return ("", 0);
        }
        end = start - 1;
    }
}

/// What is offered at a byte of a document.
pub fn completions(analysis: &Analysis, byte: usize) -> Vec<CompletionItem> {
    let text = analysis.text();
    let (place, item) = place(text, byte);
    let library = &analysis.library;
    let mut out = Vec::new();
    match place {
        Place::Nowhere => {}
        Place::Item => out.extend(CLAUSES.iter().map(|c| keyword(c.0))),
        Place::Clause => {
            let clauses = CLAUSES.iter().find(|c| c.0 == item).map_or(&[][..], |c| c.1);
            out.extend(clauses.iter().map(|w| keyword(w)));
            expression(analysis, byte, &mut out);
        }
        Place::Type => types(&mut out),
        Place::Class => out.extend(
            CLASSES.iter().map(|(w, does)| known(w, does, CompletionItemKind::ENUM_MEMBER)),
        ),
        Place::Target => {
            let targets = library.targets.iter();
            out.extend(
                targets.map(|t| known(&t.name, &t.doc.join(" "), CompletionItemKind::MODULE)),
            );
        }
        Place::Operator => operators(library, &mut out, false),
        Place::Condition | Place::Hint => {
            let words = Predicate::ALL.iter().map(|p| (p.1, p.2));
            out.extend(words.map(|(w, does)| known(w, does, CompletionItemKind::FUNCTION)));
            if place == Place::Hint {
                let marks = Mark::ALL.iter().map(|m| (m.1, m.2));
                out.extend(marks.map(|(w, does)| known(w, does, CompletionItemKind::KEYWORD)));
            }
            expression(analysis, byte, &mut out);
        }
        Place::Expression => expression(analysis, byte, &mut out),
    }
    out
}

/// Names in scope, then functions, then operators; each name once, the nearest first.
fn expression(analysis: &Analysis, byte: usize, out: &mut Vec<CompletionItem>) {
    let mut offered = Vec::new();
    for name in in_scope(analysis, byte) {
        offered.push(known(&name, "", CompletionItemKind::VARIABLE));
    }
    let reductions = Monoid::ALL.iter().map(|m| (m.1, m.2));
    offered.extend(reductions.map(|(w, does)| known(w, does, CompletionItemKind::FUNCTION)));
    for (name, params, does) in FUNCTIONS {
        let mut function = known(name, does, CompletionItemKind::FUNCTION);
        function.detail = Some(format!("{name}({params})"));
        offered.push(function);
    }
    operators(&analysis.library, &mut offered, true);
    let mut seen: BTreeSet<String> = out.iter().map(|i| i.label.clone()).collect();
    out.extend(offered.into_iter().filter(|i| seen.insert(i.label.clone())));
}

/// The words of the item that the cursor is in which are no words of the language and no operators.
fn in_scope(analysis: &Analysis, byte: usize) -> BTreeSet<String> {
    let text = analysis.text();
    let (_, start) = item_before(text.get(..byte).unwrap_or(text));
    let rest = text.get(start..).unwrap_or_default();
    let opens = |line: &str| CLAUSES.iter().any(|c| line.split(' ').next() == Some(c.0));
    let later = rest.lines().skip(1).take_while(|l| !opens(l) && !l.starts_with("//"));
    let lines = rest.lines().take(1).map(|l| l.split_once(' ').map_or("", |(_, l)| l)).chain(later);
    let mut out = BTreeSet::new();
    for line in lines {
        let code = line.split("//").next().unwrap_or_default();
        let words = code.split('"').step_by(2).flat_map(|part| {
            part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty())
        });
        let is_name = |w: &&str| {
            !w.starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase())
                && !is_reserved(w)
                && manual::describes(w).is_none()
                && analysis.library.find(w).is_none()
        };
        out.extend(words.filter(is_name).map(str::to_string));
    }
    // What is being typed is no name yet.
    let before = text.get(..byte).unwrap_or_default();
    let typed = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
    if let Some(typed) = typed
        && text.matches(typed).count() <= 1
    {
        out.remove(typed);
    }
    out
}

fn keyword(word: &str) -> CompletionItem {
    known(word, &manual::describes(word).unwrap_or_default(), CompletionItemKind::KEYWORD)
}

fn known(word: &str, about: &str, kind: CompletionItemKind) -> CompletionItem {
    let documentation = (!about.is_empty()).then(|| Documentation::String(about.to_string()));
    CompletionItem {
        label: word.to_string(),
        kind: Some(kind),
        documentation,
        ..CompletionItem::default()
    }
}

fn types(out: &mut Vec<CompletionItem>) {
    let kinds = AttrKind::ALL.iter().map(|k| (k.1, k.2));
    out.extend(kinds.map(|(w, does)| known(w, does, CompletionItemKind::TYPE_PARAMETER)));
    for variable in ["F", "I", "N", "B", "T"] {
        let about = manual::describes(variable).unwrap_or_default();
        let mut item = known(variable, &about, CompletionItemKind::TYPE_PARAMETER);
        item.insert_text = Some(format!("{variable}[..${{1:s}}]"));
        item.insert_text_format = Some(InsertTextFormat::SNIPPET);
        out.push(item);
    }
}

fn operators(library: &Library, out: &mut Vec<CompletionItem>, calls: bool) {
    for call in &library.calls {
        let kind = match call.kind {
            CallKind::Op(_) | CallKind::Extern(_) => CompletionItemKind::OPERATOR,
            CallKind::Def(_) => CompletionItemKind::FUNCTION,
        };
        let mut item = known(&call.name, &call.doc.join("\n"), kind);
        item.detail = Some(signature_of(call));
        if calls {
            let tensors = call.inputs.iter().map(|i| (String::new(), i.name.to_string()));
            let needed = call.attrs.iter().filter(|a| a.default.is_none());
            let args = tensors.chain(needed.map(|a| (format!("{}=", a.name), a.name.to_string())));
            let args: Vec<String> =
                args.zip(1..).map(|((name, value), i)| format!("{name}${{{i}:{value}}}")).collect();
            item.insert_text = Some(format!("{}({})", call.name, args.join(", ")));
            item.insert_text_format = Some(InsertTextFormat::SNIPPET);
        }
        out.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_by_what_precedes_them() {
        let text = "/// A law.\nrule r\n  f(x) => x\n  given x: F[..s]\n  if const(x)\n  when late\n  error exact\n\
                    fuse g(x: F[..s]) -> F[..s]\n  = f(x)\n  on cpu(\"k\")\n\n";
        for (before, wanted) in [
            ("/// A l", Place::Nowhere),
            ("ru", Place::Item),
            ("  f(", Place::Expression),
            ("  gi", Place::Clause),
            ("x: ", Place::Type),
            ("x: F", Place::Type),
            ("if c", Place::Condition),
            ("when l", Place::Hint),
            ("error e", Place::Class),
            ("on c", Place::Target),
            ("cpu(\"k", Place::Nowhere),
        ] {
            let byte = text.find(before).expect("there") + before.len();
            assert_eq!(place(text, byte).0, wanted, "{before}");
        }
        assert_eq!(place(text, text.len()).0, Place::Item);
        assert_eq!(place("", 0), (Place::Item, ""));
    }
}
