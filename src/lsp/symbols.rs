//! Where a name is declared and used, over all texts that a document is read with; and what renaming it changes.
//!
//! Definition, references and renaming are one search: for occurrences of the same name in the same space.

use crate::documents::Lines;
use crate::workspace::{Analysis, Workspace};
use lsp_types::{Location, Range, TextEdit, Uri};
use mlc_dsl::syntax::is_reserved;
use mlc_dsl::syntax::names::{Occurrence, Space};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a name stands for.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// As written.
    pub name: String,
    /// Of what.
    pub space: Space,
    /// Where the cursor is.
    pub at: Occurrence,
}

/// The symbol at a byte of a document.
pub fn at(analysis: &Analysis, byte: u32) -> Option<Symbol> {
    let at = analysis.names().at(byte)?.clone();
    Some(Symbol { name: at.name.clone(), space: at.space.clone(), at })
}

impl Symbol {
    /// Means something within one item alone.
    fn is_local(&self) -> bool {
        matches!(self.space, Space::Local(_) | Space::OnnxAttribute(_))
    }

    fn is(&self, o: &Occurrence) -> bool {
        o.name == self.name && o.space == self.space
    }
}

/// Its occurrences, text by text.
pub fn occurrences<'a>(analysis: &'a Analysis, symbol: &'a Symbol) -> Vec<(usize, &'a Occurrence)> {
    let texts = analysis.texts.iter().enumerate();
    let texts = texts.filter(|(i, _)| *i == analysis.own || !symbol.is_local());
    let found = texts.flat_map(|(i, (_, names))| names.occurrences.iter().map(move |o| (i, o)));
    found.filter(|(_, o)| symbol.is(o)).collect()
}

/// Where a symbol is declared: of an axis, where it first stands.
pub fn definitions(
    w: &Workspace,
    analysis: &Analysis,
    symbol: &Symbol,
    uri: &str,
) -> Vec<Location> {
    let all = occurrences(analysis, symbol);
    let mut made: Vec<_> = all.iter().filter(|(_, o)| o.declares).copied().collect();
    if symbol.is_local() || matches!(symbol.space, Space::Parameter(_)) {
        made.truncate(1);
    }
    if made.is_empty() && symbol.is_local() {
        made.extend(all.first());
    }
    made.into_iter().filter_map(|(t, o)| w.location(analysis, t, o.span, uri)).collect()
}

/// Where a symbol stands, in the texts of its document and in the other open ones that see it.
pub fn references(
    w: &Workspace,
    analysis: &Analysis,
    others: &[(String, Arc<Analysis>)],
    symbol: &Symbol,
    declarations: bool,
    uri: &str,
) -> Vec<Location> {
    let wanted = |o: &Occurrence| declarations || !o.declares;
    let all = occurrences(analysis, symbol).into_iter().filter(|(_, o)| wanted(o));
    let mut out: Vec<_> = all.filter_map(|(t, o)| w.location(analysis, t, o.span, uri)).collect();
    for (other, seen) in seeing(analysis, others, symbol, uri) {
        let own = occurrences(seen, symbol).into_iter();
        let own = own.filter(|(t, o)| *t == seen.own && wanted(o));
        out.extend(own.filter_map(|(t, o)| w.location(seen, t, o.span, other)));
    }
    let mut known = Vec::new();
    out.retain(|l| match known.contains(l) {
        true => false,
        false => {
            known.push(l.clone());
            true
        }
    });
    out
}

/// The other open documents that are read with a text that declares the symbol.
fn seeing<'a>(
    analysis: &'a Analysis,
    others: &'a [(String, Arc<Analysis>)],
    symbol: &'a Symbol,
    uri: &'a str,
) -> impl Iterator<Item = (&'a str, &'a Analysis)> {
    let name = |a: &Analysis, t: usize| a.texts[t].0.source().name.clone();
    let made = occurrences(analysis, symbol).into_iter().filter(|(_, o)| o.declares);
    let made: Vec<String> = made.map(|(t, _)| name(analysis, t)).collect();
    let others = others.iter().filter(move |(u, _)| u != uri && !symbol.is_local());
    let sees =
        move |a: &Analysis| (0..a.texts.len()).any(|t| t != a.own && made.contains(&name(a, t)));
    others.filter(move |(_, a)| sees(a)).map(|(u, a)| (u.as_str(), &**a))
}

