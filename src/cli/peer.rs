//! Other runtimes to time against, in a Python process of their own that runs the model when it is told to.
//!
//! A peer measures itself, so what passes between the processes does not count.

use crate::pipeline::measure;
use anyhow::{Context, bail, ensure};
use mlc_backends::Executable;
use mlc_dsl::ir::Tensor;
use mlc_files::npz::write_npz;
use serde::Serialize;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a model in each of the runtimes of [`Runtime`].
const SCRIPT: &str = include_str!("peer.py");

/// Names the Python to use in place of `python3`.
const PYTHON: &str = "MLC_PYTHON";

/// A runtime that has packages for Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Runtime {
    #[value(name = "onnxruntime")]
    OnnxRuntime,
    #[value(name = "openvino")]
    OpenVino,
}

impl Runtime {
    fn name(self) -> &'static str {
        match self {
            Runtime::OnnxRuntime => "onnxruntime",
            Runtime::OpenVino => "openvino",
        }
    }
}

/// A runtime with the model loaded.
pub struct Peer {
    runtime: Runtime,
    version: String,
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// How fast a peer is, and the optimised plan in turns with it.
#[derive(Debug, Serialize)]
pub struct PeerReport {
    pub name: &'static str,
    pub version: String,
    pub runs: usize,
    /// The peer's fastest and median run.
    pub least_seconds: f64,
    pub median_seconds: f64,
    /// Those of the optimised plan.
    pub own_least_seconds: f64,
    pub own_median_seconds: f64,
    /// The optimised plan's fastest over the peer's.
    pub ratio: f64,
}

impl Peer {
    /// Loads the model, which must be an ONNX file, and runs it once.
    ///
    /// # Errors
    /// There is no such Python or package, or the runtime rejects the model or its inputs.
    pub fn start(
        runtime: Runtime,
        model: &Path,
        inputs: &[(String, Tensor)],
        threads: usize,
    ) -> anyhow::Result<Peer> {
        ensure!(
            model.extension().is_none_or(|e| e != "rules"),
            "another runtime reads ONNX files only\nhelp: write one with `optimize {} -o MODEL.onnx`",
            model.display()
        );
        let folder = tempfile::tempdir()?;
        let arrays = folder.path().join("inputs.npz");
        write_npz(&arrays, inputs)?;
        let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".into());
        let mut process = Command::new(&python)
            .args(["-c", SCRIPT, runtime.name()])
            .args([model, &arrays])
            .arg(threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| {
                format!(
                    "`{python}` cannot be started\nhelp: set {PYTHON} to a Python with `{}`",
                    runtime.name()
                )
            })?;
        let (ask, answers) = process.stdin.take().zip(process.stdout.take()).context("no pipes")?;
        let answers = BufReader::new(answers);
        let mut peer = Peer { runtime, version: String::new(), process, ask, answers };
        peer.version = peer.line()?;
        if let Some(reason) = peer.version.strip_prefix("error: ") {
            bail!(
                "{} does not run the model: {reason}\nhelp: `pip install {}` into the Python that {PYTHON} names (else `python3`)",
                runtime.name(),
                runtime.name()
            );
        }
        Ok(peer)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line)?;
        ensure!(read > 0, "{} ended without an answer", self.runtime.name());
        Ok(line.trim().to_string())
    }

    /// Seconds of one run.
    fn run(&mut self) -> anyhow::Result<f64> {
        writeln!(self.ask, "run")?;
        let answer = self.line()?;
        answer.parse().with_context(|| format!("{} answers `{answer}`", self.runtime.name()))
    }

    /// Runs both in turns: `least` times at least, and until the budget is spent.
    pub fn race(
        mut self,
        own: &dyn Executable,
        inputs: &[Tensor],
        (least, budget): (usize, Duration),
    ) -> anyhow::Result<PeerReport> {
        let (mut ours, mut theirs) = (vec![], vec![]);
        own.run(inputs)?;
        let began = Instant::now();
        while ours.len() < least || began.elapsed() < budget {
            let start = Instant::now();
            own.run(inputs)?;
            ours.push(start.elapsed().as_secs_f64());
            theirs.push(self.run()?);
        }
        let (own_least_seconds, least_seconds) = (measure::least(&ours), measure::least(&theirs));
        Ok(PeerReport {
            name: self.runtime.name(),
            version: self.version.clone(),
            runs: ours.len(),
            least_seconds,
            median_seconds: measure::median(&theirs),
            own_least_seconds,
            own_median_seconds: measure::median(&ours),
            ratio: own_least_seconds / least_seconds,
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
