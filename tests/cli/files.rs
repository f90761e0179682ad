//! Files: what is refused before any work, what happens when writing fails or the process dies, and standard streams.

use super::{EGRAPH, TEXT, model, run};
use mlc_onnx::*;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Not a test of its own: the process that is killed, and whose files are limited.
#[test]
fn the_child_that_writes() {
    let Some(path) = std::env::var_os("FILES_CHILD") else { return };
    if let Some(limit) = std::env::var("FILES_LIMIT").ok().and_then(|v| v.parse().ok()) {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: both calls concern this process alone, which runs nothing but this.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
        }
    }
    let external = match std::env::var_os("FILES_EXTERNAL") {
        Some(_) => ExternalData::Always,
        None => ExternalData::Never,
    };
    if let Err(e) = write_onnx_with(&model(2.0), PathBuf::from(path), external) {
        assert!(e.help().is_some(), "{e}");
        std::process::exit(3);
    }
}

/// Writes the second model to `path` in a process of its own, with this in its environment.
fn write_apart(path: &Path, external: bool, faults: &[(&str, String)]) -> Output {
    let mut child = Command::new(std::env::current_exe().expect("a program"));
    child.args(["--exact", "cli::files::the_child_that_writes"]).env("FILES_CHILD", path);
    if external {
        child.env("FILES_EXTERNAL", "1");
    }
    child.envs(faults.iter().map(|(k, v)| (*k, v.as_str()))).output().expect("runs")
}

/// How a process ended that was to write.
#[derive(PartialEq, Debug)]
enum End {
    Written,
    Refused,
    Killed,
}

fn end(out: &Output) -> End {
    match (out.status.signal(), out.status.code()) {
        (Some(libc::SIGKILL), _) => End::Killed,
        (_, Some(3)) => End::Refused,
        (_, Some(0)) => End::Written,
        _ => panic!("{:?}\n{}", out.status, String::from_utf8_lossy(&out.stderr)),
    }
}

/// What lies in a folder.
fn listing(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> =
        entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// How many files lie in a folder that were never completed.
fn unfinished(folder: &Path) -> usize {
    listing(folder).iter().filter(|n| n.starts_with(".mlc-rewrite-")).count()
}

#[test]
fn what_others_are_writing_is_left_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let theirs = File::create(at(".mlc-rewrite-theirs")).expect("a file");
    theirs.lock().expect("locks");
    fs::write(at(".mlc-rewrite-left"), "behind").expect("written");
    fs::create_dir(at(".mlc-rewrite-folder")).expect("a folder");
    write_onnx(&model(1.0), at("m.onnx")).expect("written");
    assert_eq!(listing(dir.path()), [".mlc-rewrite-folder", ".mlc-rewrite-theirs", "m.onnx"]);
    drop(theirs);
    write_onnx(&model(2.0), at("m.onnx")).expect("written");
    assert_eq!(listing(dir.path()), [".mlc-rewrite-folder", "m.onnx"]);
}

#[test]
fn the_old_model_or_the_new_one_is_whole_after_every_fault() {
    if !cfg!(debug_assertions) {
        eprintln!("skipped: a build without debug assertions has no faults");
        return;
    }
    let (old, new) = (model(1.0), model(2.0));
    for (external, link) in [(false, false), (true, false), (false, true)] {
        let external_data = if external { ExternalData::Always } else { ExternalData::Never };
        let mut counts = [0; 2];
        // Every step of writing is a place to be killed at, and one to find the disk full.
        for (kind, count) in ["kill", "full"].iter().zip(&mut counts) {
            for step in 0.. {
                let dir = tempfile::tempdir().expect("a folder");
                let path = dir.path().join("m.onnx");
                write_onnx_with(&old, &path, external_data).expect("written");
                let before = listing(dir.path());
                let named = if link { dir.path().join("link.onnx") } else { path.clone() };
                if link {
                    symlink(&path, &named).expect("a link");
                }
                let fault = ("MLC_REWRITE_FAULT", format!("{kind}:{step}"));
                let ended = end(&write_apart(&named, external, &[fault]));
                let read = read_onnx(&path).expect("a whole model");
                assert!(read == old || read == new, "{kind} at step {step}");
                match ended {
                    // So it is, too, if the old one's data could not be removed.
                    End::Written => assert!(read == new),
                    End::Refused => {
                        assert!(read == old, "an error changes nothing");
                        let now: Vec<String> =
                            listing(dir.path()).into_iter().filter(|n| n != "link.onnx").collect();
                        assert_eq!(now, before, "an error leaves nothing");
                    }
                    End::Killed => {
                        write_onnx(&old, dir.path().join("other.onnx")).expect("written");
                        assert_eq!(unfinished(dir.path()), 0, "the next one tidies up");
                    }
                }
                assert!(!link || fs::symlink_metadata(&named).expect("there").is_symlink());
                if ended == End::Written && step > 40 {
                    break;
                }
                *count += usize::from(ended != End::Written);
            }
        }
        assert!(counts.iter().all(|&n| n >= 25), "{counts:?}");
    }
}