/// Where the name at a byte stands, if it can be renamed.
///
/// # Errors
/// It cannot be; the text says why.
pub fn renameable(
    w: &Workspace,
    analysis: &Analysis,
    symbol: &Symbol,
    uri: &str,
) -> Result<Range, String> {
    let name = &symbol.name;
    if matches!(symbol.space, Space::Onnx | Space::OnnxAttribute(_)) {
        return Err(format!("`{name}` is a name of ONNX"));
    }
    let mut declared = symbol.is_local();
    let mut all = occurrences(analysis, symbol);
    all.sort_by_key(|(_, o)| !o.declares);
    for (text, o) in all {
        declared |= o.declares;
        if !w.home(analysis, text, uri).is_some_and(|(_, writable)| writable) {
            let place = &analysis.texts[text].0.source().name;
            let does = if o.declares { "is declared" } else { "occurs" };
            return Err(format!("`{name}` {does} in the shipped text {place}"));
        }
    }
    match declared {
        true => Ok(Lines::of(analysis.text()).range(analysis.text(), symbol.at.span)),
        false => Err(format!("`{name}` is declared nowhere")),
    }
}

/// What renaming changes, document by document.
///
/// # Errors
/// The name cannot be changed, or not to this one; the text says why.
pub fn renamed(
    w: &Workspace,
    analysis: &Analysis,
    others: &[(String, Arc<Analysis>)],
    symbol: &Symbol,
    new: &str,
    uri: &str,
) -> Result<BTreeMap<String, Vec<TextEdit>>, String> {
    renameable(w, analysis, symbol, uri)?;
    free(analysis, symbol, new)?;
    let mut out: BTreeMap<String, Vec<TextEdit>> = BTreeMap::new();
    for Location { uri, range } in references(w, analysis, others, symbol, true, uri) {
        let edit = TextEdit { range, new_text: new.to_string() };
        out.entry(address(&uri)).or_default().push(edit);
    }
    Ok(out)
}

fn address(uri: &Uri) -> String {
    uri.as_str().to_string()
}

/// Refuses a name that is none, or that is taken where the symbol is known.
fn free(analysis: &Analysis, symbol: &Symbol, new: &str) -> Result<(), String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = new.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !begins || !new.chars().all(is_word) {
        return Err(format!("`{new}` is no name: letters, digits and `_`, and no digit first"));
    }
    if is_reserved(new) {
        return Err(format!("`{new}` is a reserved word"));
    }
    let same_space = |o: &Occurrence| o.name == new && o.space == symbol.space;
    let texts = || analysis.texts.iter().flat_map(|(_, names)| &names.occurrences);
    let taken = match &symbol.space {
        Space::Operator | Space::Law | Space::Target | Space::Architecture | Space::Onnx => {
            texts().any(|o| o.declares && same_space(o))
        }
        Space::Parameter(operator) => {
            texts().any(same_space) || {
                let declares = |o: &&Occurrence| {
                    o.declares && o.space == Space::Operator && o.name == *operator
                };
                let in_item = |names: &mlc_dsl::syntax::names::Names| {
                    let items: Vec<usize> =
                        names.occurrences.iter().filter(declares).map(|o| o.item).collect();
                    names.occurrences.iter().any(|o| items.contains(&o.item) && o.name == new)
                };
                analysis.texts.iter().any(|(_, names)| in_item(names))
            }
        }
        Space::Local(item) | Space::OnnxAttribute(item) => {
            analysis.names().occurrences.iter().any(|o| o.item == *item && o.name == new)
        }
    };
    if taken { Err(format!("`{new}` is the name of something else here")) } else { Ok(()) }
}
