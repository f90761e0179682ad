//! `show MODEL`: a model as text, the CUDA code of its kernels, or what of it is not understood.

use super::common::{Common, Findings};
use super::options::model::load_for;
use super::options::shapes::ShapeOptions;
use super::terminal::progress;
use crate::model::Model;
use crate::model::coverage::{Decided, Missing, missing};
use crate::optimizer::Optimizer;
use crate::pipeline::Options;
use crate::{explain, show};
use mlc_cuda::{Launch, Launches, launches};
use mlc_dsl::shown;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The model: an ONNX file or a `.rules` text, `-` for standard input.
    model: PathBuf,
    /// Show the CUDA C++ that computes the model, optimised for target `cuda`: its kernels, and how they are launched.
    #[arg(long)]
    cuda: bool,
    /// Show which operators of an ONNX file are not understood, and why, with a `.rules` text to start from for each that nothing declares.
    #[arg(long, conflicts_with = "cuda")]
    coverage: bool,
    /// With `--cuda`, take the model as it is.
    #[arg(long, requires = "cuda")]
    no_optimize: bool,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    args.common.begin(&[("MODEL", &args.model)], &[])?;
    let model = load_for(&args.model, &args.common, &args.shapes)?;
    if args.cuda {
        return cuda(&args, &model);
    }
    if args.coverage {
        return coverage(&args, &model);
    }
    let text = show::program(&model.program, &model.library, "model");
    args.common.report(&serde_json::json!({ "program": text }))?;
    args.common.screen.print(&text)?;
    Ok(Findings::Nothing)
}

/// What of the model's file is not understood.
fn coverage(args: &Args, model: &Model) -> anyhow::Result<Findings> {
    let (missing, nodes) = (missing(model), model.file_nodes());
    let (by_data, missing): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|m| m.decided == Decided::ByData);
    let count = |all: &[Missing]| all.iter().map(|m| m.nodes).sum::<usize>();
    let understood = nodes.saturating_sub(count(&missing) + count(&by_data));
    let one = |m: &Missing| {
        serde_json::json!({
            "operator": m.operator, "nodes": m.nodes, "first": m.first, "reason": m.reason, "help": m.help, "stub": m.stub,
        })
    };
    args.common.report(&serde_json::json!({
        "nodes": nodes, "understood": understood, "missing": missing.iter().map(one).collect::<Vec<_>>(),
        "decided_by_data": by_data.iter().map(one).collect::<Vec<_>>(),
    }))?;
    let mut out = format!("{understood} of {nodes} nodes are understood");
    if !by_data.is_empty() {
        let more = count(&by_data);
        let _ = write!(out, ", {more} more by `run`, once it has computed what decides them");
    }
    out.push('\n');
    for m in missing.iter().chain(&by_data) {
        let first = if m.nodes == 1 {
            m.first.clone()
        } else {
            format!("{} nodes, first {}", m.nodes, m.first)
        };
        let _ = writeln!(out, "\n{}: {}\n  {first}\n  help: {}", m.operator, m.reason, m.help);
    }
    let stubs: Vec<&str> = missing.iter().filter_map(|m| m.stub.as_deref()).collect();
    if !stubs.is_empty() {
        let _ = writeln!(
            out,
            "\n// Complete these declarations in a file and give it with `--rules FILE`.\n"
        );
        out.push_str(&stubs.join("\n"));
    }
    args.common.screen.print(&out)?;
    Ok(Findings::Nothing)
}

/// The code of a model's kernels. No device is needed.
fn cuda(args: &Args, model: &Model) -> anyhow::Result<Findings> {
    let options = Options {
        target: "cuda".into(),
        seed: args.common.seed,
        threads: args.common.threads(),
        ..Options::default()
    };
    let optimizer = Optimizer::from(options).ranges(args.shapes.ranges());
    let launches = match args.no_optimize {
        true => launches(&optimizer.plan_as_read(model)?, &model.library)?,
        false => {
            let done = optimizer.optimize(model)?;
            let mut launches = launches(&done.result().plan, &model.library)?;
            let origins = done.kernel_origins()?;
            launches.annotate(&|kernels| told(kernels, &origins));
            progress::done();
            launches
        }
    };
    let all = || launches.once.iter().chain(&launches.each);
    let launch = |l: &Launch| serde_json::json!({ "function": l.function, "grid": l.grid, "block": l.block, "kernel": l.kernel });
    args.common.report(&serde_json::json!({
        "cuda": launches.unit(),
        "launches": all().map(launch).collect::<Vec<_>>(),
        "arena_bytes": launches.arena,
    }))?;
    args.common.screen.print(&listing(&launches))?;
    Ok(Findings::Nothing)
}

/// Names in a comment of a function.
const NAMES: usize = 6;

/// What a function that these kernels launch came from, as lines: nodes of the model, and the laws of the proof that were applied there.
fn told(kernels: &[usize], origins: &[explain::Origin]) -> Vec<String> {
    let known: Vec<&explain::Origin> = kernels.iter().filter_map(|&k| origins.get(k)).collect();
    let nodes = known.first().map_or(&[][..], |o| &o.nodes);
    let laws: BTreeSet<&String> = known.iter().flat_map(|o| &o.laws).collect();
    let laws: Vec<&String> = laws.into_iter().collect();
    let list = |names: &[String]| {
        let first: Vec<String> = names.iter().take(NAMES).map(|n| shown(n)).collect();
        match names.len().saturating_sub(NAMES) {
            0 => first.join(", "),
            more => format!("{} and {more} more", first.join(", ")),
        }
    };
    let mut lines = vec![];
    if !nodes.is_empty() {
        let others = match known.len() - 1 {
            0 => String::new(),
            1 => "; one other kernel has the same code".into(),
            n => format!("; {n} other kernels have the same code"),
        };
        lines.push(format!("Of the model's {}{others}.", list(nodes)));
    }
    if !laws.is_empty() {
        // None is left out: `explain LAW` says what each of them means.
        let laws: Vec<&str> = laws.iter().map(|l| l.as_str()).collect();
        lines.push(format!("By the laws {}.", laws.join(", ")));
    }
    lines
}

/// Every function before its first launch; the launches in order.
fn listing(l: &Launches) -> String {
    let mut out = String::new();
    let mut seen = std::collections::HashSet::new();
    for launch in l.once.iter().chain(&l.each) {
        if seen.insert(&launch.function) {
            let _ = writeln!(out, "{}", launch.source);
        }
    }
    for (title, list) in [("before the first run", &l.once), ("in every run", &l.each)] {
        if list.is_empty() {
            continue;
        }
        let _ = writeln!(out, "// Launches {title}: blocks, threads of a block, arguments.");
        for launch in list {
            let args: Vec<String> =
                launch.arguments.iter().map(|a| format!("{:?}", a.place)).collect();
            let (f, args) = (&launch.function, args.join(", "));
            let _ = writeln!(out, "//   {f}<<<{}, {}>>>({args})", launch.grid[0], launch.block);
        }
    }
    if let Some(one) = &l.megakernel {
        let (blocks, threads) = (one.grid[0], one.block);
        let (starts, end) = match l.megakernel_estimate {
            None => ("starts", ""),
            Some(_) => ("may start", ", if that is faster by the device's clock"),
        };
        let _ = writeln!(
            out,
            "// A run {starts} these as one, {blocks} blocks of {threads} threads that wait for each other in between{end}."
        );
    }
    let _ = writeln!(out, "// {} bytes for intermediate values.", l.arena);
    out
}
