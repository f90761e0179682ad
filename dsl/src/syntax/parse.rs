//! Parses a text to a syntax tree. Never fails: errors are values, and a broken item does not hide the others.

use std::ops::Range;

use pest::Parser;

use super::advice::advise;
use super::build::TreeBuilder;
use super::parse_errors::{GrammarMismatch, explain};
use super::scan::{
    Brackets, CommentKind, ITEM_WORDS, Scan, Token, TokenKind, brackets, items, scan,
};
use crate::diagnostics::{Code, Diag};
use crate::syntax::ast::{File, Item, Span};

/// The grammar, compiled.
#[derive(pest_derive::Parser)]
#[grammar = "syntax/grammar.pest"]
struct Grammar;

/// Reads a text. Every mistake of syntax is in the list; the file holds the items that could be read.
pub fn parse(text: &str) -> (File, Vec<Diag>) {
    let mut file = File::default();
    let mut diags = Vec::new();
    if u32::try_from(text.len()).is_err() {
        let message = "this text is longer than 4 GiB";
        let help = "split it into several texts";
        diags.push(Diag::error(Code("S019"), message, Span::default()).help(help));
        return (file, diags);
    }
    let mut scan = scan(text);
    let ranges = items(text, &scan.tokens);
    let notes = attach(text, &scan, &ranges, &mut file, &mut diags);
    let mut bad = std::mem::take(&mut scan.bad).into_iter().peekable();
    for (range, notes) in ranges.iter().zip(notes) {
        // The first mistake of a token says enough: of a binary file there would be thousands.
        let mut broken = None;
        while let Some((_, diag)) = bad.next_if(|(token, _)| range.contains(token)) {
            broken.get_or_insert(diag);
        }
        if let Some(diag) = broken {
            diags.push(diag);
        } else if let Some(mut item) = item(text, &scan.tokens[range.clone()], &mut diags) {
            (item.comments, item.doc) = (notes.comments, notes.doc);
            file.items.push(item);
        }
    }
    diags.sort_by_key(|diag| diag.span().start);
    for diag in &mut diags {
        // The item whose first word stands last before the mistake.
        let after = |range: &Range<usize>| scan.tokens[range.start].span.start <= diag.span().start;
        let own = ranges.partition_point(after).checked_sub(1).map(|i| ranges[i].start);
        advise(diag, own.map_or("", |first| &text[scan.tokens[first].span.range()]));
    }
    (file, diags)
}

/// The comments of one item.
#[derive(Clone, Default)]
struct Notes {
    comments: Vec<String>,
    doc: Vec<String>,
}

// A comment belongs to the item it stands in or ends the last line of, else to the next one.
fn attach(
    text: &str,
    scan: &Scan,
    ranges: &[Range<usize>],
    file: &mut File,
    diags: &mut Vec<Diag>,
) -> Vec<Notes> {
    let mut notes = vec![Notes::default(); ranges.len()];
    let extent = |i: usize| {
        let tokens: &[Token] = ranges.get(i).map_or(&[], |range| &scan.tokens[range.clone()]);
        tokens.first().zip(tokens.last()).map(|(first, last)| first.span.to(last.span))
    };
    let mut next = 0;
    for comment in &scan.comments {
        let at = comment.span;
        // Items that begin before the comment.
        while extent(next).is_some_and(|item| item.start < at.start) {
            next += 1;
        }
        let last = next.checked_sub(1).and_then(extent);
        let inside = last.is_some_and(|item| {
            at.start < item.end || !text[item.end as usize..at.start as usize].contains('\n')
        });
        let mut stray = |message: &str, help: &str| {
            diags.push(Diag::warning(Code("S015"), message, at).help(help));
        };
        match comment.kind {
            CommentKind::File if next == 0 => {
                if file.doc.is_empty()
                    && let Some(first) = notes.first_mut()
                {
                    file.header = std::mem::take(&mut first.comments);
                } else if file.doc.is_empty() {
                    file.header = std::mem::take(&mut file.trailer);
                }
                file.doc.push(comment.text.clone());
                continue;
            }
            CommentKind::File => stray(
                "a `//!` comment documents the file and must precede its items",
                "move it to the top, or write `//`",
            ),
            CommentKind::Item if inside => stray(
                "a `///` comment documents the next item; this one is inside an item",
                "move it above the item, or write `//`",
            ),
            CommentKind::Item if next == ranges.len() => {
                stray("no item follows this `///` comment", "write `//`");
            }
            CommentKind::Item => {
                notes[next].doc.push(comment.text.clone());
                continue;
            }
            CommentKind::Plain => {}
        }
        let home = if inside { next.checked_sub(1) } else { Some(next) };
        match home.and_then(|i| notes.get_mut(i)) {
            Some(notes) => notes.comments.push(comment.text.clone()),
            None => file.trailer.push(comment.text.clone()),
        }
    }
    notes
}

fn item(text: &str, tokens: &[Token], diags: &mut Vec<Diag>) -> Option<Item> {
    let (first, last) = tokens.first().zip(tokens.last())?;
    if !ITEM_WORDS.contains(&&text[first.span.range()]) {
        diags.push(super::parse_errors::outside_items(text, tokens));
        return None;
    }
    let open = match brackets(text, tokens) {
        Brackets::Broken(diag) => {
            diags.push(diag);
            return None;
        }
        Brackets::Open(opening) => Some(opening),
        Brackets::Fine => None,
    };
    let whole = first.span.to(last.span);
    let error = match Grammar::parse(Rule::unit, &text[whole.range()]) {
        Ok(mut pairs) => {
            let base = whole.start;
            let unit = pairs.next()?.into_inner().next()?;
            let mut builder = TreeBuilder { base, diags: Vec::new(), failed: false, nesting: 0 };
            let built = builder.item(unit);
            diags.append(&mut builder.diags);
            let (name, kind) = built?;
            return Some(Item { comments: Vec::new(), doc: Vec::new(), name, span: whole, kind });
        }
        Err(error) => error,
    };
    let GrammarMismatch { diag, token } = explain(text, tokens, &error, open);
    diags.push(diag);
    // A misspelt item word in column 0: the item before it may be sound.
    let next =
        tokens.get(token).filter(|next| token > 0 && next.flush && next.kind == TokenKind::Word)?;
    super::parse_errors::near(&text[next.span.range()], &ITEM_WORDS)?;
    match brackets(text, &tokens[..token]) {
        Brackets::Fine => item(text, &tokens[..token], &mut Vec::new()),
        Brackets::Open(_) | Brackets::Broken(_) => None,
    }
}
