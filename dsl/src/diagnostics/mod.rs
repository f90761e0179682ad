//! Diagnostics: what is wrong in a text, where, and what to do about it.
//!
//! The only module that uses the library that renders them.

pub mod message_text;
pub mod span;
pub mod suggestions;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use std::ops::Range;

use span::Span;

/// Every code and its meaning in one line, in the order of the manual.
pub const CODES: &[(&str, &str)] = &[
    ("S001", "an unexpected token"),
    ("S002", "an unclosed bracket"),
    ("S003", "a closing bracket without an opening one"),
    ("S004", "an expression nested too deeply"),
    ("S005", "a string without its closing quote"),
    ("S006", "a character outside the language"),
    ("S007", "an unknown escape in a string"),
    ("S008", "a number that cannot be represented"),
    ("S009", "a reserved word used as a name"),
    ("S010", "chained comparisons"),
    ("S011", "a clause given twice"),
    ("S012", "a missing clause"),
    ("S013", "an unknown error class or tolerance"),
    ("S014", "a form of parameter that the item does not allow"),
    ("S015", "a documentation comment that documents nothing (a warning)"),
    ("S016", "`else` after something that is not an element access"),
    ("S017", "an operator exported under another name"),
    ("S018", "text outside any item"),
    ("S019", "a text that is too long, or has too many errors"),
    ("R001", "a name declared twice"),
    ("R002", "a name that is not a variable here"),
    ("R003", "an operator that is not declared"),
    ("R004", "an axis that is unknown here, or that has no extent"),
    (
        "R005",
        "an attribute that the operator does not have, one that is missing, or a value of another kind",
    ),
    ("R006", "the wrong number or kind of arguments"),
    ("R007", "an element type that does not match, or cannot be inferred"),
    ("R008", "axes of an argument that do not match the parameter"),
    ("R009", "an unknown function on attributes or elements"),
    ("R010", "a tensor, a number or a tuple where another of them is expected"),
    ("R011", "element access outside a meaning"),
    ("R012", "a figure or kernel of a target that is unknown, given twice or not a number"),
    ("R013", "`commutative` or `associative` on an operator that is not binary"),
    ("R014", "not exactly one equation per output"),
    ("R015", "an attribute or element type that is unknown or cannot be inferred"),
    ("R016", "an axis that occurs twice in one tensor, or too many axes"),
    ("R017", "an extent with several names"),
    ("R018", "a law without an error class"),
    ("R019", "sides with different outputs"),
    ("R020", "a variable of the result that the match does not bind"),
    ("R021", "a target that is not declared, or that extends itself"),
    ("R022", "mutually recursive definitions"),
    ("R023", "a definition or number that is too large when expanded"),
    ("R024", "an unused parameter or index (a warning)"),
    ("R025", "a body that does not match the declaration"),
    ("R026", "a schema that does not determine its operators and operands"),
    ("R027", "a recurrence that cannot be computed step by step"),
];

/// A stable code such as `S001`; `S` codes are syntax errors, `R` codes semantic errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub &'static str);

impl Code {
    /// Its meaning in one line, if it is registered in [`CODES`].
    pub fn meaning(self) -> Option<&'static str> {
        CODES.iter().find(|(code, _)| *code == self.0).map(|(_, meaning)| *meaning)
    }
}

/// How grave a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The text cannot be used.
    Error,
    /// The text can be used, but is likely not what was meant.
    Warning,
}

/// One mistake in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diag {
    /// Which kind of mistake.
    pub code: Code,
    /// How grave.
    pub severity: Severity,
    /// One sentence, without a capital and without a full stop.
    pub message: String,
    /// All places concerned and what each is; the first is the primary one. A label may be empty.
    pub labels: Vec<(Span, String)>,
    /// What to do about it.
    pub help: Option<String>,
}

impl Diag {
    /// An error at one place.
    pub fn error(code: Code, message: impl Into<String>, at: Span) -> Diag {
        Diag {
            code,
            severity: Severity::Error,
            message: message.into(),
            labels: vec![(at, String::new())],
            help: None,
        }
    }

    /// A warning at one place.
    pub fn warning(code: Code, message: impl Into<String>, at: Span) -> Diag {
        Diag { severity: Severity::Warning, ..Diag::error(code, message, at) }
    }

    /// Says what the primary place is.
    pub fn here(mut self, label: impl Into<String>) -> Diag {
        if let Some(first) = self.labels.first_mut() {
            first.1 = label.into();
        }
        self
    }

    /// Adds another place.
    pub fn also(mut self, at: Span, label: impl Into<String>) -> Diag {
        self.labels.push((at, label.into()));
        self
    }

    /// Says what to do.
    pub fn help(mut self, help: impl Into<String>) -> Diag {
        self.help = Some(help.into());
        self
    }

    /// Where it is, for sorting and counting.
    pub fn span(&self) -> Span {
        self.labels.first().map(|(span, _)| *span).unwrap_or_default()
    }
}

