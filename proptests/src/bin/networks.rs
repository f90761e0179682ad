//! `networks FOLDER [N]` writes every network of [`mlc_proptests::networks`] in N spellings, three if no number is given, to
//! FOLDER/NAME-SEED/model.onnx.

use mlc_onnx::write_onnx;
use mlc_proptests::networks::{NETWORKS, spelled};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.as_slice() {
        [folder] => write(Path::new(folder), 3),
        [folder, n] => match n.parse() {
            Ok(n) => write(Path::new(folder), n),
            Err(_) => Err(format!("`{n}` is no number")),
        },
        _ => Err("a folder is needed".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}\nusage: networks FOLDER [N]");
            ExitCode::from(2)
        }
    }
}

fn write(folder: &Path, spellings: u64) -> Result<(), String> {
    for network in NETWORKS {
        for seed in 0..spellings {
            let to = folder.join(format!("{}-{seed}", network.0));
            std::fs::create_dir_all(&to).map_err(|e| format!("{}: {e}", to.display()))?;
            write_onnx(&spelled(network, seed), to.join("model.onnx"))
                .map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}
