//! Pretty printing within a width: what fits on a line is kept on one line.

use std::iter::repeat_n;

/// A text with places where it may break.
#[derive(Clone, Debug)]
pub(super) enum Doc {
    Text(String),
    /// A blank, or a line break where the group breaks.
    Line,
    /// Nothing, or a line break where the group breaks.
    Soft,
    /// Always a line break.
    Hard,
    Cat(Vec<Doc>),
    /// Line breaks inside are indented further.
    Nest(Box<Doc>),
    /// All on one line if it fits.
    Group(Box<Doc>),
    /// Entries with a `Line` between them, each of which breaks only where it must.
    Fill(Vec<Doc>),
    /// A `Fill` whose entries after the first are indented further.
    Hang(Vec<Doc>),
}

pub(super) fn text(text: impl Into<String>) -> Doc {
    Doc::Text(text.into())
}

pub(super) fn nest(doc: Doc) -> Doc {
    Doc::Nest(Box::new(doc))
}

pub(super) fn group(doc: Doc) -> Doc {
    Doc::Group(Box::new(doc))
}

/// The entries with commas after all but the last.
pub(super) fn commas(docs: Vec<Doc>) -> Vec<Doc> {
    let last = docs.len().saturating_sub(1);
    let comma = |(i, doc)| if i < last { Doc::Cat(vec![doc, text(",")]) } else { doc };
    docs.into_iter().enumerate().map(comma).collect()
}

/// `(a, b)`, or one entry per line.
pub(super) fn enclosed(open: &str, entries: Vec<Doc>, close: &str) -> Doc {
    if entries.is_empty() {
        return text(format!("{open}{close}"));
    }
    let mut inner = vec![Doc::Soft];
    for (i, entry) in commas(entries).into_iter().enumerate() {
        if i > 0 {
            inner.push(Doc::Line);
        }
        inner.push(entry);
    }
    group(Doc::Cat(vec![text(open), nest(Doc::Cat(inner)), Doc::Soft, text(close)]))
}

/// `(a, b)`, or an indented block of lines, each with as many entries as fit.
pub(super) fn block(open: &str, entries: Vec<Doc>, close: &str) -> Doc {
    if entries.is_empty() {
        return text(format!("{open}{close}"));
    }
    let inner = nest(Doc::Cat(vec![Doc::Soft, Doc::Fill(entries)]));
    group(Doc::Cat(vec![text(open), inner, Doc::Soft, text(close)]))
}

/// `f(a, b)`, or an indented block: the first `own_lines` entries each on a line of its own, then as
/// many on a line as fit.
pub(super) fn call(open: &str, entries: Vec<Doc>, own_lines: usize) -> Doc {
    let mut entries = commas(entries);
    let shared = entries.split_off(own_lines.min(entries.len()));
    let mut lines: Vec<Doc> = entries;
    if !shared.is_empty() {
        lines.push(Doc::Fill(shared));
    }
    if lines.is_empty() {
        return text(format!("{open})"));
    }
    let inner = lines.into_iter().enumerate().flat_map(|(i, line)| {
        let gap = if i == 0 { Doc::Soft } else { Doc::Line };
        [gap, line]
    });
    let inner = nest(Doc::Cat(inner.collect()));
    group(Doc::Cat(vec![text(open), inner, Doc::Soft, text(")")]))
}

const INDENT: usize = 2;

enum LayoutStep<'d> {
    Doc(usize, bool, &'d Doc),
    /// Before an entry of a `Fill`.
    Gap(usize, &'d Doc),
}

/// Lays out; no line is wider than `width` if breaks allow it.
pub(super) fn lay_out(doc: &Doc, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    let mut steps = vec![LayoutStep::Doc(0, false, doc)];
    while let Some(step) = steps.pop() {
        match step {
            LayoutStep::Gap(indent, next) => {
                let fits = fits(width.saturating_sub(column + 1), vec![next], &[]);
                steps.push(LayoutStep::Doc(indent, fits, &Doc::Line));
            }
            LayoutStep::Doc(indent, flat, doc) => match doc {
                Doc::Text(text) => {
                    out.push_str(text);
                    column += text.chars().count();
                }
                Doc::Line if flat => {
                    out.push(' ');
                    column += 1;
                }
                Doc::Soft if flat => {}
                Doc::Line | Doc::Soft | Doc::Hard => {
                    out.truncate(out.trim_end_matches(' ').len());
                    out.push('\n');
                    out.extend(repeat_n(' ', indent));
                    column = indent;
                }
                Doc::Cat(docs) => {
                    steps.extend(docs.iter().rev().map(|doc| LayoutStep::Doc(indent, flat, doc)));
                }
                Doc::Nest(doc) => steps.push(LayoutStep::Doc(indent + INDENT, flat, doc)),
                Doc::Group(doc) => {
                    let flat = flat || fits(width.saturating_sub(column), vec![doc], &steps);
                    steps.push(LayoutStep::Doc(indent, flat, doc));
                }
                Doc::Fill(docs) | Doc::Hang(docs) => {
                    let hang = if matches!(doc, Doc::Hang(_)) { INDENT } else { 0 };
                    for (i, doc) in docs.iter().enumerate().rev() {
                        let indent = if i > 0 { indent + hang } else { indent };
                        steps.push(LayoutStep::Doc(indent, flat, doc));
                        if i > 0 && flat {
                            steps.push(LayoutStep::Doc(indent, true, &Doc::Line));
                        } else if i > 0 {
                            steps.push(LayoutStep::Gap(indent, doc));
                        }
                    }
                }
            },
        }
    }
    out
}

// Whether `docs` on one line, and what follows them up to its first possible break, take at most
// `room` columns.
fn fits<'d>(room: usize, docs: Vec<&'d Doc>, rest: &[LayoutStep<'d>]) -> bool {
    let mut left = room;
    let mut rest = rest.iter().rev();
    let mut stack: Vec<(bool, &Doc)> = docs.into_iter().map(|doc| (true, doc)).collect();
    loop {
        let (flat, doc) = match stack.pop() {
            Some(next) => next,
            None => match rest.next() {
                None | Some(LayoutStep::Gap(..)) => return true,
                Some(LayoutStep::Doc(_, flat, doc)) => (*flat, *doc),
            },
        };
        let used = match doc {
            Doc::Text(text) => text.chars().count(),
            Doc::Line if flat => 1,
            Doc::Soft if flat => 0,
            Doc::Hard if flat => return false,
            Doc::Line | Doc::Soft | Doc::Hard => return true,
            Doc::Cat(docs) => {
                stack.extend(docs.iter().rev().map(|doc| (flat, doc)));
                0
            }
            Doc::Nest(doc) => {
                stack.push((flat, doc));
                0
            }
            Doc::Group(doc) => {
                stack.push((flat, doc));
                0
            }
            Doc::Fill(docs) | Doc::Hang(docs) => {
                for (i, doc) in docs.iter().enumerate().rev() {
                    stack.push((flat, doc));
                    if i > 0 {
                        stack.push((flat, &Doc::Line));
                    }
                }
                0
            }
        };
        match left.checked_sub(used) {
            Some(room) => left = room,
            None => return false,
        }
    }
}
