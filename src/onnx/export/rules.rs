//! The `onnx` items by what they are written for: `prints` clauses, and alternatives of reading read backwards.

use crate::import::items::valid_at;
use mlc_dsl::library::{CallId, CallKind, Library, OnnxItem};
use mlc_dsl::onnx::Print;
use mlc_dsl::pattern::{ExportPattern, export_patterns};
use std::collections::{BTreeMap, HashMap};

/// The domain of classical machine learning.
const CLASSICAL: &str = "ai.onnx.ml";

/// How one form prints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule<'a> {
    /// The ONNX operator.
    pub item: &'a OnnxItem,
    /// The clause; `None` for an alternative read backwards.
    pub print: Option<&'a Print>,
    /// The core term.
    pub form: &'a ExportPattern,
}

/// The patterns by the operator at their root, largest first.
pub(crate) struct Rules<'a> {
    by_root: HashMap<CallId, Vec<Rule<'a>>>,
}

impl<'a> Rules<'a> {
    /// The patterns that may be written at these versions of the operator sets.
    pub fn of(library: &'a Library, opsets: &BTreeMap<String, i64>) -> Rules<'a> {
        let mut newest: HashMap<(&str, &str), u32> = HashMap::new();
        let valid = |i: &OnnxItem| opsets.get(&i.decl.domain).is_some_and(|&o| valid_at(i, o));
        for item in library.onnx.iter().filter(|i| valid(i)) {
            let since = newest.entry((item.decl.domain.as_str(), &*item.name)).or_default();
            *since = item.decl.since.max(*since);
        }
        let mut by_root: HashMap<CallId, Vec<Rule>> = HashMap::new();
        for form in export_patterns(library) {
            let item = &library.onnx[form.item];
            let since = newest.get(&(item.decl.domain.as_str(), &*item.name));
            // What files keep as it is, nobody writes by chance: a sum of three is no `BiasAdd`, for which few runtimes have code.
            let is_written = form.print.is_some() || !item.decl.opaque;
            // Nor what classical machine learning calls a sum or a comparison: runtimes have code for it in `f32` alone, and models that a runtime
            // has saved import this domain.
            let is_procedure = matches!(library.call(form.root.call()).kind, CallKind::Extern(_));
            let is_usual = item.decl.domain != CLASSICAL || is_procedure;
            if is_written && is_usual && valid(item) && since == Some(&item.decl.since) {
                let print = form.print.map(|p| &item.decl.prints[p]);
                by_root.entry(form.root.call()).or_default().push(Rule { item, print, form });
            }
        }
        for rules in by_root.values_mut() {
            rules.sort_by_key(|r| std::cmp::Reverse((r.form.size, r.print.is_some())));
        }
        Rules { by_root }
    }

    /// The operators that one ONNX node writes, at least with some attributes.
    pub fn single(&self) -> impl Iterator<Item = CallId> {
        let single = |rules: &[Rule<'a>]| rules.iter().any(|r| r.form.size == 1);
        self.by_root.iter().filter(move |(_, rules)| single(rules)).map(|(c, _)| *c)
    }

    /// What a node of this name writes: the operators at the roots of its smallest patterns.
    pub fn written_by(&self, name: &str) -> Vec<CallId> {
        let own = |rules: &[Rule<'a>]| -> Option<usize> {
            rules.iter().filter(|r| &*r.item.name == name).map(|r| r.form.size).min()
        };
        let sizes: Vec<(usize, CallId)> =
            self.by_root.iter().filter_map(|(c, rules)| Some((own(rules)?, *c))).collect();
        let least = sizes.iter().map(|s| s.0).min();
        let mut out: Vec<CallId> =
            sizes.into_iter().filter(|s| Some(s.0) == least).map(|s| s.1).collect();
        out.sort();
        out
    }

    /// The patterns with this operator at their root, largest first.
    pub fn at(&self, root: CallId) -> &[Rule<'a>] {
        self.by_root.get(&root).map_or(&[], Vec::as_slice)
    }
}
