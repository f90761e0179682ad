//! A campaign that is aimed at given laws: programs are built around their left sides, and every application that exploration finds is
//! held side against side, whether or not extraction would choose the right one.
//!
//! Trusts no verdict on the laws, and knows neither how they are searched nor how left sides are drawn: both are passed in.

use crate::aimed::{AimedProgram, DrawLeft};
use crate::campaign::REFUSED;
use crate::generate::Generator;
use crate::input_values::{Style, inputs, tame};
use crate::oracle::{Finding, Stage, Subject, guarded};
use crate::shrink::FailingProgram;
use crate::sides::{Application, hold_runs, hold_sides};
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::{ErrorClass, Library};
use std::collections::BTreeMap;

/// A law that is aimed at.
pub struct GivenLaw<'a> {
    /// Its name.
    pub name: String,
    /// Its place in the library.
    pub index: usize,
    /// What it promises.
    pub class: ErrorClass,
    /// Why it may not fire, if it may not: then nothing is built around it.
    pub off: Option<String>,
    /// Draws its left sides.
    pub draw: Box<DrawLeft<'a>>,
}

/// What exploration finds of the given laws.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// Applications, in the order in which they were found.
    pub applications: Vec<Application>,
    /// Laws that were not applied, by place, and why not, where that is known.
    pub unmatched: Vec<(usize, String)>,
}

/// An optimised program, and the names of the laws in the proof that it rests on.
pub type Proven = (Program, Vec<String>);

/// The laws that a campaign is aimed at.
pub struct Aim<'a> {
    /// The laws.
    pub laws: Vec<GivenLaw<'a>>,
    /// Explores a program with them.
    pub explore: &'a dyn Fn(&Program) -> Result<Explored, String>,
    /// Optimises a program with all laws.
    pub optimise: &'a dyn Fn(&Program) -> Result<Proven, String>,
}

/// What became of a law.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct LawTally {
    /// Its name.
    pub law: String,
    /// Left sides that were built.
    pub built: u64,
    /// Near misses that were built.
    pub near: u64,
    /// Programs in which it was applied.
    pub fired: u64,
    /// Results that rest on it.
    pub chosen: u64,
    /// Why it was never applied, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What is counted of the laws during a campaign.
#[derive(Default)]
pub(crate) struct Counts {
    laws: Vec<LawTally>,
    /// Per law: how often each reason kept it from being applied.
    reasons: Vec<BTreeMap<String, u64>>,
}

/// A failure of a law, or of the backend on one of its sides.
pub(crate) struct Broken {
    /// The law, by place.
    pub law: usize,
    /// The program that shows it.
    pub program: Program,
    /// What is wrong.
    pub finding: Finding,
}

/// One program in so many is built around no law.
const RANDOM: u64 = 4;

/// Applications of each law that are held in one program, and those that are run on the backend, too.
const HELD: usize = 16;
const RUN: usize = 2;

