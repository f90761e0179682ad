//! From what the grammar refused to a sentence for its author.

use itertools::Itertools;
use pest::error::{Error, ErrorVariant, InputLocation};

use super::parse::Rule;
use super::scan::{ITEM_WORDS, Kind, Token, is_reserved, span};
use crate::diag::{Code, Diag};
use crate::syntax::ast::Span;

/// Why an item could not be read.
pub(super) struct Refusal {
    pub diag: Diag,
    /// The token at which reading stopped; the number of tokens at the end.
    pub token: usize,
}

/// What could have stood where reading stopped, as a reader would say it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Expected {
    Term,
    Name,
    Sign(&'static str),
    Clause(&'static str),
    NextItem,
    Operator,
}

/// The closest of `words` within reach of a slip of the hand.
pub(super) fn near<'w>(word: &str, words: &[&'w str]) -> Option<&'w str> {
    let reach = if word.len() <= 3 { 1 } else { 2 };
    words
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .filter(|(steps, candidate)| (1..=reach).contains(steps) && *steps < candidate.len())
        .min()
        .map(|(_, candidate)| candidate)
}

// Insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > 2 || a.len() > 32 {
        return usize::MAX;
    }
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let swap = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j - 1] + swap).min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Text that no item word opens.
pub(super) fn outside_items(text: &str, tokens: &[Token]) -> Diag {
    let at = tokens.first().map(|token| token.span).unwrap_or_default();
    let found = &text[at.range()];
    let words = ITEM_WORDS.iter().map(|word| format!("`{word}`")).join(", ");
    let diag = Diag::error(Code("S018"), format!("expected an item, found `{found}`"), at);
    match near(found, &ITEM_WORDS) {
        Some(word) => diag.help(format!("did you mean `{word}`?")),
        None => diag.help(format!("items begin with {words}")),
    }
}

/// Explains an error of the grammar; `open` is a bracket of the item that is never closed.
pub(super) fn explain(
    text: &str,
    tokens: &[Token],
    error: &Error<Rule>,
    open: Option<Span>,
) -> Refusal {
    let base = tokens.first().map_or(0, |token| token.span.start);
    let at = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => base + at as u32,
    };
    let token = tokens.partition_point(|token| token.span.end <= at);
    let here = tokens.get(token);
    let end = tokens.last().map_or(base, |token| token.span.end);
    let place = here.map_or(span(end as usize..end as usize), |token| token.span);
    let positives = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.as_slice(),
        // The library ran out of stack before our own bounds said so.
        ErrorVariant::CustomError { .. } => {
            let diag = Diag::error(Code("S004"), "this item nests too deeply", place)
                .help("give inner parts a name, for example with `let`");
            return Refusal { diag, token };
        }
    };
    let expected: Vec<Expected> =
        positives.iter().flat_map(|rule| describe(*rule)).copied().sorted().dedup().collect();
    let found = here.map(|token| &text[token.span.range()]);
    let is_word = here.is_some_and(|token| token.kind == Kind::Word);
    let mut diag = refuse(&expected, found, is_word, place);
    if let Some(opening) = open {
        let bracket = &text[opening.range()];
        let message = format!("this `{bracket}` is never closed");
        let stopped = if found.is_some() { "reading stops here" } else { "the item ends here" };
        diag = Diag::error(Code("S002"), message, opening).also(place, stopped);
        if let Some(help) = open_help(&expected, found) {
            diag = diag.help(help);
        }
    }
    Refusal { diag, token }
}

fn open_help(expected: &[Expected], found: Option<&str>) -> Option<String> {
    let found = found?;
    let close = expected.iter().find_map(|e| match e {
        Expected::Sign(sign @ (")" | "]")) => Some(*sign),
        _ => None,
    })?;
    Some(format!("a `{close}` before `{found}` is likely missing"))
}

fn refuse(expected: &[Expected], found: Option<&str>, is_word: bool, place: Span) -> Diag {
    let shown = found.map_or("the end of the item".to_string(), |found| format!("`{found}`"));
    let wanted = sentence(expected);
    let name_only = expected.contains(&Expected::Name) && !expected.contains(&Expected::Term);
    if let Some(word) = found.filter(|word| is_word && name_only && is_reserved(word)) {
        let message = format!("`{word}` is a reserved word and cannot be a name");
        return Diag::error(Code("S009"), message, place)
            .here(format!("expected {wanted}"))
            .help(format!("choose another name, such as `{word}_`"));
    }
    let diag = Diag::error(Code("S001"), format!("expected {wanted}, found {shown}"), place);
    match found.and_then(|found| advice(expected, found, is_word)) {
        Some(help) => diag.help(help),
        None => diag,
    }
}

fn advice(expected: &[Expected], found: &str, is_word: bool) -> Option<String> {
    if is_word {
        let mut words: Vec<&str> = Vec::new();
        for e in expected {
            match e {
                Expected::Clause(word) => words.push(word),
                Expected::NextItem => words.extend(ITEM_WORDS),
                _ => {}
            }
        }
        if let Some(word) = near(found, &words) {
            return Some(format!("did you mean `{word}`?"));
        }
    }
    let help = match found {
        "=" if expected.contains(&Expected::Operator) => "equality is tested by `==`",
        "!" => "negation is written `not`",
        "<" | ">" if expected.contains(&Expected::Term) => "a comparison needs both sides",
        _ => return None,
    };
    Some(help.to_string())
}

