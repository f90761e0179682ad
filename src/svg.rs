//! Drawings as SVG: a white sheet, so that they look alike on any background, and elements on it.

use mlc_dsl::diagnostics::message_text::is_wild;
use std::fmt::{Arguments, Write};

/// A drawing that elements are added to.
pub struct Drawing(String);

impl Drawing {
    /// An empty sheet of so many pixels.
    pub fn new(width: f64, height: f64) -> Drawing {
        Drawing(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
        ))
    }

    /// Adds elements as they are written.
    pub fn element(&mut self, element: Arguments<'_>) {
        let _ = writeln!(self.0, "{element}");
    }

    /// Adds a line of text with these attributes.
    pub fn text(&mut self, attributes: Arguments<'_>, text: &str) {
        self.element(format_args!("<text {attributes}>{}</text>", escaped(text)));
    }

    /// The document.
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// The text as XML spells it. Characters that XML does not have are escaped as in Rust, and so are those that turn the
/// direction of writing.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if is_wild(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                out.extend(c.escape_default());
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a < b && \"c\" > 'd'"), "a &lt; b &amp;&amp; &quot;c&quot; &gt; 'd'");
        assert_eq!(escaped("ü\0\n\u{202e}\u{ffff}"), "ü\\u{0}\\n\\u{202e}\\u{ffff}");
    }
}
