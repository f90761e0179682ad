//! The lexer: splits a text into tokens, comments and items.
//!
//! Linear and without recursion, so that no text can exhaust the stack. Reports lexical errors:
//! unclosed strings, foreign characters, unbalanced brackets.

use std::ops::Range;

use crate::diagnostics::{Code, Diag};
use crate::syntax::ast::Span;

/// Brackets deeper than this are refused: the parser behind it is recursive.
pub(super) const MAX_NESTING: usize = 64;

/// The words that open items.
pub(super) const ITEM_WORDS: [&str; 8] =
    ["op", "def", "rule", "fuse", "extern", "onnx", "target", "architecture"];

/// The reserved words that open no item, clauses in their canonical order first.
pub(super) const OTHER_WORDS: [&str; 35] = [
    "commutative",
    "associative",
    "unit",
    "given",
    "where",
    "let",
    "since",
    "until",
    "opaque",
    "on",
    "if",
    "when",
    "error",
    "check",
    "picks",
    "never",
    "reference",
    "prints",
    "kernel",
    "covers",
    "of",
    "epilogue",
    "cost",
    "takes",
    "extends",
    "each",
    "in",
    "as",
    "at",
    "else",
    "and",
    "or",
    "not",
    "true",
    "false",
];

/// Whether a word opens items or clauses and cannot be a name.
pub fn is_reserved(word: &str) -> bool {
    ITEM_WORDS.contains(&word) || OTHER_WORDS.contains(&word)
}

/// The words that cannot be names: those that open items, then those of clauses and expressions.
pub fn reserved_words() -> impl Iterator<Item = &'static str> {
    ITEM_WORDS.into_iter().chain(OTHER_WORDS)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Word,
    Number,
    Text,
    Open,
    Close,
    Sign,
    /// An open string or a foreign character; already reported.
    Bad,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub kind: TokenKind,
    pub span: Span,
    /// No token stands before it on its line.
    pub first: bool,
    /// Stands in column 0.
    pub flush: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommentKind {
    Plain,
    Item,
    File,
}

#[derive(Clone, Debug)]
pub(super) struct Comment {
    pub kind: CommentKind,
    pub text: String,
    pub span: Span,
}

/// The tokens and comments of a text.
pub(super) struct Scan {
    pub tokens: Vec<Token>,
    pub comments: Vec<Comment>,
    /// Mistakes of single tokens, each with the index of its token.
    pub bad: Vec<(usize, Diag)>,
}

pub(super) fn span(range: Range<usize>) -> Span {
    Span { start: range.start as u32, end: range.end as u32 }
}

pub(super) fn scan(text: &str) -> Scan {
    let bytes = text.as_bytes();
    let mut out = Scan { tokens: Vec::new(), comments: Vec::new(), bad: Vec::new() };
    let mut at = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let (mut first, mut line_start) = (true, at);
    while at < bytes.len() {
        let start = at;
        let kind = match bytes[at] {
            b'\n' => {
                at += 1;
                (first, line_start) = (true, at);
                continue;
            }
            b' ' | b'\t' | b'\r' => {
                at += 1;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = line_end(bytes, at);
                out.comments.push(comment(text, start..at));
                continue;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                at = skip_word(bytes, at);
                TokenKind::Word
            }
            b'0'..=b'9' => {
                at = skip_word(bytes, at);
                if bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)
                {
                    at = skip_word(bytes, at + 1);
                }
                if matches!(bytes[at - 1], b'e' | b'E')
                    && matches!(bytes.get(at), Some(b'+' | b'-'))
                    && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)
                {
                    at = skip_word(bytes, at + 1);
                }
                TokenKind::Number
            }
            b'"' => match string_end(bytes, at) {
                Ok(end) => {
                    at = end;
                    TokenKind::Text
                }
                Err(end) => {
                    at = end;
                    let diag = Diag::error(
                        Code("S005"),
                        "this string is never closed",
                        span(start..end),
                    )
                    .here("no closing `\"` on this line")
                    .help("a string ends on the line it begins on; write `\\n` for a line break");
                    out.bad.push((out.tokens.len(), diag));
                    TokenKind::Bad
                }
            },
            b'(' | b'[' => {
                at += 1;
                TokenKind::Open
            }
            b')' | b']' => {
                at += 1;
                TokenKind::Close
            }
            b'|' | b',' | b';' | b':' | b'?' | b'=' | b'<' | b'>' | b'+' | b'-' | b'*' | b'/'
            | b'%' | b'@' | b'^' | b'.' | b'!' => {
                at += sign_length(&bytes[at..]);
                TokenKind::Sign
            }
            _ => {
                while at < bytes.len() && is_foreign(bytes[at]) {
                    at += 1;
                }
                out.bad.push((out.tokens.len(), foreign(text, start..at)));
                TokenKind::Bad
            }
        };
        let flush = start == line_start;
        out.tokens.push(Token { kind, span: span(start..at), first, flush });
        first = false;
    }
    out
}