impl Aim<'_> {
    /// The laws that may fire, by place.
    fn active(&self) -> Vec<usize> {
        (0..self.laws.len()).filter(|&i| self.laws[i].off.is_none()).collect()
    }

    pub(crate) fn counts(&self) -> Counts {
        let tally = |l: &GivenLaw<'_>| LawTally { law: l.name.clone(), ..LawTally::default() };
        Counts {
            laws: self.laws.iter().map(tally).collect(),
            reasons: vec![BTreeMap::new(); self.laws.len()],
        }
    }

    /// The program of a seed: each law in turn, and some random ones.
    pub(crate) fn program(
        &self,
        generator: &Generator<'_>,
        seed: u64,
        counts: &mut Counts,
    ) -> Program {
        let active = self.active();
        let laws = active.len() as u64;
        if laws == 0 || seed / laws % RANDOM == RANDOM - 1 {
            return generator.program(seed);
        }
        let at = active[(seed % laws) as usize];
        let law = &self.laws[at];
        let AimedProgram { program, built, near, refused } =
            generator.aimed(law.index, &*law.draw, seed);
        counts.laws[at].built += built as u64;
        counts.laws[at].near += near as u64;
        if let Some(why) = refused {
            *counts.reasons[at].entry(format!("no left side is found: {why}")).or_default() += 1;
        }
        program
    }

    /// Explores a program with the given laws, and holds the sides of what they were applied to against each other; the first
    /// that fails.
    pub(crate) fn hold(
        &self,
        subject: &Subject<'_>,
        program: &Program,
        seed: u64,
        counts: &mut Counts,
    ) -> Option<Broken> {
        let explored = match guarded(|| (self.explore)(program)) {
            Ok(e) => e,
            Err(message) => return self.unexplored(program, message, seed),
        };
        let mut fired = vec![0usize; self.laws.len()];
        explored.applications.iter().for_each(|a| fired[a.law] += 1);
        for (tally, n) in counts.laws.iter_mut().zip(&fired) {
            tally.fired += u64::from(*n > 0);
        }
        for (at, why) in explored.unmatched {
            *counts.reasons[at].entry(why).or_default() += 1;
        }
        let runs = runs(subject.library, program, &Style::OF_LAWS, seed);
        let mut held = vec![0usize; self.laws.len()];
        for a in &explored.applications {
            held[a.law] += 1;
            if held[a.law] > HELD {
                continue;
            }
            let failed = self.sides_fail(subject.library, a, &runs);
            if let Some((style, inputs, message)) = failed {
                let finding = Finding { stage: Stage::Law, message, style, inputs };
                return Some(Broken { law: a.law, program: program.clone(), finding });
            }
            if held[a.law] <= RUN
                && let Some(broken) = backend_fails(subject, a, &runs)
            {
                return Some(broken);
            }
        }
        None
    }

    /// Exploring itself failed.
    fn unexplored(&self, program: &Program, message: String, seed: u64) -> Option<Broken> {
        let style = Style::Normal;
        let inputs = inputs(program, style, seed)?;
        let finding = Finding { stage: Stage::Optimise, message, style, inputs };
        Some(Broken { law: 0, program: program.clone(), finding })
    }

    /// The first run on which the sides of an application differ.
    fn sides_fail(
        &self,
        library: &Library,
        a: &Application,
        runs: &[(Style, Vec<Tensor>)],
    ) -> Option<(Style, Vec<Tensor>, String)> {
        let class = self.laws[a.law].class;
        runs.iter().find_map(|(style, inputs)| {
            let values = a.values(library, inputs)?;
            let message = hold_sides(library, a, class, *style, &values).err()?;
            Some((*style, inputs.clone(), format!("its right side is another value: {message}")))
        })
    }

    /// How an application of a law fails in a program, if one does.
    pub(crate) fn fails(
        &self,
        library: &Library,
        law: usize,
        case: &FailingProgram,
        style: Style,
    ) -> Option<String> {
        let explored = guarded(|| (self.explore)(&case.program)).ok()?;
        let runs = [(style, case.inputs.clone())];
        let own = explored.applications.iter().filter(|a| a.law == law);
        own.into_iter().find_map(|a| Some(self.sides_fail(library, a, &runs)?.2))
    }
}

impl Counts {
    /// Counts the given laws that a result rests on.
    pub(crate) fn rests_on(&mut self, proof: &[String]) {
        for tally in &mut self.laws {
            tally.chosen += u64::from(proof.contains(&tally.law));
        }
    }

    /// What became of the laws.
    pub(crate) fn told(self, aim: &Aim<'_>) -> Vec<LawTally> {
        let told = self.laws.into_iter().zip(self.reasons).zip(&aim.laws);
        told.map(|((mut tally, reasons), law)| {
            if tally.fired == 0 {
                let most = reasons.into_iter().max_by_key(|(_, n)| *n).map(|(why, _)| why);
                tally.why = law.off.clone().or(most);
            }
            tally
        })
        .collect()
    }
}

/// Inputs of these styles on which a program runs.
fn runs(
    library: &Library,
    program: &Program,
    styles: &[Style],
    seed: u64,
) -> Vec<(Style, Vec<Tensor>)> {
    let runs = |values: &Vec<Tensor>| {
        mlc_backends::reference::run_values(program, library, values).is_ok()
    };
    let found = styles.iter().filter_map(|&style| {
        let first = inputs(program, style, seed)?;
        let calm = tame(&first);
        [first, calm].into_iter().find(runs).map(|values| (style, values))
    });
    found.collect()
}

/// A side that the backend computes wrongly.
fn backend_fails(
    subject: &Subject<'_>,
    a: &Application,
    runs: &[(Style, Vec<Tensor>)],
) -> Option<Broken> {
    let (style, inputs) = runs.first()?;
    let values = a.values(subject.library, inputs)?;
    let (side, message) = hold_runs(subject, a, *style, &values).err()?;
    if message.starts_with(REFUSED) {
        return None;
    }
    let finding = Finding { stage: Stage::Backend, message, style: *style, inputs: values };
    Some(Broken { law: a.law, program: side.clone(), finding })
}
