//! The command line: one module per verb; only the result goes to standard output.

mod bench;
mod book;
mod calibrate;
mod check;
mod common;
mod completing;
mod conformance;
mod diff;
mod explain;
mod extract;
mod fmt;
mod fuzz;
mod infer;
mod inspect;
mod list;
mod lsp;
mod manual;
mod optimize;
mod options;
mod run;
mod show;
mod terminal;

pub use common::{Common, Findings};
pub use extract::egraphs;

use crate::stack;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;
use terminal::Screen;

/// The command's name.
const NAME: &str = "mlc-rewrite";

/// Optimises machine-learning graphs by equality saturation.
#[derive(Parser)]
#[command(name = NAME, version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Optimise an ONNX model and write the result.
    Optimize(optimize::Args),
    /// Run a model.
    Run(run::Args),
    /// Time a model.
    Bench(bench::Args),
    /// Say what was rewritten, by which law and why it pays; or show a law.
    Explain(explain::Args),
    /// Extract the cheapest program from an e-graph in a file.
    Extract(extract::Args),
    /// Parse, type-check and numerically verify laws.
    Check(check::Args),
    /// Run ONNX test cases, and tell which pass.
    Conformance(conformance::Args),
    /// Find laws of operators, verified and few.
    Infer(infer::Args),
    /// Time the kernels of this machine or of a device, and fit their costs.
    Calibrate(calibrate::Args),
    /// Hold random programs, optimised and run every way, against the reference interpreter.
    Fuzz(fuzz::Args),
    /// Write `.rules` texts in the canonical form, in place or to standard output.
    Fmt(fmt::Args),
    /// Print a model as text.
    Show(show::Args),
    /// Tell what is in a model: inputs, outputs, operators, parameters, work.
    Inspect(inspect::Args),
    /// Tell what differs between two ONNX models; exit with 1 if anything does.
    Diff(diff::Args),
    /// List operators, layers, laws, targets or ONNX operators.
    List(list::Args),
    /// Write what there is to know of operators, layers, laws and targets as a book.
    Book(book::Args),
    /// Serve editors of `.rules` texts: mistakes, hover, navigation, completion, renaming.
    Lsp(lsp::Args),
    /// Print what completes commands in a shell.
    Completions(manual::Completions),
    /// Print the manual page of a command, or write all.
    Man(manual::Man),
}

/// Parses the arguments, runs the verb, reports errors. Exit codes: 0 done, 1 the check found
/// something, 2 bad input or usage.
pub fn main() -> ExitCode {
    // A shell asks for completions by a variable; then nothing else is done.
    let asked = clap_complete::CompleteEnv::with_factory(Cli::command);
    asked.var(completing::VARIABLE).bin(NAME).completer(NAME).complete();
    ExitCode::from(command(std::env::args_os()))
}

