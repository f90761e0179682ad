//! `lsp`: a language server for `.rules` texts over standard input and output.
//!
//! Standard output has messages alone; the editor starts the server, and ends it.

use super::common::Findings;
use super::terminal::Screen;
use crate::calibrate::store;
use crate::model::Reader;
use crate::{lawtest, stdlib};
use mlc_dsl::check::Text;
use mlc_dsl::library::{Law, LawOrigin, Library};
use mlc_dsl::pattern::is_normal;
use mlc_explore::{Limits, explore};
use mlc_lsp::{Host, Settings, Verdict, serve};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Rules that every document builds on, besides the shipped ones; may be given several times.
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// A model in which laws can be looked for; may be given several times.
    #[arg(long, value_name = "MODEL")]
    model: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) screen: Screen,
}

/// Runs the verb; when the editor is gone without having said so, that is an error for whoever started the server.
pub fn run(args: Args) -> anyhow::Result<Findings> {
    let settings = Settings { rules: args.rules, models: args.model };
    match serve(io::stdin(), io::stdout(), Arc::new(Tools), settings) {
        0 => Ok(Findings::Nothing),
        _ => Ok(Findings::Something),
    }
}

/// What the server asks of the rest of the program.
struct Tools;

impl Host for Tools {
    fn shipped(&self) -> &'static [Text] {
        stdlib::texts()
    }

    fn check(&self, library: &Arc<Library>, law: &str) -> Result<Verdict, String> {
        let wanted = |l: &&Law| l.declared_name() == law;
        let names: Vec<String> =
            library.laws.iter().filter(wanted).map(|l| l.name.to_string()).collect();
        let options = mlc_verify::CheckOptions::default();
        let report = mlc_verify::check_library(library, Some(&names), &options, &|_, _| {});
        let broken =
            lawtest::check(library, Some(&names), "standard").map_err(|e| e.to_string())?;
        let holds = report.sound() && broken.is_empty();
        let found = report.laws.iter().find_map(|l| l.diag().map(|d| (l, d)));
        let (code, summary, mut text) = match (found, broken.first()) {
            (Some((law, diag)), _) => {
                let help = diag.help.as_ref().map(|h| format!("\nhelp: {h}"));
                // Its first line is the message.
                let why = law.counterexample().map(|c| {
                    let human = c.human();
                    human.lines().skip(1).map(|l| format!("\n{l}")).collect::<String>()
                });
                let text = [Some(diag.message.clone()), help, why];
                let text = text.into_iter().flatten().collect::<String>();
                (Some(diag.code.0.to_string()), diag.message.clone(), text)
            }
            (None, Some(test)) => (None, test.message.clone(), String::new()),
            (None, None) => (None, report.summary(), report.summary()),
        };
        for test in &broken {
            let line = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{line}{}", test.message));
        }
        Ok(Verdict { holds, code, summary, text })
    }

    fn find(&self, texts: &[(String, String)], law: &str, model: &Path) -> Result<String, String> {
        let reader = texts.iter().fold(Reader::new(), |r, (name, text)| r.rules_text(name, text));
        let model_read = reader.read(model).map_err(|e| crate::error::text(&e.into()))?;
        let library = model_read.library().clone();
        let all = 0..library.laws.len() as u32;
        let is_own = |i: &u32| {
            let l = &library.laws[*i as usize];
            l.declared_name() == law && l.origin != LawOrigin::Unfold
        };
        let (own, with): (Vec<u32>, Vec<u32>) = (
            all.clone().filter(is_own).collect(),
            all.filter(|i| is_own(i) || is_normal(&library.laws[*i as usize])).collect(),
        );
        let program = model_read.program().clone();
        let explored = explore(library, program, &with, &Limits::default());
        let found: usize = own.iter().map(|law| explored.equations_of(*law).len()).sum();
        let refused = explored.profiles.iter().filter(|(i, _)| own.contains(i));
        let refused: usize = refused.map(|(_, p)| p.refusals.values().sum::<usize>()).sum();
        let name = model.display();
        Ok(match (found, refused) {
            (0, 0) => format!("`{law}` matches nowhere in {name}"),
            (0, _) => format!(
                "`{law}` matches nowhere in {name}: its conditions refuse what has its form"
            ),
            (1, _) => format!("`{law}` matches once in {name}"),
            (n, _) => format!("`{law}` matches {n} times in {name}"),
        })
    }

    fn file_of(&self, shipped: &str) -> Option<PathBuf> {
        let text = stdlib::sources().iter().find(|s| s.name == shipped)?;
        let folder = store::usual_path().ok()?.parent()?.join("shipped");
        let path = folder.join(shipped);
        // As this build ships it: another one may have been here.
        if !std::fs::read_to_string(&path).is_ok_and(|t| *t == *text.text) {
            std::fs::create_dir_all(path.parent()?).ok()?;
            mlc_files::write(&path, text.text.as_bytes()).ok()?;
        }
        Some(path)
    }
}