#[test]
fn a_limit_on_the_size_of_files_leaves_the_old_model() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("m.onnx");
    for external in [false, true] {
        let external_data = if external { ExternalData::Always } else { ExternalData::Never };
        write_onnx_with(&model(1.0), &path, external_data).expect("written");
        let before = listing(dir.path());
        for i in 0..25 {
            let limit = ("FILES_LIMIT", (i * 65_536 + 1000).to_string());
            assert_eq!(end(&write_apart(&path, external, &[limit])), End::Refused);
            assert!(read_onnx(&path).expect("whole") == model(1.0));
            assert_eq!(listing(dir.path()), before);
        }
    }
}

#[test]
fn data_files_have_names_of_their_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let write = |model: &RawModel, name: &str, external: bool| {
        let external = if external { ExternalData::Always } else { ExternalData::Never };
        write_onnx_with(model, at(name), external).expect("written");
        listing(dir.path())
    };
    assert_eq!(write(&model(1.0), "m.onnx", true), ["m.onnx", "m.onnx.data"]);
    assert_eq!(write(&model(1.0), "m.onnx", true), ["m.onnx", "m.onnx.data"]);
    // In place: the old data goes when nothing needs it.
    assert_eq!(write(&model(2.0), "m.onnx", true), ["m.onnx", "m.onnx.1.data"]);
    // A copy of the model still needs them.
    fs::copy(at("m.onnx"), at("kept.onnx")).expect("copied");
    let all = ["kept.onnx", "m.onnx", "m.onnx.1.data", "m.onnx.data"];
    assert_eq!(write(&model(3.0), "m.onnx", true), all);
    assert!(read_onnx(at("kept.onnx")).expect("whole") == model(2.0));
    assert!(read_onnx(at("m.onnx")).expect("whole") == model(3.0));
    fs::remove_file(at("kept.onnx")).expect("removed");
    // Into one file: no data file is needed any more.
    assert_eq!(write(&model(3.0), "m.onnx", false), ["m.onnx", "m.onnx.1.data"]);
    // Other people's names are left alone, whoever refers to them.
    fs::write(at("n.onnx.data"), "other").expect("written");
    let names = write(&model(4.0), "n.onnx", true);
    assert!(names.contains(&"n.onnx.1.data".to_string()), "{names:?}");
    assert_eq!(fs::read(at("n.onnx.data")).expect("there"), b"other");
    // A link and its target have one data file, in one of two folders.
    symlink(at("n.onnx"), at("l.onnx")).expect("a link");
    let e = write_onnx_with(&model(5.0), at("l.onnx"), ExternalData::Always).expect_err("refused");
    assert!(e.to_string().contains("symbolic link"), "{e}");
    assert!(read_onnx(at("l.onnx")).expect("whole") == model(4.0));
}

/// A folder with everything that may be in the way.
fn obstacles() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    write_onnx(&model(1.0), at("m.onnx")).expect("written");
    fs::write(at("f.rules"), TEXT).expect("written");
    fs::write(at("old.onnx"), "old").expect("written");
    fs::hard_link(at("old.onnx"), at("hard.onnx")).expect("a link");
    symlink("old.onnx", at("soft.onnx")).expect("a link");
    symlink("new.onnx", at("dangling.onnx")).expect("a link");
    symlink("a.onnx", at("b.onnx")).expect("a link");
    symlink("b.onnx", at("a.onnx")).expect("a link");
    fs::write(at("fixed.onnx"), "old").expect("written");
    fs::set_permissions(at("fixed.onnx"), fs::Permissions::from_mode(0o444)).expect("permitted");
    fs::create_dir(at("folder")).expect("a folder");
    fs::write(at("latin.rules"), [0xe9]).expect("written");
    let made = Command::new("mkfifo").arg(at("pipe")).status().expect("a pipe");
    assert!(made.success());
    dir
}

