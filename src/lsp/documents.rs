//! Documents: their text, and places in it as editors count them, lines from 0 and UTF-16 units within a line.
//!
//! A place beyond the text is its end, one inside a character is the character's begin: no place is refused.

use lsp_types::{Position, Range, TextDocumentContentChangeEvent};
use mlc_dsl::diagnostics::span::Span;

/// Where the lines of a text begin.
#[derive(Clone, Debug)]
pub struct Lines {
    starts: Vec<u32>,
}

impl Lines {
    /// Of a text; a line ends with `\n`, `\r\n` or `\r`.
    pub fn of(text: &str) -> Lines {
        let bytes = text.as_bytes();
        let ends = bytes.iter().enumerate().filter(|(i, b)| match b {
            b'\n' => true,
            b'\r' => bytes.get(i + 1) != Some(&b'\n'),
            _ => false,
        });
        let starts = std::iter::once(0).chain(ends.map(|(i, _)| i as u32 + 1)).collect();
        Lines { starts }
    }

    /// The byte of a place.
    pub fn byte(&self, text: &str, at: Position) -> u32 {
        let Some(&start) = self.starts.get(at.line as usize) else { return text.len() as u32 };
        let end = self.starts.get(at.line as usize + 1).map_or(text.len(), |e| *e as usize);
        let line = text.get(start as usize..end).unwrap_or_default();
        let line = line.trim_end_matches(['\n', '\r']);
        let mut units = 0;
        for (byte, c) in line.char_indices() {
            units += c.len_utf16() as u32;
            if units > at.character {
                return start + byte as u32;
            }
        }
        start + line.len() as u32
    }

    /// The place of a byte.
    pub fn position(&self, text: &str, byte: u32) -> Position {
        let byte = (byte as usize).min(text.len());
        let byte = (0..=byte).rev().find(|b| text.is_char_boundary(*b)).unwrap_or(0);
        let line = self.starts.partition_point(|s| *s as usize <= byte).saturating_sub(1);
        let start = self.starts[line] as usize;
        let before = text.get(start..byte).unwrap_or_default();
        Position::new(line as u32, before.encode_utf16().count() as u32)
    }

    /// The range of a span.
    pub fn range(&self, text: &str, span: Span) -> Range {
        Range::new(self.position(text, span.start), self.position(text, span.end))
    }
}

/// A text that an editor has open.
#[derive(Clone, Debug)]
pub struct Document {
    /// Whole.
    pub text: String,
    /// Its lines.
    pub lines: Lines,
    /// As the editor counts.
    pub version: i32,
}

impl Document {
    /// Of a text.
    pub fn new(text: String, version: i32) -> Document {
        let lines = Lines::of(&text);
        Document { text, lines, version }
    }

    /// Applies what an editor did, in its order.
    pub fn edit(&mut self, changes: Vec<TextDocumentContentChangeEvent>, version: i32) {
        for change in changes {
            match change.range {
                Some(range) => {
                    let start = self.lines.byte(&self.text, range.start) as usize;
                    let end = self.lines.byte(&self.text, range.end) as usize;
                    self.text.replace_range(start..end.max(start), &change.text);
                }
                None => self.text = change.text,
            }
            self.lines = Lines::of(&self.text);
        }
        self.version = version;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_units_of_utf_16() {
        let text = "a😀ü\r\nb\rc\n";
        let lines = Lines::of(text);
        for (byte, line, unit) in [
            (0, 0, 0),
            (1, 0, 1),
            (5, 0, 3),
            (7, 0, 4),
            (9, 1, 0),
            (10, 1, 1),
            (11, 2, 0),
            (13, 3, 0),
        ] {
            assert_eq!(lines.position(text, byte), Position::new(line, unit), "{byte}");
            assert_eq!(lines.byte(text, Position::new(line, unit)), byte, "{line}:{unit}");
        }
        // Inside a pair, past a line's end, past the text.
        assert_eq!(lines.byte(text, Position::new(0, 2)), 1);
        assert_eq!(lines.byte(text, Position::new(0, 99)), 7);
        assert_eq!(lines.byte(text, Position::new(99, 0)), 13);
        assert_eq!(lines.position(text, 3), Position::new(0, 1));
        assert_eq!(lines.position(text, 99), Position::new(3, 0));
    }

    #[test]
    fn edits_apply_in_their_order() {
        let mut document = Document::new("ab\ncd\n".into(), 1);
        let change =
            |from: (u32, u32), to: (u32, u32), text: &str| TextDocumentContentChangeEvent {
                range: Some(Range::new(Position::new(from.0, from.1), Position::new(to.0, to.1))),
                range_length: None,
                text: text.into(),
            };
        document.edit(vec![change((0, 1), (1, 1), "x\ny"), change((1, 0), (1, 1), "😀")], 2);
        assert_eq!(document.text, "ax\n😀d\n");
        // The end before the beginning: nothing is taken away.
        document.edit(vec![change((1, 3), (0, 0), "!")], 3);
        assert_eq!((document.text.as_str(), document.version), ("ax\n😀d!\n", 3));
    }
}