/// The same with these arguments, the first of which is the command's own name: what the process is to exit with. Arguments that are wrong,
/// and `--help`, end the process.
pub fn command(args: impl IntoIterator<Item = OsString>) -> u8 {
    ignore_file_size_signal();
    let cli = Cli::parse_from(args);
    let screen = cli.verb.screen().clone();
    // The memory of the process's first thread grows by large steps, that of any other by a call of the system for every page.
    if !matches!(cli.verb, Verb::Extract(_) | Verb::Completions(_) | Verb::Man(_)) {
        crate::stdlib::shipped();
    }
    let work = std::thread::Builder::new().stack_size(stack::BYTES).spawn(move || match cli.verb {
        Verb::Optimize(a) => optimize::run(a),
        Verb::Run(a) => run::run(a),
        Verb::Bench(a) => bench::run(a),
        Verb::Explain(a) => explain::run(a),
        Verb::Extract(a) => extract::run(a),
        Verb::Check(a) => check::run(a),
        Verb::Conformance(a) => conformance::run(a),
        Verb::Infer(a) => infer::run(a),
        Verb::Calibrate(a) => calibrate::run(a),
        Verb::Fuzz(a) => fuzz::run(a),
        Verb::Fmt(a) => fmt::run(a),
        Verb::Show(a) => show::run(a),
        Verb::Inspect(a) => inspect::run(a),
        Verb::Diff(a) => diff::run(a),
        Verb::List(a) => list::run(a),
        Verb::Book(a) => book::run(a),
        Verb::Lsp(a) => lsp::run(a),
        Verb::Completions(a) => manual::completions(a),
        Verb::Man(a) => manual::man(a, Cli::command()),
    });
    let result = work.map(|w| w.join());
    terminal::progress::done();
    let result = match result {
        Ok(Ok(r)) => r,
        Ok(Err(_)) => return 101,
        Err(e) => Err(e.into()),
    };
    match result {
        Ok(Findings::Nothing) => 0,
        Ok(Findings::Something) => 1,
        Err(e) => {
            // Whoever reads a pipe may have enough of it.
            if mlc_files::is_closed() {
                return 0;
            }
            let error = if screen.colored_errors() { "\x1b[1;31merror\x1b[0m" } else { "error" };
            let text = crate::error::text(&e);
            let text = terminal::escaped(&text, screen.colored_errors());
            // Mistakes of a text are drawn with what they are.
            let said = if is_drawn(&text) { String::new() } else { format!("{error}: ") };
            terminal::complain(&format!("{said}{text}\n"));
            let found = e.downcast_ref::<crate::Error>();
            let is_finding = found.is_some_and(|e| e.kind() == crate::ErrorKind::Check);
            if is_finding { 1 } else { 2 }
        }
    }
}

/// True of mistakes in a text, which begin with `error[CODE]`, perhaps in colours.
fn is_drawn(text: &str) -> bool {
    let mut plain = text;
    while let Some((codes, rest)) = plain.strip_prefix("\x1b[").and_then(|t| t.split_once('m')) {
        if codes.contains(|c: char| !c.is_ascii_digit() && c != ';') {
            break;
        }
        plain = rest;
    }
    plain.starts_with("error[") || plain.starts_with("warning[")
}

/// The verbs, with what each does.
pub fn verbs() -> Vec<(String, String)> {
    let command = Cli::command();
    let about = |c: &clap::Command| c.get_about().map(ToString::to_string).unwrap_or_default();
    command.get_subcommands().map(|c| (c.get_name().to_string(), about(c))).collect()
}

/// A write beyond the limit on the size of files is an error, not the end of the process.
fn ignore_file_size_signal() {
    #[cfg(unix)]
    // SAFETY: the disposition of one signal is set before any thread is started.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

impl Verb {
    /// What the user says about output.
    fn screen(&self) -> &Screen {
        match self {
            Verb::Optimize(a) => &a.common.screen,
            Verb::Run(a) => &a.common.screen,
            Verb::Bench(a) => &a.common.screen,
            Verb::Explain(a) => &a.common.screen,
            Verb::Extract(a) => &a.common.screen,
            Verb::Check(a) => &a.common.screen,
            Verb::Conformance(a) => &a.common.screen,
            Verb::Infer(a) => &a.common.screen,
            Verb::Calibrate(a) => &a.common.screen,
            Verb::Fuzz(a) => &a.common.screen,
            Verb::Fmt(a) => &a.screen,
            Verb::Show(a) => &a.common.screen,
            Verb::Inspect(a) => &a.common.screen,
            Verb::Diff(a) => &a.common.screen,
            Verb::List(a) => &a.common.screen,
            Verb::Book(a) => &a.common.screen,
            Verb::Lsp(a) => &a.screen,
            Verb::Completions(a) => &a.screen,
            Verb::Man(a) => &a.screen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_drawn;

    #[test]
    fn mistakes_of_texts_are_told_from_other_errors() {
        for text in ["error[V011]: x", "\x1b[1m\x1b[91merror[V011]\x1b[0m: x", "warning[S015]: x"] {
            assert!(is_drawn(text), "{text}");
        }
        for text in ["", "error", "cannot read a[1]", "\x1b[", "\x1b[2Jerror[V011]"] {
            assert!(!is_drawn(text), "{text}");
        }
    }
}
