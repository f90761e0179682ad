//! Reading models and writing files for all verbs.

use crate::onnx::{AtomicFile, ModelInfo, import, read_onnx};
use crate::{entry, stdlib};
use anyhow::{Context, anyhow};
use mlc_dsl::ir::Program;
use mlc_dsl::library::Library;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A model of either kind.
pub struct Model {
    /// The declarations it was read with.
    pub library: Arc<Library>,
    /// Its computation.
    pub program: Program,
    /// What an ONNX file says besides.
    pub info: Option<ModelInfo>,
}

/// Reads `path`, an ONNX file or a `.rules` text, with the shipped rules and `rules`.
pub fn load(path: &Path, rules: &[PathBuf]) -> anyhow::Result<Model> {
    if path.extension().is_some_and(|e| e == "rules") {
        let mut texts = rules.to_vec();
        texts.push(path.to_path_buf());
        let library = Arc::new(stdlib::load_sound(&texts)?);
        let source = library.sources.len() as u32 - 1;
        let name = entry::last_definition(&library, source)
            .with_context(|| format!("{} has no `def` to run", path.display()))?;
        let program = entry::program(&library, &name)?;
        return Ok(Model { library, program, info: None });
    }
    let library = Arc::new(stdlib::load_sound(rules)?);
    let with_help = |text: String, help: Option<String>| match help {
        Some(h) => anyhow!("{text}\nhelp: {h}"),
        None => anyhow!("{text}"),
    };
    let raw = read_onnx(path).map_err(|e| with_help(e.to_string(), e.help()))?;
    let imported = import(raw, &library)
        .map_err(|e| with_help(e.to_string(), e.help().map(str::to_string)))?;
    for (symbol, same) in &imported.assumed {
        eprintln!("note: the model is only meaningful if extent `{symbol}` equals `{same}`");
    }
    Ok(Model { library, program: imported.program, info: Some(imported.model) })
}

/// Writes a whole file or nothing.
pub fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || {
        let mut file = AtomicFile::create(path)?;
        file.write_all(bytes)?;
        file.commit()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The options that decide how a model is optimised.
#[derive(clap::Args, Clone, Debug)]
pub struct Tuning {
    /// Which laws may fire, by how far they may stray.
    #[arg(long, value_enum, default_value = "reorder")]
    pub fp: crate::pipeline::Fp,
    /// A law that must not fire; may be given several times.
    #[arg(long, value_name = "LAW")]
    pub without: Vec<String>,
    /// Most nodes that the e-graph takes.
    #[arg(long, default_value_t = 12_000)]
    pub nodes: usize,
    /// Most rounds of exploration.
    #[arg(long, default_value_t = 14)]
    pub rounds: u32,
    /// Most seconds of exploration.
    #[arg(long, default_value_t = 20.0)]
    pub time: f64,
}

impl Tuning {
    /// The pipeline's options for a target.
    pub fn options(
        &self,
        target: &str,
        common: &super::Common,
    ) -> anyhow::Result<crate::pipeline::Options> {
        let time = std::time::Duration::try_from_secs_f64(self.time)
            .context("`--time` is not a number of seconds")?;
        Ok(crate::pipeline::Options {
            target: target.to_string(),
            fp: self.fp,
            limits: crate::explore::Limits { nodes: self.nodes, rounds: self.rounds, time },
            without: self.without.clone(),
            operators: None,
            self_check: false,
            seed: common.seed,
            threads: common.threads(),
        })
    }
}

/// A progress bar on standard error, silent where that is no terminal.
pub fn progress(unit: &str) -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::new(0);
    let style = indicatif::ProgressStyle::with_template(&format!(
        "{{elapsed_precise}} {{bar:30}} {{pos}}/{{len}} {unit}"
    ));
    match style {
        Ok(s) => bar.with_style(s),
        Err(_) => bar,
    }
}
