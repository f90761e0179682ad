//! Holds a program as read, and what is written of it, against the operators of its file, evaluated one by one.
//!
//! The self-check compares the result with the program as read, so that a mistake of the import is in both. Here the file is evaluated
//! without that import, at several sets of extents. What was found wrong is an error: nothing is written, nothing runs.

mod nodes;
mod place;

pub use crate::pipeline::selfcheck::by_nodes::{ByNodes, ByNodesSet};

use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::pipeline::selfcheck::{Finding, Rule, Runs, named, verdict, with_integers, words};
use crate::pipeline::{Options, Report};
use mlc_backends::BackendError;
use mlc_backends::reference::{Array, Reference};
use mlc_dsl::ir::{Extent, Program, Tensor, Type};
use mlc_dsl::library::Library;
use mlc_extract::resources::{CHECKED_BYTES, RunResources};
use mlc_onnx::{RawAttr, RawDim, RawGraph, RawModel, RawValueInfo};
use mlc_verify::random_inputs::{self, ExtentSet, Relations, Style, Symbols};
use nodes::{Nodes, Refused, Values};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Operations that all sets may take together where extents are open, and where they are numbers.
const OPEN: f64 = 2e9;
const NUMBERS: f64 = 3e7;
/// What a node costs besides: it is read alone.
const OF_NODE: f64 = 1e5;
/// Longer lists of numbers in a file are data.
const MOST_LISTED: usize = 16;

/// The file of a model, evaluated at several sets of extents.
pub struct AsRead<'a> {
    raw: &'a RawModel,
    nodes: Rc<Nodes<'a>>,
    library: &'a Library,
    program: &'a Program,
    seed: u64,
    runs: Vec<FileRun>,
    report: ByNodes,
}

/// The file on one set of inputs.
struct FileRun {
    symbols: Symbols,
    inputs: Vec<Tensor>,
    outputs: Vec<Array>,
}

/// Where two evaluations differ.
struct Difference {
    output: String,
    what: String,
}

/// Numbers of a file that may bound an extent: those of attributes, and of short constants of integers.
pub fn bounds(graph: &RawGraph) -> BTreeSet<i64> {
    let mut out = BTreeSet::new();
    let of = |t: &Tensor| match t.dtype().is_int() && t.len() <= MOST_LISTED {
        true => t.to_i64(),
        false => vec![],
    };
    out.extend(graph.initializers.values().flat_map(of));
    for attr in graph.nodes.iter().flat_map(|n| n.attrs.values()) {
        match attr {
            RawAttr::Int(n) => drop(out.insert(*n)),
            RawAttr::Ints(all) => out.extend(all),
            RawAttr::Tensor(t) => out.extend(of(t)),
            other => out.extend(other.graphs().iter().flat_map(bounds)),
        }
    }
    out.into_iter().map(i64::saturating_abs).filter(|&n| n > 1).collect()
}

