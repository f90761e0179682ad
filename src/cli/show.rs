//! `show MODEL`: a model as text, or the CUDA code of its kernels.

use super::model::load_for;
use super::run::as_read;
use super::shape_option::ShapeOptions;
use super::{Common, Findings, progress};
use crate::model::Model;
use crate::pipeline::{Options, optimize};
use crate::show;
use mlc_backends::cuda::{Launch, Launches, launches};
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
    let text = show::program(&model.program, &model.library, "model");
    args.common.report(&serde_json::json!({ "program": text }))?;
    args.common.screen.print(&text)?;
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
    let plan = match args.no_optimize {
        true => as_read(&model.program, &model.library, &options)?,
        false => {
            let done = optimize(model.program.clone(), &model.library, &options)?;
            progress::done();
            done.plan
        }
    };
    let launches = launches(&plan, &model.library)?;
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
    let _ = writeln!(out, "// {} bytes for intermediate values.", l.arena);
    out
}
