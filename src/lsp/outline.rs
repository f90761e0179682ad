//! What a document holds, item by item, and what can be done with its laws.

use crate::documents::Lines;
use crate::workspace::Analysis;
use lsp_types::{CodeLens, Command, DocumentSymbol, SymbolKind};
use mlc_dsl::diagnostics::span::Span;
use mlc_dsl::syntax::names::Outline;
use serde_json::json;
use std::path::PathBuf;

/// The command that verifies the laws of a name.
pub const CHECK: &str = "mlc-rewrite.check";
/// The command that looks for the laws of a name in a model.
pub const FIND: &str = "mlc-rewrite.find";

/// The items of a document, each with its parameters.
pub fn symbols(analysis: &Analysis) -> Vec<DocumentSymbol> {
    let text = analysis.text();
    let lines = Lines::of(text);
    let symbol = |item: &Outline| {
        let parts = item.parameters.iter().map(|(name, span)| {
            let detail = text.get(span.range()).and_then(|t| t.split_once(':')).map(|t| t.1.trim());
            entry(text, &lines, name, detail, SymbolKind::VARIABLE, (*span, *span), vec![])
        });
        let parts = parts.collect();
        let at = (item.span, item.name.span);
        entry(text, &lines, &item.name.text, Some(item.word), kind(item.word), at, parts)
    };
    analysis.names().items.iter().map(symbol).collect()
}

fn kind(word: &str) -> SymbolKind {
    match word {
        "op" | "extern" => SymbolKind::OPERATOR,
        "def" | "fuse" => SymbolKind::FUNCTION,
        "rule" => SymbolKind::EVENT,
        "target" => SymbolKind::OBJECT,
        "architecture" => SymbolKind::CLASS,
        _ => SymbolKind::INTERFACE,
    }
}

#[expect(deprecated, reason = "a field of the protocol that has to be given, and is left empty")]
fn entry(
    text: &str,
    lines: &Lines,
    name: &str,
    detail: Option<&str>,
    kind: SymbolKind,
    (whole, own): (Span, Span),
    children: Vec<DocumentSymbol>,
) -> DocumentSymbol {
    DocumentSymbol {
        name: name.to_string(),
        detail: detail.map(str::to_string),
        kind,
        tags: None,
        deprecated: None,
        range: lines.range(text, whole),
        selection_range: lines.range(text, own),
        children: (!children.is_empty()).then_some(children),
    }
}

/// "check" above every law, and "find in" every model.
pub fn lenses(analysis: &Analysis, uri: &str, models: &[PathBuf]) -> Vec<CodeLens> {
    let text = analysis.text();
    let lines = Lines::of(text);
    let is_law = |i: &&Outline| matches!(i.word, "rule" | "def" | "fuse");
    let mut out = Vec::new();
    for item in analysis.names().items.iter().filter(is_law) {
        let range = lines.range(text, item.name.span);
        let law = &item.name.text;
        let lens = |title: String, command: &str, arguments| {
            let command = Command { title, command: command.into(), arguments: Some(arguments) };
            CodeLens { range, command: Some(command), data: None }
        };
        out.push(lens("check".into(), CHECK, vec![json!(uri), json!(law)]));
        for model in models {
            let name = model.file_name().unwrap_or_default().to_string_lossy();
            let arguments = vec![json!(uri), json!(law), json!(model)];
            out.push(lens(format!("find in {name}"), FIND, arguments));
        }
    }
    out
}
