//! Hints for what other languages write otherwise: powers, fractions, attributes of objects, calls without parentheses.
//!
//! They only add to a message: whether something is a mistake is not decided here.

/// Where reading stopped, as far as these hints ask.
pub(super) struct Stopped<'t> {
    /// The text of the item before it.
    pub before: &'t str,
    /// What stands there.
    pub found: &'t str,
    /// The text behind it.
    pub behind: &'t str,
    /// The word that begins the item.
    pub item: &'t str,
    /// An expression should begin there.
    pub term: bool,
    /// An element type and a parenthesis stand before it.
    pub typed: bool,
    /// The sides of a rule could be joined there.
    pub joins: bool,
}

/// What is written here instead of what stands there.
pub(super) fn hint(at: &Stopped<'_>) -> Option<&'static str> {
    let touches = |sign: &str| at.before.ends_with(sign);
    let last = at.before.trim_end().chars().next_back();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins_with = |class: fn(char) -> bool| at.found.chars().next().is_some_and(class);
    let line = at.before.lines().next_back().unwrap_or_default();
    let ends = |words: &[&str]| {
        let written = line.split_whitespace().collect::<Vec<_>>();
        written.len() >= words.len() && written[written.len() - words.len()..] == *words
    };
    let opened = |open: char, close: char| {
        line.rfind(open) > line.rfind(close) || (line.contains(open) && !line.contains(close))
    };
    Some(match at.found {
        ";" if at.item != "onnx" => "clauses and items end where the next one begins: remove it",
        ":" if at.term && opened('[', ']') => {
            "brackets name all axes, as in `x[n, b]`; `slice`, `split` and `gather` take parts"
        }
        ":" if line.trim_end().ends_with(')') && !line.contains("->") => {
            "parameters and the result have types, `(x: F[..s]) -> F[..s]`, and the body begins with `=`"
        }
        "," | ")" if at.typed => "axes stand in brackets: `f32[b, n]`",
        "==" if line.trim_start().starts_with("let ") => "a name is given by `=`: `let y = x * 2`",
        "|" if ends(&["where"]) => "`where` gives names; a condition is written `if |n| == 1`",
        _ if ends(&["error"]) && begins_with(|c| c.is_ascii_digit()) => {
            "a bound belongs to a class: `error approx(abs=1e-5)`"
        }
        "*" if touches("*") => "a power is written `x ^ 2`",
        ">" if touches("==") => "an equation is written `=>`",
        "->" | "=" if at.joins => "an equation is written `=>`",
        "." if at.term && at.behind.starts_with(|c: char| c.is_ascii_digit()) => {
            "a number begins with a digit, as in `0.5`"
        }
        "." => "names have no parts: operators are applied as in `transpose(x, perm=[1, 0])`",
        ":" if matches!(at.item, "def" | "fuse") => "the body begins with `=` on a line of its own",
        ":" if at.before.split_whitespace().count() == 2 => "the colon is not needed: remove it",
        _ if at.before.trim_end().ends_with("approx(") => {
            "each bound has a name, as in `approx(abs=1e-3, rel=1e-3)`"
        }
        _ if at.joins && last.is_some_and(word) && begins_with(|c| c.is_ascii_alphabetic()) => {
            "a product is written `2 * x`, and arguments stand in parentheses: `tanh(x)`"
        }
        _ => return None,
    })
}
