//! Runs the built command-line tool as users do.

use std::path::Path;
use std::process::Command;

/// Runs `mlc-rewrite`, which stands beside the running program, and reads the report that it writes to
/// `json`.
///
/// # Errors
/// The tool is not built, fails, or writes no report; says which.
pub fn report(args: &[&str], json: &Path) -> Result<serde_json::Value, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let tool = own.with_file_name("mlc-rewrite");
    let done = Command::new(&tool).args(args).arg("--json").arg(json).output();
    let done = done.map_err(|e| format!("{}: {e}; build it first", tool.display()))?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    let text = std::fs::read_to_string(json).map_err(|e| e.to_string())?;
    serde_json::from_str(&text).map_err(|e| e.to_string())
}
