//! Given laws as a fuzzing campaign is aimed at them: how their left sides are drawn, and what exploration with them alone finds.
//!
//! Never asks whether a law holds.

use crate::pipeline::{self, Options};
use crate::stdlib;
use mlc_dsl::ir::Program;
use mlc_dsl::library::{Law, LawOrigin, Library};
use mlc_dsl::pattern::is_normal;
use mlc_explore::{Explored, LawProfile, Sides, explore};
use mlc_fuzz::{Application, GivenLaw};
use mlc_verify::LeftSides;
use std::sync::Arc;

/// The laws of the user's texts.
pub struct GivenLaws<'l> {
    library: &'l Arc<Library>,
    options: &'l Options,
    /// Their places in the library, and why one may not fire.
    given: Vec<(usize, Option<String>)>,
    /// These and the laws of the normal form, which their patterns are rewritten by.
    few: Vec<u32>,
    /// All that may fire.
    all: Vec<u32>,
}

impl<'l> GivenLaws<'l> {
    /// Those of a library, as these options admit them.
    pub fn of(library: &'l Arc<Library>, options: &'l Options) -> GivenLaws<'l> {
        let own = |i: &usize| {
            let law = &library.laws[*i];
            // A name is unfolded while a program is read: no search meets it.
            law.source.file as usize >= stdlib::SHIPPED_TEXTS && law.origin != LawOrigin::Unfold
        };
        // Whatever the target can compute: the reference interpreter runs every operator.
        let admits = |law: &Law| {
            options.fp.admits(law.error) && !options.without.iter().any(|w| law.answers_to(w))
        };
        let off = |i: usize| {
            let why = || pipeline::why_off(library, options, i as u32);
            (!admits(&library.laws[i])).then(why)
        };
        let given: Vec<(usize, Option<String>)> =
            (0..library.laws.len()).filter(own).map(|i| (i, off(i))).collect();
        let admitted = |i: &u32| admits(&library.laws[*i as usize]);
        let all: Vec<u32> = (0..library.laws.len() as u32).filter(admitted).collect();
        let is_few = |i: &u32| {
            let law = &library.laws[*i as usize];
            is_normal(law) || given.iter().any(|(own, _)| *own == *i as usize)
        };
        let few = all.iter().copied().filter(is_few).collect();
        GivenLaws { library, options, given, few, all }
    }

    /// The laws as a campaign takes them.
    pub fn laws(&self) -> Vec<GivenLaw<'l>> {
        let told = self.given.iter().map(|(index, off)| {
            let law = &self.library.laws[*index];
            let left = LeftSides::of(self.library, law);
            GivenLaw {
                name: law.name.to_string(),
                index: *index,
                class: law.error,
                off: off.clone(),
                draw: Box::new(move |seed, broken| left.draw(broken, seed)),
            }
        });
        told.collect()
    }

    /// What exploration of a program with these laws finds; where it finds none of their left sides, what it finds with all laws,
    /// which bring forth other spellings.
    ///
    /// # Errors
    /// A side of an application does not type by itself.
    pub fn applications(&self, program: &Program) -> Result<mlc_fuzz::Explored, String> {
        let few = self.explored(program, &self.few)?;
        match few.applications.is_empty() {
            true => self.explored(program, &self.all),
            false => Ok(few),
        }
    }

    fn explored(&self, program: &Program, laws: &[u32]) -> Result<mlc_fuzz::Explored, String> {
        let limits = &self.options.limits;
        let explored = explore(self.library.clone(), program.clone(), laws, limits);
        let (mut steps, mut unmatched) = (Vec::new(), Vec::new());
        let active = self.given.iter().enumerate().filter(|(_, (_, off))| off.is_none());
        for (place, (index, _)) in active {
            let law = *index as u32;
            let own = explored.equations_of(law);
            if own.is_empty() {
                unmatched.extend(why_unmatched(&explored, law).map(|why| (place, why)));
            }
            steps.extend(own.into_iter().map(|s| (s, place)));
        }
        steps.sort_unstable();
        let application = |(step, law)| {
            let sides = explored.sides(&step).map_err(|e| format!("a side does not type: {e}"))?;
            let Sides { operands, left, right } = sides;
            Ok(Application { law, operands, left, right })
        };
        let applications = steps.into_iter().map(application).collect::<Result<_, String>>()?;
        Ok(mlc_fuzz::Explored { applications, unmatched })
    }
}

/// Why a law was not applied.
fn why_unmatched(explored: &Explored, law: u32) -> Option<String> {
    let (_, profile) = explored.profiles.iter().find(|(i, _)| *i == law)?;
    let LawProfile { matches, refusals, ill_typed, .. } = profile;
    if let Some((clause, _)) = refusals.iter().max_by_key(|(_, n)| **n) {
        return Some(format!("refused by `{clause}`"));
    }
    if ill_typed.0 > 0 {
        return Some(format!("the right side has no such type: {}", ill_typed.1));
    }
    if *matches > 0 {
        return Some("both sides were known to be equal".into());
    }
    let called = |c| explored.library().call(c).name.clone();
    let nearest = explored.nearest_matches(law, 1).into_iter().next()?;
    let (wants, has) = nearest.missing?;
    let has: Vec<String> = has.into_iter().map(|c| format!("`{}`", called(c))).collect();
    let has = if has.is_empty() { "an input or a constant".into() } else { has.join(", ") };
    Some(format!("the pattern wants `{}` where a program has {has}", called(wants)))
}
