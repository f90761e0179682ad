//! Turns parse errors of the grammar into readable messages.

use itertools::Itertools;
use pest::error::{Error, ErrorVariant, InputLocation};

use super::foreign::{self, Stopped};
use super::parse::Rule;
use super::scan::{ITEM_WORDS, OTHER_WORDS, Token, TokenKind, is_reserved};
use crate::diagnostics::suggestions::nearest;
use crate::diagnostics::{Code, Diag};
use crate::syntax::ast::Span;

/// Why an item could not be read.
pub(super) struct GrammarMismatch {
    pub diag: Diag,
    /// The token at which reading stopped; the number of tokens at the end.
    pub token: usize,
}

/// What could have stood where reading stopped, as a reader would say it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Expected {
    Term,
    Name,
    /// Something with a description of its own.
    Thing(&'static str),
    Text,
    Sign(&'static str),
    Clause(&'static str),
    NextItem,
    Operator,
}

/// The word that a slip of the hand made another.
pub(super) fn near<'w>(word: &str, words: &[&'w str]) -> Option<&'w str> {
    nearest(word, words.iter().copied()).into_iter().find(|w| *w != word)
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
) -> GrammarMismatch {
    let base = tokens.first().map_or(0, |token| token.span.start);
    let at = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => base + at as u32,
    };
    let index = tokens.partition_point(|token| token.span.end <= at);
    let end = tokens.last().map_or(base, |token| token.span.end);
    let stop = Stop { text, item: tokens.first(), token: tokens.get(index), at, end };
    if let Some(unit) = stop.unit(&tokens[..index]) {
        let found = &text[unit.range()];
        let diag = Diag::error(Code("S001"), format!("`{found}` is no part of a number"), unit)
            .help("figures have no units: operations and bytes per second, and seconds, such as `1e13` and `5e-6`");
        return GrammarMismatch { diag, token: index };
    }
    let positives = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.as_slice(),
        // No rule of the grammar makes messages of its own.
        ErrorVariant::CustomError { .. } => &[],
    };
    let expected = stop.relevant(positives);
    let diag = match open {
        Some(opening) => stop.unclosed(&expected, opening),
        None => stop.refuse(&expected),
    };
    GrammarMismatch { diag, token: index }
}

/// Where reading stopped.
struct Stop<'t> {
    text: &'t str,
    /// The word that opens the item.
    item: Option<&'t Token>,
    /// The token that does not fit, unless the item ends there.
    token: Option<&'t Token>,
    at: u32,
    /// The end of the item.
    end: u32,
}

