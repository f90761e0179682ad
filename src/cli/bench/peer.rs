//! Other runtimes to time against, in a Python process of their own that runs the model when it is told to.
//!
//! A peer measures itself, so what passes between the processes does not count.

use crate::device::BackendKind;
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
const SCRIPT: &str = concat!(
    include_str!("peers/onnx_file.py"),
    include_str!("peers/onnx_graph.py"),
    include_str!("peers/in_torch.py"),
    include_str!("peers/in_jax.py"),
    include_str!("peers/main.py")
);

/// Between the turns: the threads of a runtime spin for a while after its run, on the cores that the next turn needs.
const PAUSE: Duration = Duration::from_millis(20);

/// Names the Python to use in place of `python3`.
const PYTHON: &str = "MLC_PYTHON";

/// A runtime that has packages for Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Runtime {
    #[value(name = "onnxruntime")]
    Ort,
    #[value(name = "openvino")]
    OpenVino,
    /// PyTorch, operator by operator.
    #[value(name = "torch")]
    Torch,
    /// PyTorch, compiled with `max-autotune`.
    #[value(name = "torch-compile")]
    TorchCompile,
    /// PyTorch, compiled with `reduce-overhead`: without trying kernels by the clock, which takes minutes.
    #[value(name = "torch-reduce-overhead")]
    TorchReduceOverhead,
    /// JAX, compiled.
    #[value(name = "jax")]
    Jax,
}

impl Runtime {
    fn name(self) -> &'static str {
        match self {
            Runtime::Ort => "onnxruntime",
            Runtime::OpenVino => "openvino",
            Runtime::Torch => "torch",
            Runtime::TorchCompile => "torch-compile",
            Runtime::TorchReduceOverhead => "torch-reduce-overhead",
            Runtime::Jax => "jax",
        }
    }
}

/// How a runtime's package is called.
fn package(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::TorchCompile | Runtime::TorchReduceOverhead => "torch",
        other => other.name(),
    }
}

/// A runtime with the model loaded.
pub struct Peer {
    runtime: Runtime,
    version: String,
    clock: String,
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// How fast a peer is, and the optimised plan in turns with it.
#[derive(Debug, Serialize)]
pub struct PeerReport {
    pub name: &'static str,
    pub version: String,
    /// What its times are taken by: the `device`'s own events, or the `host`'s clock.
    pub clock: String,
    pub runs: usize,
    /// The peer's fastest and median run.
    pub least_seconds: f64,
    pub median_seconds: f64,
    /// Those of the optimised plan.
    pub own_least_seconds: f64,
    pub own_median_seconds: f64,
    /// The optimised plan's fastest over the peer's.
    pub ratio: f64,
    /// Quartiles of the ratios of runs that follow each other.
    pub ratio_quartiles: [f64; 2],
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
        (backend, number): (BackendKind, usize),
    ) -> anyhow::Result<Peer> {
        ensure!(
            model.extension().is_none_or(|e| e != "rules"),
            "another runtime reads ONNX files only\nhelp: write one with `optimize {} -o MODEL.onnx`",
            model.display()
        );
        let place = match backend {
            BackendKind::Cuda => format!("cuda:{number}"),
            BackendKind::Cpu | BackendKind::Reference => "cpu".into(),
        };
        let folder = tempfile::tempdir()?;
        let arrays = folder.path().join("inputs.npz");
        write_npz(&arrays, inputs)?;
        let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".into());
        let mut process = Command::new(&python)
            .args(["-c", SCRIPT, runtime.name()])
            .args([model, &arrays])
            .arg(threads.to_string())
            .arg(place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| {
                format!(
                    "`{python}` cannot be started\nhelp: set {PYTHON} to a Python with `{}`",
                    package(runtime)
                )
            })?;
        let (ask, answers) = process.stdin.take().zip(process.stdout.take()).context("no pipes")?;
        let answers = BufReader::new(answers);
        let (version, clock) = (String::new(), String::new());
        let mut peer = Peer { runtime, version, clock, process, ask, answers };
        peer.version = peer.line()?;
        if let Some(reason) = peer.version.strip_prefix("error: ") {
            let name = runtime.name();
            let help = match reason.contains("No module named") {
                true => format!(
                    "`pip install {}` into the Python that {PYTHON} names (else `python3`)",
                    package(runtime)
                ),
                false => "name another runtime; `--against` lists them with what each is".into(),
            };
            bail!("{name} does not run the model: {reason}\nhelp: {help}");
        }
        if let Some((version, clock)) = peer.version.clone().rsplit_once(' ') {
            (peer.version, peer.clock) = (version.into(), clock.into());
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
            std::thread::sleep(PAUSE);
            ours.push(measure::seconds(own, inputs)?);
            std::thread::sleep(PAUSE);
            theirs.push(self.run()?);
        }
        let mut ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        let quartile = |q: usize| ratios[(ratios.len() - 1) * q / 4];
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
            ratio_quartiles: [quartile(1), quartile(3)],
            clock: self.clock.clone(),
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
