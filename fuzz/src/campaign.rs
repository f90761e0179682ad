//! A fuzzing campaign: generates cases until the budget is spent, shrinks failures and finds the laws to blame.

use crate::aim::{Aim, Broken, LawTally};
use crate::generate::{Generator, Size};
use crate::input_values::Style;
use crate::oracle::{Finding, Stage, Subject, Verdict, examine, guarded, hold};
use crate::shrink::{FailingProgram, blame, operators, shrink};
use mlc_backends::reference::run_values;
use mlc_dsl::ir::{NodeKind, Program, Tensor};
use mlc_dsl::random::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// When a campaign ends; whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Most cases.
    pub cases: Option<u64>,
    /// Most time.
    pub time: Option<Duration>,
    /// Most different failures.
    pub failures: usize,
}

/// Optimises a program with laws of these names turned off.
pub type Without<'a> = dyn Fn(&Program, &[String]) -> Result<Program, String> + 'a;

/// What a law search needs: the laws that fired on a program, and optimising without some.
#[derive(Clone, Copy)]
pub struct Blame<'a> {
    /// Names of the laws that fired.
    pub fired: &'a dyn Fn(&Program) -> Result<Vec<String>, String>,
    /// Optimises without these laws.
    pub without: &'a Without<'a>,
}

/// One campaign.
pub struct Campaign<'a> {
    /// What is tested.
    pub subject: Subject<'a>,
    /// Finds the law to blame, if given.
    pub blame: Option<Blame<'a>>,
    /// The laws that it is aimed at, if it is.
    pub aim: Option<Aim<'a>>,
    /// A program as text.
    pub print: &'a dyn Fn(&Program) -> String,
    /// When it ends.
    pub budget: Budget,
    /// Seed of the first case; those after it count up.
    pub seed: u64,
    /// Size of the programs.
    pub size: Size,
}

/// A shrunk failure.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Failure {
    /// Seed of the program it was found with.
    pub seed: u64,
    /// Which step went wrong.
    pub stage: Stage,
    /// What is wrong, with the place and both values.
    pub message: String,
    /// The shrunk program as text.
    pub program: String,
    /// Its operators.
    pub operators: usize,
    /// What the inputs are like.
    pub style: Style,
    /// The input tensors as text.
    pub inputs: Vec<String>,
    /// Laws to blame.
    pub laws: Vec<String>,
    /// Laws in the proof that a wrong result rests on, where the campaign is aimed at laws.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proof: Vec<String>,
    /// Cases that failed alike.
    pub count: usize,
}

/// What a campaign did.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Programs.
    pub cases: u64,
    /// Inputs on which all runs agreed.
    pub agreed: u64,
    /// Programs that the reference interpreter could not run or that the backend refuses, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Operators of all programs together.
    pub operators: u64,
    /// Seconds.
    pub seconds: f64,
    /// Failures, each kind once.
    pub failures: Vec<Failure>,
    /// What became of the laws that the campaign is aimed at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub laws: Vec<LawTally>,
}

/// How the message of a run begins that a backend refuses because it does not compute such programs: none of its faults.
pub const REFUSED: &str = "the backend does not compute this";

/// Failures by what makes them the same as another.
#[derive(Default)]
struct Kinds {
    known: BTreeMap<String, usize>,
}

impl Kinds {
    /// Counts a failure, or adds it if it is new.
    fn add(&mut self, key: String, failures: &mut Vec<Failure>, new: impl FnOnce() -> Failure) {
        match self.known.get(&key) {
            Some(&at) => failures[at].count += 1,
            None => {
                self.known.insert(key, failures.len());
                failures.push(new());
            }
        }
    }
}

