//! Wraps texts at the terminal's width.

use std::io::{self, IsTerminal};

/// Columns where standard output is no terminal, as of the texts of `--help`.
const COLUMNS: usize = 100;
/// No text is wrapped at less.
const LEAST: usize = 40;

/// The columns of standard output.
pub fn width() -> usize {
    let size = io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    size.map_or(COLUMNS, |(width, _)| usize::from(width.0)).max(LEAST)
}

/// The text with no line longer than this, but for words that are. A line goes on below where its own text begins: behind its indent and
/// a label, which two spaces end.
pub fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |l| (l, "\n"));
        if line.chars().count() <= width {
            out.push_str(line);
        } else {
            broken(&mut out, line, width);
        }
        out.push_str(end);
    }
    out
}

fn broken(out: &mut String, line: &str, width: usize) {
    let hang = hang(line, width);
    let (mut column, mut is_first, mut is_fresh) = (0, true, false);
    let text = line.trim_start();
    let indent = line.len() - text.len();
    out.push_str(&line[..indent]);
    column += indent;
    // Spaces that align columns stay where they are not at the end of a line.
    for word in text.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if !is_first && column + length > width {
            while out.ends_with(' ') {
                out.pop();
            }
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', hang));
            (column, is_fresh) = (hang, true);
        }
        if length > 0 || !is_fresh {
            out.push_str(word);
            column += word.chars().count();
            is_fresh = false;
        }
        is_first = false;
    }
    while out.ends_with(' ') {
        out.pop();
    }
}

/// Where a line that is wrapped goes on.
fn hang(line: &str, width: usize) -> usize {
    let indent = line.chars().take_while(|c| *c == ' ').count();
    let text: Vec<char> = line.chars().collect();
    let label =
        (indent..text.len().saturating_sub(2)).find(|&i| text[i] == ' ' && text[i + 1] == ' ');
    let begins = label.and_then(|at| (at..text.len()).find(|&i| text[i] != ' '));
    begins.filter(|&at| at <= width / 3).unwrap_or(indent + 4)
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_go_on_below_where_their_text_begins() {
        let text = "  label  one two three four\nshort\n  why: it is so and so\n";
        let wanted = "  label  one two\n      three four\nshort\n  why: it is so and\n      so\n";
        assert_eq!(wrapped(text, 19), wanted);
        let wide = "  label  one two three four five six\n";
        assert_eq!(wrapped(wide, 30), "  label  one two three four\n         five six\n");
    }

    #[test]
    fn long_words_and_short_lines_stay() {
        let long = "a".repeat(50);
        assert_eq!(wrapped(&long, 40), long);
        assert_eq!(wrapped("x  y\n\nz", 40), "x  y\n\nz");
    }
}
