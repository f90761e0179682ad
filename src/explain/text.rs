//! Explanations rendered as text.

use super::regions::{KernelLine, Region};
use super::{Explanation, LawUse};
use itertools::Itertools;
use mlc_dsl::diagnostics::message_text::bytes;
use std::fmt::Write;

/// Names that are written out before the rest is counted.
const NAMES: usize = 4;

/// Laws and kernels of a region that are written out.
const LAWS: usize = 8;
const KERNELS: usize = 6;

/// Operators of a kernel that are written out, those that end it among them.
const OPERATORS: usize = 7;
const LAST: usize = 3;

impl Explanation {
    /// For people; `all` leaves nothing out: unchanged kernels, every name, the equations of the proof.
    pub fn human(&self, all: bool) -> String {
        let mut out = String::new();
        let (before, after) = self.cost;
        let part = if before > 0.0 { after / before } else { 1.0 };
        let _ = writeln!(
            out,
            "estimated for {}: {} -> {} ({part:.2} of the program as read)",
            self.target,
            seconds(before),
            seconds(after)
        );
        if let Some((before, after)) = self.peak_bytes {
            let _ = writeln!(out, "peak memory {} -> {}", bytes(before), bytes(after));
        }
        let (before, after) = self.weights_bytes;
        let _ = writeln!(out, "weights {} -> {}", bytes(before), bytes(after));
        for n in &self.notes {
            let _ = writeln!(out, "note: {n}");
        }
        self.changes(&mut out, all);
        self.credits(&mut out, all);
        out
    }

    fn changes(&self, out: &mut String, all: bool) {
        let (same, changed): (Vec<&Region>, Vec<&Region>) =
            self.regions.iter().partition(|r| r.is_unchanged());
        let heading = match changed.is_empty() {
            true => "no kernel is another one than before",
            false => "what changed, by the nodes of the model",
        };
        let _ = writeln!(out, "\n{heading}");
        changed.iter().for_each(|r| region(out, r, all));
        let kernels: usize = same.iter().map(|r| r.after.len() * r.times()).sum();
        if kernels > 0 {
            let all_of =
                |r: &&Region| r.after.iter().map(|k| k.seconds).sum::<f64>() * r.times() as f64;
            let took: f64 = same.iter().map(all_of).sum();
            let _ = writeln!(out, "  as before: {kernels} kernels, {}", seconds(took));
        }
        if all {
            same.iter().for_each(|r| region(out, r, all));
        }
        let _ = writeln!(out, "  together {}", saved(self.cost.0 - self.cost.1));
    }

    fn credits(&self, out: &mut String, all: bool) {
        if self.laws.is_empty() {
            return;
        }
        let _ = writeln!(out, "\nby which laws");
        for l in &self.laws {
            law(out, l, all);
        }
    }
}

/// Tells of a region.
pub(super) fn region(out: &mut String, r: &Region, all: bool) {
    let times = match r.times() {
        1 => String::new(),
        n => format!(", {n} times"),
    };
    let _ = writeln!(out, "  {}{times}: {}", saved(r.saved), names(&r.nodes, all));
    if all {
        for n in &r.alike {
            let _ = writeln!(out, "      and {}", names(n, all));
        }
    }
    let _ = writeln!(out, "      before  {}", kernels(&r.before, all));
    if !r.is_unchanged() {
        let _ = writeln!(out, "      after   {}", kernels(&r.after, all));
    }
    let mut by: Vec<String> = r.laws.iter().chain(&r.steps).cloned().collect();
    let more = if all { 0 } else { by.len().saturating_sub(LAWS) };
    by.truncate(by.len() - more);
    by.extend((more > 0).then(|| format!("and {more} more")));
    let by = by.join(", ");
    if !by.is_empty() && (!r.is_unchanged() || !r.laws.is_empty()) {
        let _ = writeln!(out, "      by      {by}");
    }
}

fn law(out: &mut String, l: &LawUse, all: bool) {
    let _ = writeln!(out, "  {} [{}]  {}", l.law, l.error, l.doc);
    if !l.nodes.is_empty() {
        let _ = writeln!(out, "      at {}", names(&l.nodes, all));
    }
    if let Some(gain) = l.without {
        let _ =
            writeln!(out, "      without it: {} in all, {}", seconds(gain), more(gain - l.with));
    }
    for (a, b) in l.examples.iter().filter(|_| all) {
        let _ = writeln!(out, "      {a}\n   =  {b}");
    }
}

fn more(s: f64) -> String {
    match s {
        s if s > 1e-12 => format!("{} more", seconds(s)),
        s if s < -1e-12 => format!("{} less", seconds(-s)),
        _ => "the same".into(),
    }
}

pub(super) fn saved(s: f64) -> String {
    match s {
        s if s > 1e-12 => format!("saves {}", seconds(s)),
        s if s < -1e-12 => format!("costs {} more", seconds(-s)),
        _ => "takes the same time".into(),
    }
}

/// The first names, and how many more there are.
pub(crate) fn names(all: &[String], whole: bool) -> String {
    let shown = if whole { all.len() } else { NAMES };
    let mut out = all.iter().take(shown).join(", ");
    if all.len() > shown {
        let _ = write!(out, " and {} more", all.len() - shown);
    }
    out
}

/// Kernels with their operators and seconds; equal ones are counted, and of many those that take longest are told.
pub(super) fn kernels(lines: &[KernelLine], all: bool) -> String {
    let mut out: Vec<(String, usize, f64)> = Vec::new();
    for l in lines {
        let text = format!("{} {}", operators(&l.operators, all), seconds(l.seconds));
        match out.iter_mut().find(|(t, ..)| *t == text) {
            Some((_, n, sum)) => (*n, *sum) = (*n + 1, *sum + l.seconds),
            None => out.push((text, 1, l.seconds)),
        }
    }
    let mut times: Vec<f64> = out.iter().map(|(.., s)| *s).collect();
    times.sort_by(|a, b| b.total_cmp(a));
    let least = times.get(KERNELS - 1).copied().filter(|_| !all).unwrap_or(0.0);
    let (told, left): (Vec<_>, Vec<_>) = out.into_iter().partition(|(.., s)| *s >= least);
    let one = |(text, n, _): &(String, usize, f64)| match n {
        1 => text.clone(),
        n => format!("{n} x {text}"),
    };
    let mut out: Vec<String> = told.iter().map(one).collect();
    let (count, sum) = left.iter().fold((0, 0.0), |(n, s), l| (n + l.1, s + l.2));
    if count > 0 {
        out.push(format!("and {count} more {}", seconds(sum)));
    }
    if out.is_empty() { "nothing: it is known before a run".into() } else { out.join("; ") }
}

/// What a kernel computes; of many operators the first and the last.
fn operators(every: &[String], all: bool) -> String {
    if all || every.len() <= OPERATORS {
        return every.join("+");
    }
    let first = every[..OPERATORS - LAST].join("+");
    let last = every[every.len() - LAST..].join("+");
    format!("{first}+({} more)+{last}", every.len() - OPERATORS)
}

/// A duration with a fitting unit.
pub fn seconds(s: f64) -> String {
    match s {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.2} µs", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_kernel_both_ends_are_told() {
        let all: Vec<String> = (0..9).map(|i| format!("o{i}")).collect();
        assert_eq!(operators(&all[..7], false), "o0+o1+o2+o3+o4+o5+o6");
        assert_eq!(operators(&all, false), "o0+o1+o2+o3+(2 more)+o6+o7+o8");
        assert_eq!(operators(&all, true), all.join("+"));
    }
}