#[test]
fn files_that_cannot_be_are_refused_before_any_work() {
    let dir = obstacles();
    let before = listing(dir.path());
    for (args, reason) in [
        (&["optimize", "m.onnx", "-o", "x.onnx", "--json", "x.onnx"][..], "are one file"),
        (&["optimize", "m.onnx", "-o", "x.onnx", "--json", "./folder/../x.onnx"], "are one file"),
        (&["optimize", "m.onnx", "-o", "old.onnx", "--json", "soft.onnx"], "are one file"),
        (&["optimize", "m.onnx", "-o", "old.onnx", "--json", "hard.onnx"], "are one file"),
        (&["optimize", "m.onnx", "-o", "new.onnx", "--json", "dangling.onnx"], "are one file"),
        (&["optimize", "m.onnx", "-o", "x.onnx", "--json", "m.onnx"], "--json and MODEL"),
        (&["optimize", "m.onnx", "-o", "x.onnx", "--json", "x.onnx.data"], "the data file"),
        (&["optimize", "m.onnx", "-o", "-", "--json", "-"], "are one file"),
        (&["optimize", "-", "-o", "x.onnx", "--rules", "-"], "are one file"),
        (&["run", "f.rules", "--outputs", "y.npz", "--json", "y.npz"], "are one file"),
        (&["run", "f.rules", "--outputs", "f.rules"], "--outputs and MODEL"),
        (&["bench", "f.rules", "--kernels", "--svg", "f.rules"], "--svg and MODEL"),
        (&["optimize", "m.onnx", "-o", "folder"], "not a regular file but a folder"),
        (&["optimize", "m.onnx", "-o", "x/"], "names a folder"),
        (&["optimize", "m.onnx", "-o", "none/x.onnx"], "the folder none"),
        (&["optimize", "m.onnx", "-o", "fixed.onnx"], "is read-only"),
        (&["optimize", "m.onnx", "-o", "pipe"], "a pipe"),
        (&["optimize", "m.onnx", "-o", "a.onnx"], "in a circle"),
        (&["optimize", "m.onnx", "-o", "/dev/fd/1"], "a stream of this process"),
        (&["optimize", "pipe", "-o", "x.onnx"], "a pipe"),
        (&["optimize", "none.onnx", "-o", "x.onnx"], "cannot read none.onnx"),
        (&["show", "/dev/zero"], "a device"),
        (&["show", "folder"], "a folder"),
        (&["check", "/dev/zero"], "a device"),
        (&["check", "pipe"], "a pipe"),
        (&["fmt", "pipe"], "a pipe"),
        (&["fmt", "/dev/zero"], "a device"),
        (&["fmt", "latin.rules"], "not UTF-8"),
        (&["extract", "/dev/zero"], "a device"),
        (&["extract", "pipe"], "a pipe"),
        (&["run", "f.rules", "--profile", "/dev/zero"], "a device"),
        (&["run", "f.rules", "--store", "pipe"], "a pipe"),
        (&["run", "f.rules", "--inputs", "pipe"], "a pipe"),
        (&["run", "f.rules", "--input", "x=pipe"], "a pipe"),
        (&["run", "f.rules", "--rules", "/dev/zero"], "a device"),
    ] {
        let (code, out, said) = run(dir.path(), args, b"");
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(
            said.contains(reason) && said.contains("help: "),
            "{args:?}: {said}\nlacks {reason}"
        );
        assert!(out.is_empty());
    }
    assert_eq!(listing(dir.path()), before);
    assert_eq!(fs::read(dir.path().join("old.onnx")).expect("there"), b"old");
}