impl<'a> AsRead<'a> {
    /// Evaluates a model's file, and holds the program as read against it; `None` if there is no file or nothing is to be checked.
    ///
    /// # Errors
    /// The program as read is not what the file's operators compute.
    pub fn check(model: &'a Model, options: &mut Options) -> Result<Option<AsRead<'a>>, Error> {
        let Some(raw) = model.read_as() else { return Ok(None) };
        options.guard.bounds = bounds(&raw.graph);
        if !options.self_check || model.program().consts.unread() > 0 {
            return Ok(None);
        }
        let (program, library) = (model.program(), &**model.library());
        let report = ByNodes::default();
        let nodes = Rc::new(Nodes::of(raw, library));
        let seed = options.seed;
        let mut run = AsRead { raw, nodes, library, program, seed, runs: vec![], report };
        if raw.graph.inputs.iter().any(|i| !i.containers.is_empty()) {
            run.report.not_checked = Some("an input is a sequence or an optional".into());
            return Ok(Some(run));
        }
        mlc_explore::progress::report("evaluating the file", None);
        // What had to be assumed of symbols was told.
        let typed = match model.assumed().is_empty() {
            true => as_declared(program, &raw.graph.inputs),
            false => program.clone(),
        };
        run.at_extents(model, &typed, options)?;
        if run.report.not_checked.is_none() && run.report.sets.iter().all(|s| s.unused.is_some()) {
            let why = run.report.sets.first().and_then(|s| s.unused.clone());
            run.report.not_checked = Some(why.unwrap_or_else(|| "no inputs can be drawn".into()));
        }
        Ok(Some(run))
    }

    /// Enters what was compared into the report of the self-check.
    pub fn enter(&self, report: &mut Report) {
        if let Some(check) = &mut report.self_check {
            check.by_nodes = Some(self.report.clone());
        }
    }

    fn at_extents(
        &mut self,
        model: &Model,
        typed: &Program,
        options: &Options,
    ) -> Result<(), Error> {
        let usual = random_inputs::symbols(typed, self.library);
        let relations = self.relations(typed, &usual);
        let usual = random_inputs::related(&usual, &relations);
        let most = if usual.is_empty() { NUMBERS } else { OPEN };
        let mut spent = 0.0;
        let mut sets = vec![ExtentSet { symbols: usual.clone(), varied: None }];
        if !usual.is_empty() {
            sets.extend(random_inputs::extent_sets(typed, &options.guard.bounds, &usual));
        }
        let nodes = OF_NODE * (self.raw.graph.nodes.len() + self.program.nodes.len()) as f64;
        for mut set in sets {
            set.symbols = random_inputs::related(&set.symbols, &relations);
            let needs = RunResources::of_reference(self.program, self.library, &set.symbols);
            let weights = self.program.consts.bytes();
            let cost = 2.0 * (needs.drawn_operations() + weights as f64) + nodes;
            let limit = options.guard.memory.unwrap_or(CHECKED_BYTES);
            if spent + cost > most || needs.bytes.saturating_add(2 * weights) > limit {
                self.report.left_out += 1;
                if self.report.left_out == 1 && self.report.sets.is_empty() {
                    let why = format!("it takes {cost:.1e} operations");
                    self.report.not_checked = Some(why);
                }
                continue;
            }
            spent += cost;
            self.report.not_checked = None;
            self.at(model, typed, &set)?;
        }
        let given = &options.guard.given;
        for inputs in given {
            let symbols = mlc_extract::resources::symbols_of(self.program, inputs);
            let needs = RunResources::of_reference(self.program, self.library, &symbols);
            let weights = self.program.consts.bytes();
            let cost = 2.0 * (needs.operations + weights as f64) + nodes;
            if spent + cost <= most && needs.bytes.saturating_add(2 * weights) <= CHECKED_BYTES {
                spent += cost;
                self.hold(model, &symbols, inputs.clone())?;
            }
        }
        Ok(())
    }

    /// What symbols have to be for the program to run, if it does not run at the usual extents and is small.
    fn relations(&self, typed: &Program, usual: &Symbols) -> Relations {
        let reference = Reference::default();
        let needs = RunResources::of_reference(typed, self.library, usual);
        if usual.len() < 2 || needs.operations + self.program.consts.bytes() as f64 > OPEN / 4.0 {
            return vec![];
        }
        let trial = |program: &Program, inputs: &[Tensor]| match reference.run_values(
            program,
            self.library,
            inputs,
        ) {
            Ok(_) => Ok(()),
            Err(BackendError::Operator { op, .. }) => Err(op),
            Err(_) => Err(String::new()),
        };
        let style = Style::Ordinary;
        let inputs = random_inputs::styled(typed, self.library, style, self.seed, usual);
        let Some(Err(failing)) = inputs.map(|inputs| trial(typed, &inputs)) else {
            return vec![];
        };
        let found =
            random_inputs::relations(typed, self.library, self.seed, usual, failing, &trial);
        found.unwrap_or_default()
    }

    /// The file and the program at a set of extents, or at one near it at which the file is valid.
    fn at(&mut self, model: &Model, typed: &Program, set: &ExtentSet) -> Result<(), Error> {
        let mut why = None;
        let mut tried: Vec<Symbols> = vec![];
        let near = || random_inputs::fitting(typed, self.library, set);
        let candidates = [Some(set.symbols.clone()), near()];
        for symbols in candidates.into_iter().flatten() {
            if tried.contains(&symbols) || self.runs.iter().any(|r| r.symbols == symbols) {
                continue;
            }
            tried.push(symbols.clone());
            let (style, seed) = (Style::Ordinary, self.seed);
            let drawn = random_inputs::styled(typed, self.library, style, seed, &symbols);
            let Some(inputs) = drawn else { continue };
            match self.hold(model, &symbols, inputs)? {
                None => return Ok(()),
                Some(refused) => {
                    let _ = why.get_or_insert(refused);
                }
            }
        }
        if let Some(why) = why {
            let unused = Some(why.to_string());
            let extents = sorted(&set.symbols);
            self.report.sets.push(ByNodesSet { extents, compared: 0, unused });
        }
        Ok(())
    }

    /// The file and the program on some inputs; yields why the file refuses them.
    fn hold(
        &mut self,
        model: &Model,
        symbols: &Symbols,
        inputs: Vec<Tensor>,
    ) -> Result<Option<Refused>, Error> {
        let value = |name: &str| symbols.get(name).copied();
        if let Some(extent) = model.info.as_ref().and_then(|i| i.facts.empty(&value)) {
            let reason = format!("no run has a `{}` of 0", mlc_dsl::shown(&extent));
            return Ok(Some(Refused { node: "the model".into(), reason }));
        }
        let nodes = self.nodes.clone();
        let (inputs, values) = match self.on(&nodes, inputs) {
            Ok(done) => done,
            Err(refused) => return Ok(Some(refused)),
        };
        let found = self.differs(&nodes_of(self.program, &values), &inputs);
        if let Some(found) = found {
            let wrong = self.wrong(model, symbols, &inputs, &values, &found);
            return Err(wrong);
        }
        let outputs = nodes_of(self.program, &values);
        let compared = outputs.iter().map(Array::len).sum();
        self.report.sets.push(ByNodesSet { extents: sorted(symbols), compared, unused: None });
        self.runs.push(FileRun { symbols: symbols.clone(), inputs, outputs });
        Ok(None)
    }

    /// The file on these inputs, or on others whose integers it takes.
    fn on(&self, nodes: &Nodes<'_>, inputs: Vec<Tensor>) -> Result<(Vec<Tensor>, Values), Refused> {
        let run = |inputs: &[Tensor]| {
            nodes.run(nodes::given(self.program, inputs), &self.program.outputs)
        };
        let refused = match run(&inputs) {
            Ok(values) => return Ok((inputs, values)),
            Err(refused) => refused,
        };
        if inputs.iter().any(|t| t.dtype().is_int()) {
            for n in [0, 1, -1] {
                let others = with_integers(&inputs, n);
                if let Ok(values) = run(&others) {
                    return Ok((others, values));
                }
            }
        }
        Err(refused)
    }

    /// The first output in which the program as read is not what the file's operators compute.
    fn differs(&self, outputs: &[Array], inputs: &[Tensor]) -> Option<Difference> {
        let reference = Reference::default();
        let found = match reference.run_values(self.program, self.library, inputs) {
            Ok(found) => found,
            Err(e) => {
                let what = format!("the program as read refuses: {e}");
                return Some(Difference { output: String::new(), what });
            }
        };
        let disturbed = || {
            let nodes = Nodes::of(self.raw, self.library).disturbed(self.seed);
            let given = nodes::given(self.program, inputs);
            Some(nodes_of(self.program, &nodes.run(given, &self.program.outputs).ok()?))
        };
        difference(self.program, outputs, &found, &disturbed)
    }

    /// What is wrong with the program as read, and at which node.
    fn wrong(
        &self,
        model: &Model,
        symbols: &Symbols,
        inputs: &[Tensor],
        values: &Values,
        found: &Difference,
    ) -> Error {
        let node = place::first_wrong(self, model, inputs, values);
        let at = if symbols.is_empty() { String::new() } else { format!(" at {}", named(symbols)) };
        let what = match found.output.as_str() {
            "" => found.what.clone(),
            name => format!("output `{}`: {}", mlc_dsl::shown(name), found.what),
        };
        let node = node.unwrap_or_else(|| "the model".into());
        let message = format!("{node}: it is not read as the file says{at}: {what}");
        Error::new(ErrorKind::Check, mlc_dsl::told(&message))
            .with_code("C001")
            .at(mlc_dsl::told(&node))
            .with_help(
                "nothing is written: this is a mistake of the import. `--bind SYMBOL=NUMBER` reads the model for the extents that it is \
                 used at; `--no-check` leaves the comparison out",
            )
    }

    /// Holds what is written against the file, on the inputs of before.
    ///
    /// # Errors
    /// The written file computes something else.
    pub fn written(&mut self, written: &RawModel) -> Result<(), Error> {
        let nodes = Nodes::of(written, self.library);
        let mut held = 0;
        let mut refused = None;
        for run in &self.runs {
            let given = nodes::given(self.program, &run.inputs);
            let values = match nodes.run(given, &self.program.outputs) {
                Ok(values) => values,
                Err(e) => {
                    let _ = refused.get_or_insert((named(&run.symbols), e));
                    continue;
                }
            };
            let disturbed = || {
                let nodes = Nodes::of(self.raw, self.library).disturbed(self.seed);
                let given = nodes::given(self.program, &run.inputs);
                Some(nodes_of(self.program, &nodes.run(given, &self.program.outputs).ok()?))
            };
            let found = nodes_of(self.program, &values);
            if let Some(found) = loosely(self.program, &run.outputs, &found, &disturbed) {
                let wrong = wrongly_written(&run.symbols, &found);
                return Err(wrong);
            }
            held += 1;
        }
        self.report.written = match (held, refused) {
            (_, Some((at, e))) if held > 0 => return Err(refuses(&at, &e)),
            (0, Some((_, e))) => Some(Err(e.to_string())),
            (0, None) => None,
            (n, _) => Some(Ok(n)),
        };
        Ok(())
    }
}

/// A file that computes something else than the model.
fn wrongly_written(symbols: &Symbols, found: &Difference) -> Error {
    let at = if symbols.is_empty() { String::new() } else { format!(" at {}", named(symbols)) };
    let output = format!("output `{}`", mlc_dsl::shown(&found.output));
    let message = format!("{output} of the file to be written{at}: {}", found.what);
    Error::new(ErrorKind::Check, mlc_dsl::told(&message))
        .with_code("C002")
        .at(mlc_dsl::told(&output))
        .with_help(WRITTEN)
}

/// A file that does not run where the model does.
fn refuses(at: &str, e: &Refused) -> Error {
    let message = format!("the file to be written does not run at {at}, where the model does: {e}");
    Error::new(ErrorKind::Check, mlc_dsl::told(&message))
        .with_code("C002")
        .at(mlc_dsl::told(&e.node))
        .with_help(WRITTEN)
}

const WRITTEN: &str = "nothing is written: this is a mistake of the export. Another `--target` or `--opset`, or `--bind SYMBOL=NUMBER`, may \
                       do without; `--no-check` leaves the comparison out";

/// The outputs of a program among values by name.
fn nodes_of(program: &Program, values: &Values) -> Vec<Array> {
    program.outputs.iter().filter_map(|(n, _)| values.get(n).cloned()).collect()
}

fn sorted(symbols: &Symbols) -> BTreeMap<String, i64> {
    symbols.iter().map(|(s, &n)| (s.clone(), n)).collect()
}

/// A program with inputs as the file declares them: an import may have made numbers of symbols.
fn as_declared(program: &Program, inputs: &[RawValueInfo]) -> Program {
    let mut out = program.clone();
    for (name, ty) in &mut out.inputs {
        let Some(input) = inputs.iter().find(|i| i.name == *name) else { continue };
        let Some(dims) = input.dims.as_ref().filter(|d| d.len() == ty.rank()) else { continue };
        let extent = |(d, e): (&RawDim, &Extent)| match d {
            RawDim::Known(n) => i64::try_from(*n).map_or_else(|_| e.clone(), Extent::from),
            RawDim::Symbol(s) => Extent::sym(s),
            RawDim::Unknown => e.clone(),
        };
        *ty = Type::new(ty.dtype, dims.iter().zip(&ty.shape).map(extent).collect());
    }
    out
}

type Disturbed<'a> = &'a dyn Fn() -> Option<Vec<Array>>;

/// The first output in which values differ by more than what roundings on the way explain.
fn difference(
    program: &Program,
    wanted: &[Array],
    found: &[Array],
    disturbed: Disturbed<'_>,
) -> Option<Difference> {
    each(program, wanted, found, disturbed, |wanted, found, disturbed| {
        let rule = rule(found);
        let (source, result) = (wanted.to_tensor(), found.to_tensor());
        let truth = Some(wanted);
        let runs = Runs { truth, source: &source, moved: None, disturbed, result: &result };
        verdict(&runs, &rule).worst().cloned()
    })
}

/// The same of a program whose sums are regrouped.
fn loosely(
    program: &Program,
    wanted: &[Array],
    found: &[Array],
    disturbed: Disturbed<'_>,
) -> Option<Difference> {
    each(program, wanted, found, disturbed, |wanted, found, disturbed| {
        let rule = Rule { is_approx: true, ..rule(found) };
        let (source, result) = (wanted.to_tensor(), found.to_tensor());
        let moved = disturbed.map(Array::to_tensor);
        let moved = moved.as_ref();
        let runs = Runs { truth: None, source: &source, moved, disturbed: None, result: &result };
        verdict(&runs, &rule).worst().cloned()
    })
}

fn rule(a: &Array) -> Rule {
    let unit = a.dtype().unit_roundoff().max(2f64.powi(-24));
    Rule { tolerance: None, unit, is_approx: false, overflows: false }
}

fn each(
    program: &Program,
    wanted: &[Array],
    found: &[Array],
    disturbed: Disturbed<'_>,
    worst: impl Fn(&Array, &Array, Option<&Array>) -> Option<Finding>,
) -> Option<Difference> {
    let mut moved = None;
    for (i, (name, _)) in program.outputs.iter().enumerate() {
        let (Some(wanted), Some(found)) = (wanted.get(i), found.get(i)) else { continue };
        let output = name.clone();
        if wanted.shape() != found.shape() || wanted.dtype() != found.dtype() {
            let what = format!("{} in place of {}", found.ty(), wanted.ty());
            return Some(Difference { output, what });
        }
        if worst(wanted, found, None).is_none() {
            continue;
        }
        let moved: &Option<Vec<Array>> = moved.get_or_insert_with(disturbed);
        let moved = moved.as_ref().and_then(|m| m.get(i)).filter(|m| m.shape() == wanted.shape());
        if let Some(w) = worst(wanted, found, moved) {
            return Some(Difference { output, what: words(&w) });
        }
    }
    None
}
