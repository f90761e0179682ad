//! The table of traps: graphs that are nearly something else, and what went wrong with them.
//!
//! `traps [FAMILY] [--show NAME] [--rules FOLDER] [--export FOLDER]`; NAME is a trap whose programs are printed, models and
//! the reference interpreter's results are written to the FOLDER of `--export`. The exit code is 1 if any trap is wrong.

use mlc_proptests::traps::{export, families, run, trap_options};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Default)]
struct Arguments {
    family: String,
    show: Option<String>,
    export: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, String> {
    let mut out = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(w) = words.next() {
        let mut value = || words.next().ok_or(format!("`{w}` needs a value"));
        match w.as_str() {
            "--show" => out.show = Some(value()?),
            "--export" => out.export = Some(value()?.into()),
            "--rules" => {
                mlc_proptests::read_texts_of(Path::new(&value()?));
            }
            _ if w.starts_with('-') => return Err(format!("there is no option `{w}`")),
            _ => out.family = w,
        }
    }
    Ok(out)
}

fn main() -> ExitCode {
    let args = match arguments() {
        Ok(args) => args,
        Err(e) => {
            eprintln!(
                "{e}\nusage: traps [FAMILY] [--show NAME] [--rules FOLDER] [--export FOLDER]"
            );
            return ExitCode::from(2);
        }
    };
    let options = trap_options();
    let scratch = std::env::temp_dir().join(format!("trap-{}.onnx", std::process::id()));
    let (mut all, mut wrong) = (0, 0);
    println!("{:<12} {:>6} {:>9} {:>6}", "family", "traps", "compared", "wrong");
    for f in families().iter().filter(|f| f.name.starts_with(&args.family)) {
        let began = std::time::Instant::now();
        let chosen = |name: &str| args.show.as_deref().is_none_or(|s| s == name);
        let traps: Vec<_> = f.traps.iter().filter(|t| chosen(&t.name)).collect();
        let done: Vec<_> = traps.iter().map(|t| (t, run::run(t, &scratch, &options))).collect();
        let compared: usize = done.iter().map(|(_, o)| o.compared).sum();
        let bad: Vec<_> = done.iter().filter(|(_, o)| !o.wrong.is_empty()).collect();
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{:<12} {:>6} {compared:>9} {:>6} {seconds:>6.1} s",
            f.name,
            done.len(),
            bad.len()
        );
        (all, wrong) = (all + done.len(), wrong + bad.len());
        for (t, o) in bad {
            println!("  {}: {}", t.name, t.why);
            o.wrong.iter().for_each(|w| println!("    {w}"));
        }
        if args.show.is_some() {
            done.iter().for_each(|(_, o)| println!("{}", o.programs));
        }
        if let Some(folder) = &args.export
            && let Err(e) = traps.iter().try_for_each(|t| export::export(t, folder))
        {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
    }
    println!("{:<12} {all:>6} {:>9} {wrong:>6}", "all", "");
    // A leftover of a run in the temporary folder harms nobody.
    let _ = std::fs::remove_file(&scratch);
    ExitCode::from(u8::from(wrong > 0))
}