fn is_foreign(byte: u8) -> bool {
    !byte.is_ascii()
        || matches!(byte, b'{' | b'}' | b'&' | b'#' | b'$' | b'~' | b'`' | b'\'' | b'\\')
        || (byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t' | b'\r'))
}

fn foreign(text: &str, at: Range<usize>) -> Diag {
    let found = &text[at.clone()];
    let shown: String = found.chars().take(12).flat_map(char::escape_debug).collect();
    let diag =
        Diag::error(Code("S006"), format!("`{shown}` is not part of the language"), span(at));
    match found.chars().next() {
        Some('{' | '}') => {
            diag.help("items and clauses need no braces: they start with reserved words")
        }
        Some('&') => diag.help("conditions are joined by `and`"),
        Some('#') => diag.help("a comment begins with `//`"),
        Some('\'' | '`') => diag.help("strings are enclosed in double quotes"),
        Some('“' | '”') => diag.help("strings are enclosed in plain double quotes `\"`"),
        Some('⇒' | '→') => diag.help("write `=>` for an equation and `->` before outputs"),
        Some('−' | '–') => diag.help("write `-` for minus"),
        Some('×' | '·') => diag.help("write `*` for a product"),
        // Pasted from pages: spaces that do not break, joiners, marks of byte order.
        Some(c)
            if c.is_whitespace()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}') =>
        {
            diag.help("it looks like a space or like nothing: replace it by a plain space")
        }
        _ => diag,
    }
}

fn sign_length(rest: &[u8]) -> usize {
    const LONG: [&str; 9] = ["<=>", "...", "<=", ">=", "==", "!=", "=>", "->", ".."];
    LONG.iter().find(|sign| rest.starts_with(sign.as_bytes())).map_or(1, |sign| sign.len())
}

fn skip_word(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_') {
        at += 1;
    }
    at
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n)
}

// One past the closing quote, or the end of the line that lacks it.
fn string_end(bytes: &[u8], open: usize) -> Result<usize, usize> {
    let mut at = open + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return Ok(at + 1),
            b'\n' => break,
            b'\\' if !matches!(bytes.get(at + 1), None | Some(b'\n')) => at += 2,
            _ => at += 1,
        }
    }
    let mut end = at.min(bytes.len());
    while end > open + 1 && bytes[end - 1].is_ascii_whitespace() {
        end -= 1;
    }
    Err(end)
}

fn comment(text: &str, at: Range<usize>) -> Comment {
    let body = text[at.start + 2..at.end].trim_end();
    let (kind, body) = match body.as_bytes() {
        [b'/', b'/', ..] => (CommentKind::Plain, body),
        [b'/', ..] => (CommentKind::Item, &body[1..]),
        [b'!', ..] => (CommentKind::File, &body[1..]),
        _ => (CommentKind::Plain, body),
    };
    let text = body.strip_prefix(' ').unwrap_or(body).to_string();
    Comment { kind, text, span: span(at) }
}

/// The tokens of each item; what stands before the first item word comes first, if anything.
pub(super) fn items(text: &str, tokens: &[Token]) -> Vec<Range<usize>> {
    let mut starts = vec![0];
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Word if ITEM_WORDS.contains(&&text[token.span.range()]) => {
                let named = tokens.get(i + 1).is_some_and(|next| next.kind == TokenKind::Word);
                let opens = (token.first && token.flush) || (named && (token.first || depth == 0));
                if opens {
                    starts.push(i);
                    depth = 0;
                }
            }
            TokenKind::Word
            | TokenKind::Number
            | TokenKind::Text
            | TokenKind::Sign
            | TokenKind::Bad => {}
        }
    }
    starts.push(tokens.len());
    starts.windows(2).map(|w| w[0]..w[1]).filter(|range| !range.is_empty()).collect()
}

/// What is wrong with the brackets of one item.
pub(super) enum Brackets {
    /// They match.
    Fine,
    /// These are never closed; a grammar may say better where.
    Open(Span),
    /// No grammar should see this.
    Broken(Diag),
}

pub(super) fn brackets(text: &str, tokens: &[Token]) -> Brackets {
    let mut open: Vec<Span> = Vec::new();
    for token in tokens {
        let here = &text[token.span.range()];
        match token.kind {
            TokenKind::Open => {
                open.push(token.span);
                if open.len() > MAX_NESTING {
                    let message = format!("brackets nest deeper than {MAX_NESTING} levels");
                    return Brackets::Broken(
                        Diag::error(Code("S004"), message, token.span)
                            .help("give inner parts a name, for example with `let`"),
                    );
                }
            }
            TokenKind::Close => match open.pop() {
                None => {
                    let message = format!("this `{here}` has no opening bracket");
                    return Brackets::Broken(
                        Diag::error(Code("S003"), message, token.span)
                            .here(format!("no open `{}` before it in this item", partner(here))),
                    );
                }
                Some(opening) if partner(here) != &text[opening.range()] => {
                    let wanted = partner(&text[opening.range()]);
                    let message = format!("expected `{wanted}`, found `{here}`");
                    return Brackets::Broken(
                        Diag::error(Code("S003"), message, token.span)
                            .here("does not close the bracket that is open here")
                            .also(opening, "the open bracket"),
                    );
                }
                Some(_) => {}
            },
            TokenKind::Word
            | TokenKind::Number
            | TokenKind::Text
            | TokenKind::Sign
            | TokenKind::Bad => {}
        }
    }
    open.last().map_or(Brackets::Fine, |opening| Brackets::Open(*opening))
}

fn partner(bracket: &str) -> &'static str {
    match bracket {
        "(" => ")",
        ")" => "(",
        "[" => "]",
        _ => "[",
    }
}