impl Stop<'_> {
    fn place(&self) -> Span {
        self.token.map_or(Span { start: self.end, end: self.end }, |token| token.span)
    }

    fn found(&self) -> Option<&str> {
        self.token.map(|token| &self.text[token.span.range()])
    }

    /// A word behind a figure of a target, on its line or grown together with it: reading took it for the next figure's name.
    fn unit(&self, before: &[Token]) -> Option<Span> {
        let [.., number, word] = before else { return None };
        if self.item_word() != "target" {
            return None;
        }
        if word.kind == TokenKind::Number {
            let text = &self.text[word.span.range()];
            let end = (1..=text.len())
                .rev()
                .find(|end| text.is_char_boundary(*end) && text[..*end].parse::<f64>().is_ok())?;
            let start = word.span.start + u32::try_from(end).ok()?;
            return (end < text.len()).then_some(Span { start, ..word.span });
        }
        let unit = number.kind == TokenKind::Number && word.kind == TokenKind::Word && !word.first;
        unit.then_some(word.span)
    }

    fn item_word(&self) -> &str {
        self.item.map_or("", |token| &self.text[token.span.range()])
    }

    // What is worth saying of all that the grammar tried.
    fn relevant(&self, positives: &[Rule]) -> Vec<Expected> {
        let all: Vec<Expected> =
            positives.iter().flat_map(|rule| describe(*rule)).copied().sorted().dedup().collect();
        let has = |expected| all.contains(&expected);
        let (term, after_operand) = (has(Expected::Term), has(Expected::Operator));
        let body = positives.contains(&Rule::stands_for);
        let keep = |expected: &Expected| match expected {
            Expected::Name | Expected::Text => !term,
            Expected::Sign("(" | "[" | "|") => !term && !after_operand,
            Expected::Sign("=") => !after_operand || body,
            Expected::Sign("..") => !term && !has(Expected::Name),
            Expected::Sign(";") => self.item_word() == "onnx",
            Expected::Clause("if") => !after_operand || has(Expected::NextItem),
            Expected::Term
            | Expected::Thing(_)
            | Expected::Sign(_)
            | Expected::Clause(_)
            | Expected::NextItem => true,
            Expected::Operator => false,
        };
        let kept: Vec<Expected> = all.iter().filter(|e| keep(e)).copied().collect();
        let kept = if kept.is_empty() { all } else { kept };
        // Between clauses a name begins what the item consists of.
        let between = kept.contains(&Expected::NextItem);
        let thing = match self.item_word() {
            "op" if between => Expected::Thing("a meaning (`y[n] = …`)"),
            "target" if between => Expected::Thing("an entry (`flops = …`)"),
            _ => Expected::Name,
        };
        kept.into_iter().map(|e| if e == Expected::Name { thing } else { e }).sorted().collect()
    }

    fn unclosed(&self, expected: &[Expected], opening: Span) -> Diag {
        let bracket = &self.text[opening.range()];
        let label = if self.token.is_some() { "reading stops here" } else { "the item ends here" };
        let diag = Diag::error(Code("S002"), format!("this `{bracket}` is never closed"), opening)
            .also(self.place(), label);
        let close = expected.iter().find_map(|expected| match expected {
            Expected::Sign(sign @ (")" | "]")) => Some(*sign),
            _ => None,
        });
        match close.zip(self.found()) {
            Some((close, found)) => {
                diag.help(format!("a `{close}` before `{found}` is likely missing"))
            }
            None => diag,
        }
    }

    fn refuse(&self, expected: &[Expected]) -> Diag {
        let place = self.place();
        let wanted = sentence(expected);
        let Some((found, token)) = self.found().zip(self.token) else {
            let message = format!("expected {wanted}, found the end of the item");
            return Diag::error(Code("S001"), message, place);
        };
        if token.kind == TokenKind::Number && self.at > token.span.start {
            let diag = Diag::error(Code("S001"), format!("`{found}` is not a number"), place);
            return diag.help("names begin with a letter; a product is written `2 * x`");
        }
        if token.kind == TokenKind::Word
            && is_reserved(found)
            && !token.first
            && expected.contains(&Expected::Name)
        {
            let message = format!("`{found}` is a reserved word and cannot be a name");
            return Diag::error(Code("S009"), message, place)
                .here(format!("expected {wanted}"))
                .help(format!("choose another name, such as `{found}_`"));
        }
        let diag = Diag::error(Code("S001"), format!("expected {wanted}, found `{found}`"), place);
        match self.advice(expected, found, token.kind == TokenKind::Word) {
            Some(help) => diag.help(help),
            None => diag,
        }
    }

    fn advice(&self, expected: &[Expected], found: &str, is_word: bool) -> Option<String> {
        let next_item = expected.contains(&Expected::NextItem);
        if is_word && is_reserved(found) {
            return if expected.contains(&Expected::Sign("=>")) {
                Some("the sides of a rule are joined by `=>` or `<=>`".into())
            } else if expected.contains(&Expected::Term) {
                Some(format!("`{found}` is a reserved word, not a name"))
            } else if next_item {
                Some(format!("`{found}` is not a clause of `{}` items", self.item_word()))
            } else {
                None
            };
        }
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
            let typed = expected.contains(&Expected::Sign(":"))
                && self.token.is_some_and(|token| !token.first);
            if typed {
                return Some(format!("a type follows a colon: `: {found}`"));
            }
        }
        let help = match found {
            "=" if next_item || expected.contains(&Expected::Clause("if")) => {
                "equality is tested by `==`"
            }
            "!" => "negation is written `not`",
            _ => self.foreign(expected, found)?,
        };
        Some(help.to_string())
    }

    fn foreign(&self, expected: &[Expected], found: &str) -> Option<&'static str> {
        let (item, token) = (self.item?.span, self.token?.span);
        let before = &self.text[item.start as usize..token.start as usize];
        let typed = before.rsplit_once('(').is_some_and(|(head, _)| {
            let word = head.rsplit(|c: char| !c.is_ascii_alphanumeric()).next();
            word.is_some_and(|w| w.parse::<crate::ir::DType>().is_ok() || w == "F")
        });
        foreign::hint(&Stopped {
            before,
            typed,
            found,
            behind: &self.text[token.end as usize..],
            item: self.item_word(),
            term: expected.contains(&Expected::Term),
            joins: expected.contains(&Expected::Sign("=>")),
        })
    }
}

