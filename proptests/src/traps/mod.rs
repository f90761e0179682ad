//! Traps: small ONNX graphs that resemble a layer or an identity, but differ.
//!
//! Each says what distinguishes it. Optimisation must not change any value, shape or NaN; nothing
//! here says what the result looks like.

pub mod export;
pub mod run;
pub mod text;
mod values;

use crate::filetests;
use mlc_rewrite::pipeline::Options;

/// Options of the pipeline as users have them, but for the self-check, which would turn a wrong law off.
pub fn trap_options() -> Options {
    Options { self_check: false, ..crate::checked_options() }
}

/// How a trap must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ends {
    /// With the reference interpreter's values of the graph as read.
    Equal,
    /// The same, but where infinities meet or a pole is hit: there laws of the class `reorder` may yield the limit
    /// where the graph as read yields NaN, or NaN where it is infinite.
    Limit,
    /// With an error that has these words.
    Refused(String),
}

/// A graph that is nearly something else.
#[derive(Clone, Debug)]
pub struct Trap {
    /// Its name, unique.
    pub name: String,
    /// What sets it apart.
    pub why: String,
    /// The graph; see [`text`].
    pub text: String,
    /// How it must end.
    pub ends: Ends,
}

/// Traps of one kind.
#[derive(Clone, Debug)]
pub struct Family {
    /// What the command line and the table call it.
    pub name: String,
    /// In the order of the table.
    pub traps: Vec<Trap>,
}

/// Every family: the files of `tests/filetests/traps`. A case whose values may differ where infinities meet begins with `ends at a limit`,
/// one that must not be read with `ends refused:` and words of the error.
pub fn families() -> Vec<Family> {
    let family = |f: filetests::CaseFile| Family {
        name: f.name,
        traps: f.cases.into_iter().map(Trap::of).collect(),
    };
    filetests::files("traps").into_iter().map(family).collect()
}

impl Trap {
    fn of(case: filetests::Case) -> Trap {
        let filetests::Case { name, why, text, .. } = case;
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let ends = match first.strip_prefix("ends ") {
            Some("at a limit") => Ends::Limit,
            Some(refused) => match refused.strip_prefix("refused: ") {
                Some(words) => Ends::Refused(words.into()),
                None => panic!("{name}: it ends neither at a limit nor refused: {refused}"),
            },
            None => return Trap { name, why, text, ends: Ends::Equal },
        };
        Trap { name, why, text: rest.into(), ends }
    }
}
