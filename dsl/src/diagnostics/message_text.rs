//! Escapes and shortens names and texts from files for messages: no control characters, at most a line or two.

/// Most characters of a name.
const NAME: usize = 80;
/// Most characters of a text that names are part of.
const TEXT: usize = 600;

/// A name as messages show it: control characters are escaped, and of a long name the beginning is shown.
pub fn shown(name: &str) -> String {
    cut(name, NAME)
}

/// The same for a text that holds names.
pub fn told(text: &str) -> String {
    cut(text, TEXT)
}

fn cut(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars().take(most) {
        match is_wild(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    if text.chars().nth(most).is_some() {
        out.push_str(&format!("… ({} bytes)", text.len()));
    }
    out
}

/// True of what a terminal obeys: control characters, and characters that turn the direction of writing.
pub fn is_wild(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Bytes with a fitting unit.
pub fn bytes(b: u64) -> String {
    let of = |unit: u32| b as f64 / f64::from(unit);
    match b {
        b if b >= 1 << 30 => format!("{:.2} GiB", of(1 << 30)),
        b if b >= 1 << 20 => format!("{:.1} MiB", of(1 << 20)),
        b if b >= 1 << 10 => format!("{:.1} KiB", of(1 << 10)),
        b => format!("{b} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_cut() {
        assert_eq!(shown("layer/0: Größe"), "layer/0: Größe");
        assert_eq!(shown("a\u{1b}[31m\nb\u{202e}"), "a\\u{1b}[31m\\nb\\u{202e}");
        let long = "x".repeat(1 << 20);
        assert!(shown(&long).len() < 200 && shown(&long).ends_with("(1048576 bytes)"));
        assert!(told(&long).chars().count() < 700);
        assert_eq!(shown(&"ü".repeat(80)), "ü".repeat(80));
    }
}