// "`,`, a clause (`given`, `if`) or the next item".
fn sentence(expected: &[Expected]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut clauses: Vec<&str> = Vec::new();
    let mut last = None;
    for e in expected {
        match e {
            Expected::Term => parts.push("an expression".into()),
            Expected::Name => parts.push("a name".into()),
            Expected::Thing(thing) => parts.push((*thing).into()),
            Expected::Text => parts.push("a string".into()),
            Expected::Sign(sign) => parts.push(format!("`{sign}`")),
            Expected::Clause(word) => clauses.push(word),
            Expected::NextItem => last = Some("the next item"),
            Expected::Operator => last = Some("an operator"),
        }
    }
    clauses.sort_by_key(|word| OTHER_WORDS.iter().position(|other| other == word));
    let clauses = clauses.iter().map(|word| format!("`{word}`")).collect_vec();
    match clauses.as_slice() {
        [] => {}
        [one] => parts.push(one.clone()),
        many => parts.push(format!("a clause ({})", many.join(", "))),
    }
    parts.extend(last.map(String::from));
    match parts.split_last() {
        None => "something else".into(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

fn describe(rule: Rule) -> &'static [Expected] {
    use Expected::{Clause, Name, NextItem, Operator, Sign, Term, Text, Thing};
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
        | Rule::truth
        | Rule::size
        | Rule::list
        | Rule::group
        | Rule::reference
        | Rule::term_start
        | Rule::monoid => &[Term],
        Rule::int => &[Term],
        Rule::string => &[Text],
        Rule::version => &[Thing("a version number")],
        Rule::amount => &[Thing("a number")],
        Rule::class => &[Thing("an error class (`exact`, `reorder`, `approx`)")],
        Rule::type_ | Rule::type_name => &[Thing("a type")],
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
        | Rule::class_cost
        | Rule::meaning
        | Rule::output => &[Name],
        Rule::outputs | Rule::onnx_outputs | Rule::print_result | Rule::arrow => &[Sign("->")],
        Rule::params | Rule::args | Rule::of | Rule::lparen | Rule::print_args => &[Sign("(")],
        Rule::rparen => &[Sign(")")],
        Rule::index | Rule::lbracket => &[Sign("[")],
        Rule::rbracket => &[Sign("]")],
        Rule::bar => &[Sign("|")],
        Rule::comma => &[Sign(",")],
        Rule::semicolon => &[Sign(";")],
        Rule::colon => &[Sign(":")],
        Rule::dots | Rule::range => &[Sign("..")],
        Rule::eq | Rule::stands_for | Rule::body | Rule::reads => &[Sign("=")],
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
        Rule::on_clause | Rule::devices | Rule::kw_on => &[Clause("on")],
        Rule::reference_clause | Rule::kw_reference => &[Clause("reference")],
        Rule::since_clause | Rule::kw_since => &[Clause("since")],
        Rule::until_clause | Rule::kw_until => &[Clause("until")],
        Rule::opaque_clause | Rule::kw_opaque => &[Clause("opaque")],
        Rule::domain_clause | Rule::kw_in => &[Clause("in")],
        Rule::prints_clause | Rule::kw_prints => &[Clause("prints")],
        Rule::kernel | Rule::kw_kernel => &[Clause("kernel")],
        Rule::covers | Rule::kw_covers => &[Clause("covers")],
        Rule::element_types | Rule::kw_of => &[Clause("of")],
        Rule::epilogue | Rule::kw_epilogue => &[Clause("epilogue")],
        Rule::layout => &[Clause("in")],
        Rule::kw_cost => &[Clause("cost")],
        Rule::kw_takes => &[Clause("takes")],
        Rule::extends | Rule::kw_extends => &[Clause("extends")],
        Rule::kw_as => &[Clause("as")],
        Rule::kw_at => &[Clause("at")],
        Rule::kw_else => &[Clause("else")],
        Rule::infix | Rule::ge | Rule::gt | Rule::le | Rule::lt | Rule::domain => &[Operator],
        Rule::op | Rule::kw_op => &[Clause("op")],
        Rule::def | Rule::kw_def => &[Clause("def")],
        Rule::law | Rule::kw_rule => &[Clause("rule")],
        Rule::fuse | Rule::kw_fuse => &[Clause("fuse")],
        Rule::procedure | Rule::kw_extern => &[Clause("extern")],
        Rule::onnx | Rule::kw_onnx => &[Clause("onnx")],
        Rule::target | Rule::kw_target => &[Clause("target")],
        Rule::architecture | Rule::kw_architecture => &[Clause("architecture")],
        Rule::stored_clause | Rule::read_from => &[Clause("of")],
        Rule::steps => &[Clause("let")],
        Rule::step => &[Name, Text],
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
        | Rule::atom
        | Rule::elems
        | Rule::word
        | Rule::exponent => &[],
    }
}