#[test]
fn models_go_through_streams_and_links() {
    let dir = obstacles();
    let at = |name: &str| dir.path().join(name);
    let bytes = fs::read(at("m.onnx")).expect("a model");
    let optimize = |args: &[&str], input: &[u8]| {
        let rest = ["--no-check", "--rounds", "1", "--no-sharing", "-q"];
        run(dir.path(), &[&["optimize"], args, &rest].concat(), input)
    };
    // From a pipe into a pipe.
    let (code, out, said) = optimize(&["-", "-o", "-"], &bytes);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let streamed = parse_onnx(out.into(), None).expect("a model");
    // A symbolic link stays one, whether its target is there or not; what is discarded is discarded.
    for name in ["soft.onnx", "dangling.onnx", "/dev/null"] {
        let (code, out, said) = optimize(&["m.onnx", "-o", name], b"");
        assert_eq!((code, said.as_str(), out.len()), (Some(0), "", 0), "{name}");
    }
    for (link, target) in [("soft.onnx", "old.onnx"), ("dangling.onnx", "new.onnx")] {
        assert!(fs::symlink_metadata(at(link)).expect("there").is_symlink());
        assert!(read_onnx(at(target)).expect("a model") == streamed);
    }
    let other_name = std::ffi::OsStr::new("m\u{e9}.onnx").to_os_string();
    let other_name = {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let mut bytes = other_name.as_bytes().to_vec();
        bytes.push(0xff);
        std::ffi::OsString::from_vec(bytes)
    };
    // A name that is no UTF-8 is a name like any other.
    fs::copy(at("m.onnx"), dir.path().join(&other_name)).expect("copied");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"));
    command.args(["optimize", "--no-check", "--rounds", "1", "-q"]).current_dir(dir.path());
    let out = command.arg(&other_name).arg("-o").arg(&other_name).output().expect("runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(read_onnx(dir.path().join(&other_name)).expect("a model") == streamed);
    // A text from standard input, with the report on standard output and nothing else.
    let (code, out, said) = run(dir.path(), &["run", "-", "--json", "-", "-q"], TEXT.as_bytes());
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(report["outputs"]["y"]["shape"], serde_json::json!([2, 3]));
    let (code, out, _) = run(dir.path(), &["fmt", "-"], b"def f(x: F[..s]) -> F[..s]\n      = x\n");
    assert_eq!((code, &out[..]), (Some(0), &b"def f(x: F[..s]) -> F[..s]\n  = x\n"[..]));
}

/// A store that cannot be written is not called damaged, and what it held is there.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults are injected into debug builds")]
fn a_full_disk_is_no_damage() {
    let dir = obstacles();
    let calibrate = |fault: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"));
        command.args(["calibrate", "--time", "0", "--store", "times.rows"]);
        let out = command.current_dir(dir.path()).env("MLC_REWRITE_FAULT", fault).output();
        let out = out.expect("ends");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, said) = calibrate("full:1");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("cannot write times.rows") && said.contains("free space"), "{said}");
    assert!(!said.contains("damaged") && !dir.path().join("times.rows").exists(), "{said}");
    assert_eq!(calibrate("full:1000").0, Some(0));
    assert!(dir.path().join("times.rows").exists());
}

#[test]
fn a_closed_or_full_standard_output_is_no_panic() {
    let dir = obstacles();
    fs::write(dir.path().join("e.json"), EGRAPH).expect("written");
    for args in [
        &["show", "f.rules"][..],
        &["explain", "gelu"],
        &["explain", "f.rules"],
        &["check", "f.rules", "--samples", "1"],
        &["fmt", "--stdout", "f.rules"],
        &["extract", "e.json"],
        &["run", "f.rules", "--no-check"],
        &["run", "f.rules", "--no-check", "--outputs", "-"],
        &["optimize", "m.onnx", "-o", "-", "--no-check", "--rounds", "1"],
        &["optimize", "m.onnx", "-o", "x.onnx", "--json", "-", "--no-check", "--rounds", "1"],
        &["bench", "f.rules", "--no-check", "--iterations", "1"],
        &["bench", "f.rules", "--no-check", "--seconds", "0", "--kernels", "--svg", "-"],
        &["fuzz", "--cases", "1"],
        &["calibrate", "--time", "0", "--store", "times.rows"],
    ] {
        let start = |out: Stdio, err: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"));
            command.args(args).current_dir(dir.path()).stdin(Stdio::null()).stdout(out).stderr(err);
            command.spawn().expect("starts").wait_with_output().expect("ends")
        };
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let out = start(writer.into(), Stdio::piped());
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{args:?}: {said}");
        assert!(!said.contains("panicked") && !said.contains("error"), "{args:?}: {said}");
        let full = || File::options().write(true).open("/dev/full").expect("a device");
        let out = start(full().into(), Stdio::piped());
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("standard output") || said.contains("No space"), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
    }
    // Nor is a full standard error.
    let full = File::options().write(true).open("/dev/full").expect("a device");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"));
    let done = command.args(["show", "none"]).stderr(full).status().expect("runs");
    assert_eq!(done.code(), Some(2));
}
