//! What is told of the word under the cursor: what it is, its types, its documentation.

use crate::documents::Lines;
use crate::manual;
use crate::symbols::{self, Symbol};
use crate::workspace::Analysis;
use lsp_types::{Hover, HoverContents, MarkupContent, MarkupKind};
use mlc_dsl::diagnostics::span::Span;
use mlc_dsl::library::{CallId, CallKind, Law, LawOrigin, Library, OpClass};
use mlc_dsl::syntax::names::{Outline, Space};

/// Lines of an item that are shown.
const LINES: usize = 16;

/// What is told at a byte of a document; nothing where there is no word that means anything.
pub fn hover(analysis: &Analysis, byte: u32) -> Option<Hover> {
    let text = analysis.text();
    let (value, span) = match symbols::at(analysis, byte) {
        // A call may be of a function on attributes, and a name that of a constant.
        Some(symbol) => (
            symbol_text(analysis, &symbol).or_else(|| manual::describes(&symbol.name)),
            symbol.at.span,
        ),
        None => {
            let span = word_at(text, byte)?;
            (manual::describes(text.get(span.range())?), span)
        }
    };
    let contents = MarkupContent { kind: MarkupKind::Markdown, value: value? };
    let range = Some(Lines::of(text).range(text, span));
    Some(Hover { contents: HoverContents::Markup(contents), range })
}

/// The word that a byte lies in, or at the end of; not in a comment.
pub fn word_at(text: &str, byte: u32) -> Option<Span> {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let (before, after) = text.as_bytes().split_at_checked(byte as usize)?;
    let line = before.rsplit(|b| *b == b'\n').next().unwrap_or_default();
    if line.windows(2).any(|w| w == b"//") {
        return None;
    }
    let start = before.iter().rev().take_while(|b| is_word(b)).count() as u32;
    let end = after.iter().take_while(|b| is_word(b)).count() as u32;
    (start + end > 0).then_some(Span { start: byte - start, end: byte + end })
}

fn symbol_text(analysis: &Analysis, symbol: &Symbol) -> Option<String> {
    match &symbol.space {
        Space::Operator => {
            let id = analysis.library.find(&symbol.name)?;
            Some(operator(analysis, id))
        }
        Space::Law => {
            let laws: Vec<&Law> =
                analysis.library.laws.iter().filter(|l| l.answers_to(&symbol.name)).collect();
            let law = laws.first()?;
            let count =
                if laws.len() > 1 { format!(" · {} laws", laws.len()) } else { String::new() };
            let code = item(analysis, law.source.file, law.source.span);
            Some(format!("{code}\n{}\n\nerror class `{}`{count}", law.doc.join("\n"), law.error))
        }
        Space::Target => {
            let target = analysis.library.target(&symbol.name)?;
            let doc = target.doc.join("\n");
            Some(format!("target `{}`, {} kernels\n\n{doc}", target.name, target.kernels.len()))
        }
        Space::Architecture | Space::Onnx => declared(analysis, symbol).map(|(outline, text)| {
            format!(
                "{}\n{}",
                code(text.get(outline.span.range()).unwrap_or_default()),
                outline.doc.join("\n")
            )
        }),
        Space::Parameter(of) => {
            let parameter = symbols::occurrences(analysis, symbol);
            let (text, at) = parameter.iter().find(|(_, o)| o.declares)?;
            let (held, names) = &analysis.texts[*text];
            variable(names.items.get(at.item)?, &held.source().text, &symbol.name)
                .map(|shown| format!("{shown}\nparameter of `{of}`"))
        }
        Space::Local(index) | Space::OnnxAttribute(index) => {
            let outline = analysis.names().items.get(*index)?;
            let shown = variable(outline, analysis.text(), &symbol.name)
                .or_else(|| first_line(analysis, symbol))?;
            Some(format!("{shown}\nin `{} {}`", outline.word, outline.name.text))
        }
    }
}

/// A variable as its item declares it.
fn variable(item: &Outline, text: &str, name: &str) -> Option<String> {
    let (_, span) = item.parameters.iter().find(|p| p.0 == name)?;
    Some(code(text.get(span.range())?))
}

/// The line on which a name first stands: where it is bound, or the type that it is an axis of.
fn first_line(analysis: &Analysis, symbol: &Symbol) -> Option<String> {
    let all = symbols::occurrences(analysis, symbol);
    let (_, first) = all.iter().find(|(_, o)| o.declares).or(all.first())?;
    let text = analysis.text();
    let start = text.get(..first.span.start as usize)?.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(start..)?.lines().next()?;
    Some(code(line.trim()))
}

fn declared<'a>(analysis: &'a Analysis, symbol: &Symbol) -> Option<(&'a Outline, &'a str)> {
    let all = analysis
        .texts
        .iter()
        .flat_map(|(t, names)| names.occurrences.iter().map(move |o| (t, names, o)));
    let (held, names, o) = all
        .into_iter()
        .find(|(_, _, o)| o.declares && o.name == symbol.name && o.space == symbol.space)?;
    Some((names.items.get(o.item)?, &held.source().text))
}

/// An operator: its declaration, its documentation, its class, and the error class of the laws that it is.
fn operator(analysis: &Analysis, id: CallId) -> String {
    let library = &analysis.library;
    let call = library.call(id);
    let mut out = item(analysis, call.source.file, call.source.span);
    let doc = call.doc.join("\n");
    let mut facts = vec![format!("{} operator", class(call.class))];
    match &call.kind {
        CallKind::Def(_) => {
            facts = vec!["layer".into()];
            facts.extend(fold(library, call.source).map(|l| format!("error class `{}`", l.error)));
        }
        CallKind::Extern(_) => facts = vec!["procedure".into()],
        CallKind::Op(_) => {}
    }
    if call.commutative {
        facts.push("commutative".into());
    }
    if call.associative {
        facts.push("associative".into());
    }
    out.push_str(&format!("\n{doc}\n\n{}", facts.join(" · ")));
    out
}

fn fold(library: &Library, source: mlc_dsl::diagnostics::span::SourceSpan) -> Option<&Law> {
    library.laws.iter().find(|l| l.origin == LawOrigin::Fold && l.source == source)
}

fn class(class: OpClass) -> &'static str {
    match class {
        OpClass::Pointwise => "pointwise",
        OpClass::View => "view",
        OpClass::Movement => "movement",
        OpClass::Reduction => "reduction",
        OpClass::Contraction => "contraction",
        OpClass::Other => "other",
    }
}

/// An item of one of the texts, as code.
fn item(analysis: &Analysis, file: u32, span: Span) -> String {
    let text = analysis.texts.get(file as usize).map(|(t, _)| &t.source().text);
    code(text.and_then(|t| t.get(span.range())).unwrap_or_default())
}

fn code(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let more = if lines.len() > LINES { "\n…" } else { "" };
    format!("```rules\n{}{more}\n```", lines[..lines.len().min(LINES)].join("\n"))
}