impl Campaign<'_> {
    /// Runs it; `progress` hears of every finished case.
    pub fn run(&self, progress: &dyn Fn(u64)) -> Summary {
        let start = Instant::now();
        let generator = Generator::new(self.subject.library).sized(self.size);
        let mut out = Summary::default();
        let mut kinds = Kinds::default();
        let mut counts = self.aim.as_ref().map(Aim::counts);
        loop {
            let seed = self.seed.wrapping_add(out.cases);
            let over = self.budget.cases.is_some_and(|n| out.cases >= n)
                || self.budget.time.is_some_and(|t| start.elapsed() >= t)
                || out.failures.len() >= self.budget.failures;
            if over {
                break;
            }
            out.cases += 1;
            let aim = self.aim.as_ref().zip(counts.as_mut());
            let (program, broken) = match aim {
                None => (generator.program(seed), None),
                Some((aim, counts)) => {
                    let program = aim.program(&generator, seed, counts);
                    let broken = aim.hold(&self.subject, &program, seed, counts);
                    (program, broken)
                }
            };
            out.operators += operators(&program) as u64;
            match broken {
                // What a wrong law makes of the whole program tells nothing more.
                Some(broken) => self.add_broken(seed, broken, &mut kinds, &mut out.failures),
                None => {
                    let proof = self.examine(seed, &program, &mut kinds, &mut out);
                    counts.iter_mut().for_each(|c| c.rests_on(&proof));
                }
            }
            progress(out.cases);
        }
        out.seconds = start.elapsed().as_secs_f64();
        out.laws = match (&self.aim, counts) {
            (Some(aim), Some(counts)) => counts.told(aim),
            _ => vec![],
        };
        out
    }

    /// Optimises a program and compares all ways of running it; the laws in the proof of the result, where the campaign is aimed at laws.
    fn examine(
        &self,
        seed: u64,
        program: &Program,
        kinds: &mut Kinds,
        out: &mut Summary,
    ) -> Vec<String> {
        let proof = RefCell::new(vec![]);
        let proven = |p: &Program| match &self.aim {
            None => (self.subject.optimise)(p),
            Some(aim) => {
                let (program, laws) = (aim.optimise)(p)?;
                *proof.borrow_mut() = laws;
                Ok(program)
            }
        };
        let subject = Subject { optimise: &proven, ..self.subject };
        match examine(&subject, program, &styles(seed), seed) {
            Verdict::Agrees(n) => out.agreed += n as u64,
            Verdict::Skipped(why) => {
                let why = why.split(':').next().unwrap_or_default().to_string();
                *out.skipped.entry(why).or_default() += 1;
            }
            Verdict::Differs(f) if f.message.starts_with(REFUSED) => {
                *out.skipped.entry(REFUSED.into()).or_default() += 1;
            }
            Verdict::Differs(f) => {
                let (key, failure) = self.failure(seed, program, *f);
                kinds.add(key, &mut out.failures, || failure);
            }
        }
        proof.into_inner()
    }

    /// Notes a failure of a given law, or of the backend on one of its sides. Of each law one is enough.
    fn add_broken(
        &self,
        seed: u64,
        broken: Broken,
        kinds: &mut Kinds,
        failures: &mut Vec<Failure>,
    ) {
        let Broken { law, program, finding } = broken;
        let Some(aim) = self.aim.as_ref().filter(|_| finding.stage == Stage::Law) else {
            let (key, failure) = self.failure(seed, &program, finding);
            return kinds.add(key, failures, || failure);
        };
        let (name, style) = (aim.laws[law].name.clone(), finding.style);
        kinds.add(format!("law {name}"), failures, || {
            let fails = |c: &FailingProgram| aim.fails(self.subject.library, law, c, style);
            let proof = vec![name.clone()];
            Failure { laws: vec![name], proof, ..self.shrunk(seed, &program, finding, &fails).1 }
        });
    }

    /// A finding shrunk and blamed, with what makes it the same as another.
    fn failure(&self, seed: u64, program: &Program, finding: Finding) -> (String, Failure) {
        let (stage, style) = (finding.stage, finding.style);
        let fails = |c: &FailingProgram| {
            failing(&self.subject, c, style).filter(|(s, _)| *s == stage).map(|(_, m)| m)
        };
        let (case, mut failure) = self.shrunk(seed, program, finding, &fails);
        if let Some(b) = self.blame.filter(|_| stage != Stage::Backend) {
            let fired = guarded(|| (b.fired)(&case.program)).unwrap_or_default();
            failure.laws = blame(&fired, &|off| {
                let optimise = |p: &Program| (b.without)(p, off);
                let subject = Subject { optimise: &optimise, ..self.subject };
                failing(&subject, &case, style).is_some()
            });
        }
        if let Some(aim) = self.aim.as_ref().filter(|_| stage != Stage::Backend) {
            let proven = guarded(|| (aim.optimise)(&case.program));
            failure.proof = proven.map(|(_, laws)| laws).unwrap_or_default();
        }
        let laws = &failure.laws;
        let names = if laws.is_empty() { self.names(&case) } else { String::new() };
        (format!("{stage:?} {laws:?} {names}"), failure)
    }

    /// A failure whose program is as small as one is found that fails, too.
    fn shrunk(
        &self,
        seed: u64,
        program: &Program,
        finding: Finding,
        fails: &dyn Fn(&FailingProgram) -> Option<String>,
    ) -> (FailingProgram, Failure) {
        let Finding { stage, style, message, inputs } = finding;
        let case = FailingProgram { program: program.clone(), inputs };
        let case = shrink(case, self.subject.library, 150, &|c| fails(c).is_some());
        let message = fails(&case).unwrap_or(message);
        let named = case.program.inputs.iter().zip(&case.inputs);
        let failure = Failure {
            seed,
            stage,
            message,
            program: (self.print)(&case.program),
            operators: operators(&case.program),
            style,
            inputs: named.map(|((n, _), t)| show(n, t)).collect(),
            laws: vec![],
            proof: vec![],
            count: 1,
        };
        (case, failure)
    }
    /// The operators of a program, sorted.
    fn names(&self, case: &FailingProgram) -> String {
        let mut names: Vec<&str> = case
            .program
            .nodes
            .iter()
            .filter_map(|n| match &n.kind {
                NodeKind::Apply(c, _) => Some(&*self.subject.library.call(*c).name),
                NodeKind::Input(_) | NodeKind::Const(_) => None,
            })
            .collect();
        names.sort_unstable();
        names.join(" ")
    }
}

/// Which step of a case fails, and how. A program that the reference interpreter cannot run does not fail.
pub fn failing(subject: &Subject, case: &FailingProgram, style: Style) -> Option<(Stage, String)> {
    run_values(&case.program, subject.library, &case.inputs).ok()?;
    match guarded(|| (subject.optimise)(&case.program)) {
        Err(e) => Some((Stage::Optimise, e)),
        Ok(p) => hold(subject, &case.program, &p, style, &case.inputs).err(),
    }
}

/// Two styles per case, so that all occur equally often.
fn styles(seed: u64) -> [Style; 2] {
    let mut rng = Random::new(seed ^ 0x57f1e);
    let first = rng.below(Style::ALL.len());
    let second = (first + 1 + rng.below(Style::ALL.len() - 1)) % Style::ALL.len();
    [Style::ALL[first], Style::ALL[second]]
}

fn show(name: &str, t: &Tensor) -> String {
    let values = t.to_f64();
    let shown: Vec<String> = values.iter().take(64).map(|v| format!("{v:?}")).collect();
    let more = if values.len() > 64 { ", …" } else { "" };
    format!("{name}: {}{:?} = [{}{more}]", t.dtype(), t.shape(), shown.join(", "))
}
