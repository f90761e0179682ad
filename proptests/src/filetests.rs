//! Cases in text files below `tests/filetests`, one folder for each kind, and what a kind makes of a case.
//!
//! A file begins with what its cases are about, as lines that begin with `//`. A case is `## NAME: REASON`, its text and, where its kind has
//! an output, a line `---` and the output. With `MLC_BLESS` set the outputs are written, not compared.

use std::path::{Path, PathBuf};

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, unique in its kind.
    pub name: String,
    /// What it is there for.
    pub why: String,
    /// What is given.
    pub text: String,
    /// What has to come of it.
    expected: Option<String>,
}

/// The cases of a file.
#[derive(Clone, Debug)]
pub struct CaseFile {
    path: PathBuf,
    /// The file's name without its extension.
    pub name: String,
    about: String,
    /// In their order.
    pub cases: Vec<Case>,
}

/// Begins the output of a case.
const OUTPUT: &str = "---";

/// The files of a kind, by name.
///
/// # Panics
/// A file cannot be read, or what is before its first case is no comment.
pub fn files(kind: &str) -> Vec<CaseFile> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/filetests").join(kind);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|p| CaseFile::read(p)).collect()
}

impl CaseFile {
    fn read(path: &Path) -> CaseFile {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut parts = text.split("\n## ");
        let about = parts.next().unwrap_or_default().trim().to_string();
        assert!(
            about.lines().all(|l| l.starts_with("//")),
            "{}: a file begins with a comment",
            path.display()
        );
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        CaseFile { path: path.into(), name, about, cases: parts.map(Case::read).collect() }
    }

    fn written(&self) -> String {
        let mut out = format!("{}\n", self.about);
        for case in &self.cases {
            out.push_str(&format!("\n## {}: {}\n{}\n", case.name, case.why, case.text));
            if let Some(expected) = &case.expected {
                out.push_str(&format!("{OUTPUT}\n{expected}\n"));
            }
        }
        out
    }
}

impl Case {
    fn read(part: &str) -> Case {
        let (head, text) = part.split_once('\n').unwrap_or((part, ""));
        let (name, why) = head.split_once(": ").unwrap_or((head, ""));
        let output = format!("\n{OUTPUT}\n");
        let (text, expected) = match text.split_once(&output) {
            Some((text, expected)) => (text, Some(expected.trim_end().to_string())),
            None => (text, None),
        };
        Case { name: name.into(), why: why.into(), text: text.trim_end().into(), expected }
    }
}

/// Holds what `make` yields of every case of a kind against what its file says; writes the files if `MLC_BLESS` is set.
///
/// # Panics
/// Something else comes of a case, or two cases have one name.
pub fn hold(kind: &str, make: impl Fn(&Case) -> String) {
    let bless = std::env::var_os("MLC_BLESS").is_some();
    let (mut wrong, mut names) = (Vec::new(), std::collections::BTreeSet::new());
    for mut file in files(kind) {
        for case in &mut file.cases {
            assert!(
                names.insert(case.name.clone()),
                "two cases of {kind} are called {}",
                case.name
            );
            let made = make(case).trim_end().to_string();
            if case.expected.as_ref() == Some(&made) {
                continue;
            }
            let expected = case.expected.replace(made.clone()).unwrap_or_default();
            if !bless {
                let place = format!("{kind}/{}: {} ({})", file.name, case.name, case.why);
                wrong.push(format!("{place}\nexpected:\n{expected}\nfound:\n{made}\n"));
            }
        }
        if bless {
            let path = &file.path;
            std::fs::write(path, file.written())
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
    assert!(!names.is_empty(), "there are no cases of {kind}");
    let all = wrong.len();
    assert!(
        all == 0,
        "{all} cases differ; MLC_BLESS=1 writes what is found:\n\n{}",
        wrong.join("\n")
    );
}
