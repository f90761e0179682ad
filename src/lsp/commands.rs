//! What takes longer than a keystroke, on threads of its own: checks of laws, and searches in models.
//!
//! A request that is cancelled is answered at once; what its thread finds later is dropped.

use crate::Host;
use crate::diagnostics::Finding;
use crate::outline::{CHECK, FIND};
use crate::workspace::Workspace;
use crossbeam_channel::Sender;
use lsp_server::RequestId;
use lsp_types::ExecuteCommandParams;
use mlc_dsl::library::Library;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a thread found.
pub struct Done {
    /// The request that asked for it.
    pub id: RequestId,
    /// The document, as it was then.
    pub uri: String,
    /// Its version then.
    pub version: i32,
    /// The answer, for people; or why there is none.
    pub told: Result<String, String>,
    /// What it says of a law, to be shown where the law is.
    pub finding: Option<Finding>,
}

/// What is asked for.
enum Task {
    Check,
    Find(PathBuf),
}

/// Starts a command.
///
/// # Errors
/// There is no such command, document or law; the text says why.
pub fn start(
    id: RequestId,
    params: &ExecuteCommandParams,
    workspace: &mut Workspace,
    host: &Arc<dyn Host>,
    done: &Sender<Done>,
) -> Result<(), String> {
    let text = |i: usize| params.arguments.get(i).and_then(|a| a.as_str()).map(str::to_string);
    let (Some(uri), Some(law)) = (text(0), text(1)) else {
        return Err("the arguments are a document and a law".into());
    };
    let task = match (params.command.as_str(), text(2)) {
        (CHECK, _) => Task::Check,
        (FIND, Some(model)) => Task::Find(workspace.below_root(Path::new(&model))),
        (FIND, None) => return Err("the third argument is a model".into()),
        (other, _) => return Err(format!("there is no command `{other}`")),
    };
    let Some(analysis) = workspace.analysis(&uri) else {
        return Err(format!("{uri} is not open"));
    };
    let library = analysis.library.clone();
    if !library.laws.iter().any(|l| l.declared_name() == law) {
        return Err(format!("`{law}` is no law as it is written: its mistakes come first"));
    }
    let version = workspace.documents().get(&uri).map_or(0, |d| d.version);
    let texts = analysis.besides_shipped();
    let (host, done) = (host.clone(), done.clone());
    let work = move || {
        let (told, finding) = match (&task, texts) {
            (Task::Check, _) => check(&*host, &library, &law),
            (Task::Find(model), Some(texts)) => (host.find(&texts, &law, model), None),
            (Task::Find(_), None) => {
                let why = "models are read with the shipped texts of this build, not with an edition of them";
                (Err(why.into()), None)
            }
        };
        // Whoever asked may have gone.
        let _ = done.send(Done { id, uri, version, told, finding });
    };
    let spawned = std::thread::Builder::new().stack_size(STACK).spawn(work);
    spawned.map(|_| ()).map_err(|e| format!("no thread can be started: {e}"))
}

/// Terms nest: what walks them recurses.
const STACK: usize = 64 << 20;

fn check(
    host: &dyn Host,
    library: &Arc<Library>,
    law: &str,
) -> (Result<String, String>, Option<Finding>) {
    match host.check(library, law) {
        Ok(verdict) => {
            let told = verdict.summary.clone();
            (Ok(told), Some(Finding { law: law.to_string(), verdict }))
        }
        Err(why) => (Err(why), None),
    }
}
