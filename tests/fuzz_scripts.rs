//! The scripts of `fuzz/` that need ONNX Runtime, on a few models each; skipped where the Python of `MLC_PYTHON`, or else `python3`, has no ONNX Runtime.

use std::path::Path;
use std::process::Command;

/// Runs a script with the tool that was built for this test; what it said if it ended well, else what is wrong.
fn script(name: &str, args: &[&str]) -> Option<Result<String, String>> {
    let python = std::env::var("MLC_PYTHON").unwrap_or_else(|_| "python3".into());
    let needed = Command::new(&python).args(["-c", "import numpy, onnx, onnxruntime"]).output();
    if !needed.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: {python} has no onnxruntime");
        return None;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(name);
    let mut command = Command::new(&python);
    command.arg(path).args(["--tool", env!("CARGO_BIN_EXE_mlc-rewrite"), "--jobs", "1"]).args(args);
    let out = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    Some(if out.status.success() { Ok(said) } else { Err(format!("{said}\n{errors}")) })
}

#[test]
fn open_axes_are_swept() {
    let few =
        ["--time", "120", "--kinds", "operators", "--operators", "Relu,Concat", "--opsets", "17"];
    let Some(said) = script("open_axes.py", &few) else { return };
    let said = said.unwrap_or_else(|e| panic!("{e}"));
    assert!(said.contains(" sets of extents, "), "{said}");
}
