//! `completions SHELL`, and `man [VERB]`, which is generated from the argument definitions.

use super::common::Findings;
use super::terminal::{Screen, out};
use super::{NAME, completing};
use crate::names;
use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_complete::env::Shells;
use clap_mangen::Man as Page;
use std::path::PathBuf;

/// Arguments of `completions`.
#[derive(clap::Args)]
pub struct Completions {
    /// Whose completions.
    #[arg(value_enum)]
    shell: Shell,
    #[command(flatten)]
    pub(super) screen: Screen,
}

/// Arguments of `man`.
#[derive(clap::Args)]
pub struct Man {
    /// The verb; the page of the whole command if none is given.
    verb: Option<String>,
    /// Write all pages there instead.
    #[arg(long, value_name = "FOLDER", conflicts_with = "verb")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    pub(super) screen: Screen,
}

/// Prints what a shell reads. It asks the command for what may follow, so that names are those of this build.
pub fn completions(args: Completions) -> anyhow::Result<Findings> {
    let shell = args.shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&shell).context("this shell has no completions")?;
    let mut text = Vec::new();
    completer.write_registration(completing::VARIABLE, NAME, NAME, NAME, &mut text)?;
    out(&String::from_utf8_lossy(&text))?;
    Ok(Findings::Nothing)
}

/// Prints a page, or writes all.
pub fn man(args: Man, mut command: Command) -> anyhow::Result<Findings> {
    command.build();
    if let Some(folder) = &args.folder {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        mlc_files::write(&folder.join(format!("{}.1", command.get_name())), &page(&command)?)?;
        for verb in command.get_subcommands().filter(|v| v.get_name() != "help") {
            let path = folder.join(format!("{}-{}.1", command.get_name(), verb.get_name()));
            mlc_files::write(&path, &page(verb)?)?;
        }
        return Ok(Findings::Nothing);
    }
    let page = match &args.verb {
        None => page(&command)?,
        Some(name) => {
            let Some(verb) = command.find_subcommand(name) else {
                let verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
                let hint =
                    names::hint(name, &verbs, &format!("the verbs are {}", verbs.join(", ")));
                anyhow::bail!("there is no verb `{name}`{hint}");
            };
            page(verb)?
        }
    };
    out(&String::from_utf8_lossy(&page))?;
    Ok(Findings::Nothing)
}

fn page(command: &Command) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    Page::new(command.clone()).render(&mut text)?;
    Ok(text)
}
