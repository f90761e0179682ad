//! Which inputs a check draws: the user's, seeded ones of several styles, and seeded ones at several sets of extents.
//!
//! Nothing runs here: whether the model runs on a set, its run decides.

use super::budget::RunBudget;
use super::report::InputSet;
use super::report::InputSetReport;
use super::{CHECKED, Check, INTERPRETED};
use crate::pipeline::options::Fp;
use mlc_dsl::ir::Program;
use mlc_dsl::plan::Plan;
use mlc_verify::random_inputs::{self, Style, Symbols};
use std::collections::{BTreeMap, BTreeSet};

/// Operations that all sets of extents may take together.
const AT_EXTENTS: f64 = 4e9;
/// What a node of a program costs at a new set of extents, in operations: kernels are resolved for them.
const OF_NODE: f64 = 2e5;
/// Infinities and NaN flood a larger program, and tell nothing of its results.
const FLOODED: f64 = 2e8;

/// What a check runs on.
pub(super) struct Drawn {
    pub sets: Vec<InputSet>,
    /// Names of what does not fit.
    pub left_out: Vec<String>,
    /// Sets of extents at which the model itself is not valid.
    pub refused: Vec<InputSetReport>,
}

impl Check<'_> {
    /// The user's inputs and the seeded ones that the program's size allows, and what is left out.
    pub(super) fn sets(&self, source: &Program, work: f64, room: &RunBudget) -> Drawn {
        let given = self.guard.given.iter().enumerate().map(|(i, inputs)| InputSet {
            name: format!("given inputs {i}"),
            style: None,
            inputs: inputs.clone(),
            extents: BTreeMap::new(),
            work,
        });
        let mut sets: Vec<InputSet> = given.collect();
        let mut left_out = Vec::new();
        let mut spent = 0.0;
        for style in random_inputs::styles(source, self.library) {
            if !self.styles.contains(&style) {
                continue;
            }
            let is_first = style == Style::Ordinary;
            // Whether integers of any size mean anything, only the reference interpreter can tell.
            let interpreted = style != Style::Integers || work * sets.len() as f64 <= INTERPRETED;
            // Laws of class `approx` differ from what they replace on extreme values: that is what is asked for.
            let is_asked = self.fp == Fp::Approx;
            let is_full = room.sets <= sets.len();
            let is_long = spent + 2.0 * work + room.drawn > CHECKED;
            // They would reach every element, and nothing would be compared.
            if style == Style::NotFinite && work > FLOODED {
                continue;
            }
            if is_full || !is_first && (is_long || !interpreted || is_asked) {
                left_out.push(style.name().to_string());
                continue;
            }
            if !is_first {
                spent += 2.0 * work + room.drawn;
            }
            match random_inputs::styled(source, self.library, style, self.seed, &room.symbols) {
                Some(inputs) => {
                    let (name, style) = (style.name().into(), Some(style));
                    sets.push(InputSet { name, style, inputs, extents: BTreeMap::new(), work });
                }
                None => left_out.push(style.name().to_string()),
            }
        }
        Drawn { sets, left_out, refused: vec![] }
    }

    /// Adds ordinary inputs at other extents, as far as memory and time permit.
    pub(super) fn add_extents(&self, drawn: &mut Drawn, plans: (&Plan, &Plan), room: &RunBudget) {
        let source = &plans.0.program;
        if room.symbols.is_empty() || !self.styles.contains(&Style::Ordinary) {
            return;
        }
        let nodes = (source.nodes.len() + plans.1.program.nodes.len()) as f64;
        let (mut spent, mut bytes) = (0.0, room.set.saturating_mul(drawn.sets.len() as u64));
        let mut seen: Vec<Symbols> = vec![room.symbols.clone()];
        for mut set in random_inputs::extent_sets(source, &self.guard.bounds, &room.symbols) {
            set.symbols = random_inputs::related(&set.symbols, &room.relations);
            let Some(symbols) = random_inputs::fitting(source, self.library, &set) else {
                let why = random_inputs::unmet(source, self.library, &set.symbols);
                let why = why.map_or_else(String::new, |e| e.to_string());
                let set = at(&set.symbols, vec![], 0.0);
                drawn.refused.push(InputSetReport::unused(&set, why));
                continue;
            };
            if seen.contains(&symbols) {
                continue;
            }
            seen.push(symbols.clone());
            let Ok(here) = self.room_at(plans.0, plans.1, symbols.clone()) else {
                drawn.left_out.push(named(&symbols));
                continue;
            };
            let cost = here.operations + OF_NODE * nodes;
            bytes = bytes.saturating_add(here.set);
            if spent + cost > AT_EXTENTS || bytes > here.limit / 2 {
                drawn.left_out.push(named(&symbols));
                continue;
            }
            let style = Style::Ordinary;
            let inputs = random_inputs::styled(source, self.library, style, self.seed, &symbols);
            let Some(inputs) = inputs else { continue };
            spent += cost;
            drawn.sets.push(at(&symbols, inputs, here.source));
        }
    }
}

/// Ordinary inputs at a set of extents.
fn at(symbols: &Symbols, inputs: Vec<mlc_dsl::ir::Tensor>, work: f64) -> InputSet {
    let extents: BTreeMap<String, i64> = symbols.iter().map(|(s, &n)| (s.clone(), n)).collect();
    let name = format!("{}, {}", Style::Ordinary.name(), named(symbols));
    InputSet { name, style: Some(Style::Ordinary), inputs, extents, work }
}

/// A set of extents in words: `batch=0, seq=7`.
pub(crate) fn named(symbols: &Symbols) -> String {
    let names: BTreeSet<(&String, &i64)> = symbols.iter().collect();
    let all: Vec<String> = names.iter().map(|(s, n)| format!("{s}={n}")).collect();
    all.join(", ")
}
