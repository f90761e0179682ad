//! A comparison of two models as text.

use super::{Answer, ChangedConstant, Comparison, DifferingRegion, RegionSide};
use mlc_dsl::shown;
use std::fmt::Write;

/// Names that are printed of one kind, unless all are asked for.
const SHOWN: usize = 6;

impl Comparison {
    /// For people; `all` leaves nothing out.
    pub fn human(&self, all: bool) -> String {
        let most = if all { usize::MAX } else { SHOWN };
        let mut out = self.headline() + "\n";
        let _ = writeln!(
            out,
            "values      {} of {} that the second model computes are values of the first",
            self.equal, self.values
        );
        for (i, region) in self.regions.iter().enumerate() {
            out.push_str(&region.human(i + 1, most));
        }
        self.laws_and_constants(&mut out, most);
        for o in self.outputs.iter().take(most) {
            let apart = match o.relative {
                Some(0.0) => "the same on all inputs".to_string(),
                Some(r) => format!("at most {r:.1e} of its largest element apart, on {}", o.inputs),
                None => format!("finite in one model alone, on {}", o.inputs),
            };
            let _ = writeln!(out, "output      `{}`: {apart}", shown(&o.output));
        }
        left_out(&mut out, self.outputs.len(), most, "outputs");
        if !self.inputs.is_empty() {
            let _ = writeln!(out, "run on      {}", self.inputs.join("; "));
        }
        for note in &self.notes {
            let _ = writeln!(out, "note        {note}");
        }
        out
    }

    /// The verdict in a line.
    pub(in crate::explain) fn headline(&self) -> String {
        let differ = self.regions.iter().filter(|r| r.difference.is_some()).count();
        let places = |n: usize| if n == 1 { "1 place".into() } else { format!("{n} places") };
        match self.answer {
            Answer::Equal => "equal by the laws".into(),
            Answer::Differ => format!("different, at {}", places(differ)),
            Answer::NotProved => {
                let agree = self.regions.iter().filter_map(|r| r.agrees_on).min();
                let numbers = match agree {
                    Some(n) if self.regions.iter().all(|r| r.agrees_on.is_some()) => {
                        format!("; they agree within rounding on {n} sets of inputs")
                    }
                    _ => String::new(),
                };
                match self.regions.len() {
                    0 => "not proved equal".into(),
                    n => format!("not proved equal, at {}{numbers}", places(n)),
                }
            }
        }
    }

    fn laws_and_constants(&self, out: &mut String, most: usize) {
        if self.laws.is_empty() && self.answer == Answer::Equal {
            out.push_str("laws        none are needed: the same operators read the same values\n");
        }
        if !self.laws.is_empty() {
            let law = |l: &super::UsedLaw| format!("{} ({}) {}", l.law, l.error, l.equations);
            let laws: Vec<String> = self.laws.iter().take(most).map(law).collect();
            let _ = writeln!(out, "laws        {}: {}", self.laws.len(), laws.join(", "));
            left_out(out, self.laws.len(), most, "laws");
        }
        if let Some(worst) = self.rounded.first() {
            let _ = writeln!(
                out,
                "constants   {} are computed in the other model; they are at most {:.1e} of their largest element apart, `{}`",
                self.rounded.len(),
                worst.difference,
                shown(&worst.constant)
            );
        }
    }
}

fn left_out(out: &mut String, count: usize, most: usize, what: &str) {
    if count > most {
        let _ = writeln!(out, "            and {} more {what}; --all prints them", count - most);
    }
}

impl DifferingRegion {
    fn human(&self, number: usize, most: usize) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{number}.  first   {}", self.a.human(most));
        let _ = writeln!(out, "    second  {}", self.b.human(most));
        if !self.from.is_empty() {
            let _ = writeln!(out, "    both from {}", listed(&self.from, most));
        }
        for c in self.constants.iter().take(most) {
            let _ = writeln!(out, "    {}", c.human());
        }
        let said = match (&self.difference, self.agrees_on, &self.not_run) {
            (Some(d), _, _) => match d.differs_on.len() {
                0 | 1 => d.words.clone(),
                n => format!("{}; on {n} sets of inputs they differ", d.words),
            },
            (None, Some(n), _) => format!(
                "not proved; they agree within rounding on {n} sets of inputs, at most {:.1e} of the largest element apart",
                self.largest.unwrap_or(0.0)
            ),
            (None, None, why) => {
                format!("not proved, and not run: {}", why.as_deref().unwrap_or("no reason"))
            }
        };
        let _ = writeln!(out, "    {said}");
        out
    }
}

impl RegionSide {
    fn human(&self, most: usize) -> String {
        let value = format!("`{}`", shown(&self.value));
        if self.nodes.is_empty() {
            return value;
        }
        let operators: Vec<&str> = self.operators.iter().take(most).map(String::as_str).collect();
        format!("{value} by {}: {}", operators.join(", "), listed(&self.nodes, most))
    }
}

impl ChangedConstant {
    fn human(&self) -> String {
        let name = match self.a == self.b {
            true => format!("constant `{}`", shown(&self.a)),
            false => format!("constant `{}`, in the second `{}`", shown(&self.a), shown(&self.b)),
        };
        let (a, b) = self.values;
        format!(
            "{name}: {} of {} elements differ; element {} is {a:?} in the first and {b:?} in the second",
            self.elements, self.of, self.element
        )
    }
}

fn listed(names: &[String], most: usize) -> String {
    let mut out: Vec<String> = names.iter().take(most).map(|n| format!("`{}`", shown(n))).collect();
    if names.len() > most {
        out.push(format!("and {} more", names.len() - most));
    }
    out.join(", ")
}
