//! Runs a model when it is told to, so that whoever asks decides who takes turns with whom.

use crate::runtimes::ALL;
use anyhow::{Context, Result};
use mlc_files::npz::read_npz;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Prints the version of the runtime and `host`, for the clock, or `error: ` and why not; then answers each line of standard input, `run`, with the
/// seconds of one run, or with the mean of as many in a row as a number behind a tab says.
pub fn answer(runtime: &str, model: &Path, inputs: &Path, threads: usize) -> Result<()> {
    let runtime = ALL.iter().find(|r| r.name == runtime).context("there is no such runtime")?;
    let inputs: Vec<_> = read_npz(inputs)?.into_iter().map(|(name, t)| (name, Some(t))).collect();
    let loaded = (runtime.load)(model, &inputs, threads).and_then(|mut run| {
        // The first run does what is done once.
        run()?;
        Ok(run)
    });
    let mut run = match loaded {
        Ok(run) => run,
        Err(e) => {
            println!(
                "error: {}",
                format!("{e:#}").split_whitespace().collect::<Vec<_>>().join(" ")
            );
            return Ok(());
        }
    };
    println!("{} host", runtime.version);
    for line in std::io::stdin().lines() {
        let line = line?;
        let count: u32 = line.split_once('\t').map_or(Ok(1), |(_, n)| n.parse())?;
        let began = Instant::now();
        for _ in 0..count {
            run()?;
        }
        println!("{}", began.elapsed().as_secs_f64() / f64::from(count));
        std::io::stdout().flush()?;
    }
    Ok(())
}