/// Draws the diagnostics of one text, in the order given, with a blank line between them.
///
/// The same arguments always give the same bytes; spans may lie anywhere.
pub fn render(diags: &[Diag], file_name: &str, source: &str, color: bool) -> String {
    // Of as many bytes, so that places stay; the library shows what else moves a cursor.
    let source = &source.replace(['\u{feff}', '\u{2028}', '\u{2029}'], "\u{fffd}");
    let renderer = if color { Renderer::styled() } else { Renderer::plain() }.term_width(120);
    let breaks: Vec<usize> = source.match_indices('\n').map(|(at, _)| at).collect();
    let mut out = String::new();
    for diag in diags {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&renderer.render(&[group(diag, file_name, source, &breaks)]));
        out.push('\n');
    }
    out
}

/// Diagnostics that are drawn at most; of the others only their number is told.
pub const SHOWN: usize = 100;

/// Draws the first [`SHOWN`] diagnostics of one text and tells how many follow.
pub fn render_first(diags: &[Diag], file_name: &str, source: &str, color: bool) -> String {
    let shown = &diags[..diags.len().min(SHOWN)];
    render(shown, file_name, source, color) + &more(diags.len())
}

/// Tells how many of `count` diagnostics are not shown; empty if all are.
pub fn more(count: usize) -> String {
    match count.checked_sub(SHOWN) {
        None | Some(0) => String::new(),
        Some(n) => format!("\n... and {n} more\n"),
    }
}

/// Characters of a message, a label or a help line that are shown at most.
const LONGEST: usize = 600;

/// Bytes of the lines concerned that are drawn at most, and that are drawn before a place in a longer line.
const WINDOW: usize = 1 << 14;
const BEFORE: usize = 200;

/// A text as it may be shown: cut, and nothing in it that a terminal would obey.
pub fn plain(text: &str) -> String {
    let is_shown = |c: char| !c.is_control() || c == '\n';
    if text.len() <= LONGEST && text.chars().all(is_shown) {
        return text.to_string();
    }
    let escaped = |c: char| match is_shown(c) {
        true => c.to_string(),
        false => c.escape_default().to_string(),
    };
    let mut out: String = text.chars().take(LONGEST).map(escaped).collect();
    if text.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    out
}

fn group<'a>(diag: &Diag, file_name: &'a str, source: &'a str, breaks: &[usize]) -> Group<'a> {
    let level = match diag.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = Group::with_title(level.primary_title(plain(&diag.message)).id(diag.code.0));
    let ranges: Vec<_> = diag.labels.iter().map(|(span, _)| clamp(*span, source)).collect();
    let first = ranges.iter().map(|range| range.start).min();
    if let Some((first, last)) = first.zip(ranges.iter().map(|range| range.end).max()) {
        // Only the lines concerned: drawing takes time for every line it is given.
        let line = breaks.partition_point(|at| *at < first);
        let start = if line == 0 { 0 } else { breaks[line - 1] + 1 };
        let end = breaks.get(breaks.partition_point(|at| *at < last));
        let end = end.map_or(source.len(), |at| at + 1);
        let (mut shown, mut line) = (start..end, line);
        let whole = end - start <= WINDOW;
        if !whole {
            let primary = ranges[0].start;
            line = breaks.partition_point(|at| *at < primary);
            let start = if line == 0 { 0 } else { breaks[line - 1] + 1 };
            let column = source[start..primary].chars().count() + 1;
            let origin = Origin::path(file_name).line(line + 1).char_column(column);
            group = group.element(origin);
            let from = floor(source, primary.saturating_sub(BEFORE).max(start));
            shown = from..floor(source, (from + WINDOW).min(end));
        }
        let mut snippet = Snippet::source(&source[shown.clone()]).line_start(line + 1);
        if whole {
            snippet = snippet.path(file_name);
        }
        for (i, (range, (_, label))) in ranges.into_iter().zip(&diag.labels).enumerate() {
            let kind = if i == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            let label = Some(plain(label)).filter(|label| !label.is_empty());
            if let Some(range) = inside(&range, &shown) {
                snippet = snippet.annotation(kind.span(range).label(label));
            }
        }
        group = group.element(snippet);
    }
    match &diag.help {
        Some(help) => group.element(Level::HELP.message(plain(help))),
        None => group,
    }
}

/// The part of a range that lies in what is shown, counted from there.
fn inside(range: &Range<usize>, shown: &Range<usize>) -> Option<Range<usize>> {
    let (start, end) = (range.start.max(shown.start), range.end.min(shown.end));
    (start <= end && range.start <= shown.end).then(|| start - shown.start..end - shown.start)
}

// A range of whole characters inside the text.
fn clamp(span: Span, source: &str) -> std::ops::Range<usize> {
    let start = floor(source, span.start as usize);
    let mut end = (span.end as usize).min(source.len()).max(start);
    while !source.is_char_boundary(end) {
        end += 1;
    }
    start..end
}

fn floor(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}