fn sentence(expected: &[Expected]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut clauses: Vec<&str> = Vec::new();
    let (mut next, mut operator) = (false, false);
    for e in expected {
        match e {
            Expected::Term => parts.push("an expression".into()),
            Expected::Name if expected.contains(&Expected::Term) => {}
            Expected::Name => parts.push("a name".into()),
            Expected::Sign(sign) => parts.push(format!("`{sign}`")),
            Expected::Clause(word) => clauses.push(word),
            Expected::NextItem => next = true,
            Expected::Operator => operator = true,
        }
    }
    match clauses.as_slice() {
        [] => {}
        [one] => parts.push(format!("`{one}`")),
        many => {
            let words = many.iter().map(|word| format!("`{word}`")).join(", ");
            parts.push(format!("a clause ({words})"));
        }
    }
    if next {
        parts.push("the next item".into());
    }
    if parts.is_empty() && operator {
        parts.push("an operator".into());
    }
    match parts.split_last() {
        None => "something else".into(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

fn describe(rule: Rule) -> &'static [Expected] {
    use Expected::{Clause, Name, NextItem, Operator, Sign, Term};
    match rule {
        Rule::EOI => &[NextItem],
        Rule::expr
        | Rule::bound
        | Rule::elem
        | Rule::arg
        | Rule::alternative
        | Rule::side
        | Rule::sides
        | Rule::minus
        | Rule::kw_not
        | Rule::reduction
        | Rule::float
        | Rule::string
        | Rule::truth
        | Rule::size
        | Rule::list
        | Rule::group
        | Rule::reference
        | Rule::term_start
        | Rule::monoid => &[Term],
        Rule::int => &[Term],
        Rule::ident
        | Rule::names
        | Rule::binding
        | Rule::named_value
        | Rule::param
        | Rule::tolerance
        | Rule::check
        | Rule::place
        | Rule::axis
        | Rule::arg_name
        | Rule::side_names
        | Rule::output_name
        | Rule::entry
        | Rule::meaning
        | Rule::type_
        | Rule::output => &[Name],
        Rule::outputs | Rule::onnx_outputs | Rule::arrow => &[Sign("->")],
        Rule::params | Rule::args | Rule::of | Rule::lparen | Rule::print_args => &[Sign("(")],
        Rule::rparen => &[Sign(")")],
        Rule::index | Rule::lbracket => &[Sign("[")],
        Rule::rbracket => &[Sign("]")],
        Rule::bar => &[Sign("|")],
        Rule::comma => &[Sign(",")],
        Rule::semicolon => &[Sign(";")],
        Rule::colon => &[Sign(":")],
        Rule::dots | Rule::range => &[Sign("..")],
        Rule::eq | Rule::body | Rule::reads => &[Sign("=")],
        Rule::one_way => &[Sign("=>")],
        Rule::both_ways => &[Sign("<=>")],
        Rule::op_trait => &[Clause("commutative"), Clause("associative"), Clause("unit")],
        Rule::kw_commutative => &[Clause("commutative")],
        Rule::kw_associative => &[Clause("associative")],
        Rule::kw_unit => &[Clause("unit")],
        Rule::where_clause | Rule::kw_where => &[Clause("where")],
        Rule::let_clause | Rule::kw_let => &[Clause("let")],
        Rule::if_clause | Rule::kw_if => &[Clause("if")],
        Rule::when_clause | Rule::kw_when => &[Clause("when")],
        Rule::given_clause | Rule::kw_given => &[Clause("given")],
        Rule::error_clause | Rule::kw_error => &[Clause("error")],
        Rule::check_clause | Rule::kw_check => &[Clause("check")],
        Rule::picks_clause | Rule::kw_picks => &[Clause("picks")],
        Rule::never_clause | Rule::kw_never => &[Clause("never")],
        Rule::on_clause | Rule::kw_on => &[Clause("on")],
        Rule::reference_clause | Rule::kw_reference => &[Clause("reference")],
        Rule::since_clause | Rule::kw_since => &[Clause("since")],
        Rule::until_clause | Rule::kw_until => &[Clause("until")],
        Rule::domain_clause | Rule::kw_in => &[Clause("in")],
        Rule::prints_clause | Rule::kw_prints => &[Clause("prints")],
        Rule::kernel | Rule::kw_kernel => &[Clause("kernel")],
        Rule::kw_covers => &[Clause("covers")],
        Rule::kw_epilogue => &[Clause("epilogue")],
        Rule::kw_cost => &[Clause("cost")],
        Rule::kw_as => &[Clause("as")],
        Rule::kw_at => &[Clause("at")],
        Rule::kw_else => &[Clause("else")],
        Rule::kw_or
        | Rule::kw_and
        | Rule::equal
        | Rule::unequal
        | Rule::lt
        | Rule::le
        | Rule::gt
        | Rule::ge
        | Rule::plus
        | Rule::times
        | Rule::over
        | Rule::remainder
        | Rule::matmul
        | Rule::power
        | Rule::domain => &[Operator],
        Rule::op | Rule::kw_op => &[Clause("op")],
        Rule::def | Rule::kw_def => &[Clause("def")],
        Rule::law | Rule::kw_rule => &[Clause("rule")],
        Rule::fuse | Rule::kw_fuse => &[Clause("fuse")],
        Rule::procedure | Rule::kw_extern => &[Clause("extern")],
        Rule::onnx | Rule::kw_onnx => &[Clause("onnx")],
        Rule::target | Rule::kw_target => &[Clause("target")],
        Rule::kw_each
        | Rule::const_mark
        | Rule::variadic_mark
        | Rule::optional_mark
        | Rule::outside
        | Rule::unit
        | Rule::reserved
        | Rule::WHITESPACE
        | Rule::COMMENT
        | Rule::law_clause
        | Rule::fuse_clause
        | Rule::onnx_clause
        | Rule::param_list
        | Rule::chain
        | Rule::operand
        | Rule::plain_chain
        | Rule::plain_operand
        | Rule::prefix
        | Rule::infix
        | Rule::atom
        | Rule::elems
        | Rule::word
        | Rule::exponent => &[],
    }
}
