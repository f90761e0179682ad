//! Search for NVIDIA's libraries: on the library path, in a CUDA toolkit, or in a Python package, as PyTorch brings them.

use libloading::Library;
use std::env;
use std::path::{Path, PathBuf};

/// Names of a library by its major versions, in the order of the search. A driver does not run what is made for a later one.
pub fn names(stem: &str, majors: &[u32], driver: Option<u32>) -> Vec<String> {
    let usable = majors.iter().filter(|&&m| driver.is_none_or(|d| m <= d));
    usable.map(|m| format!("{stem}.{m}")).collect()
}

/// The file of a path that may be its folder.
pub fn within(path: &Path, names: &[String]) -> Option<PathBuf> {
    match path.is_dir() {
        true => names.iter().map(|name| path.join(name)).find(|file| file.is_file()),
        false => Some(path.to_path_buf()),
    }
}

/// Where a library of these names may be. Folders are listed only once what comes before them was not taken.
pub fn candidates(names: &[String]) -> impl Iterator<Item = PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let usual = ["/usr/local/cuda", "/usr/local/cuda-13", "/usr/local/cuda-12", "/opt/cuda"];
    let folders = homes.chain(usual.map(PathBuf::from));
    let packages = std::iter::once_with(|| packages(&installations())).flatten();
    let folders = folders.map(|f| f.join("lib64")).chain(packages);
    let inside = folders.flat_map(|f| names.iter().map(move |n| f.join(n)));
    names.iter().map(PathBuf::from).chain(inside)
}

/// Where Python is installed: the interpreter that `MLC_PYTHON` names, the environment that is active, the first interpreter on the path,
/// what the user has installed, and what the system has. No interpreter is started.
fn installations() -> Vec<PathBuf> {
    let variable = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    // The folder `bin` lies in the installation.
    let of_program = |program: &Path| Some(program.parent()?.parent()?.to_path_buf());
    let path = env::var_os("PATH").unwrap_or_default();
    let mut programs = env::split_paths(&path).map(|folder| folder.join("python3"));
    let named = variable("MLC_PYTHON").as_deref().and_then(of_program);
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    let first = programs.find(|p| p.is_file()).as_deref().and_then(of_program);
    let own = variable("HOME").map(|home| home.join(".local"));
    let system = ["/usr/local", "/usr"].map(PathBuf::from);
    let mut out: Vec<PathBuf> = vec![];
    for folder in named.into_iter().chain(active).chain(first).chain(own).chain(system) {
        if !out.contains(&folder) {
            out.push(folder);
        }
    }
    out
}

/// The folders of libraries in the packages of these installations: those of NVIDIA's, and what Conda installs.
fn packages(installations: &[PathBuf]) -> Vec<PathBuf> {
    let inside = |folder: &Path, is_wanted: &dyn Fn(&str) -> bool| -> Vec<PathBuf> {
        let entries = folder.read_dir().into_iter().flatten().flatten();
        let wanted = |name: &std::ffi::OsStr| name.to_str().is_some_and(is_wanted);
        let mut found: Vec<PathBuf> =
            entries.filter(|e| wanted(&e.file_name())).map(|e| e.path()).collect();
        found.sort();
        found
    };
    let mut out = vec![];
    for installation in installations {
        let lib = installation.join("lib");
        if installation.join("conda-meta").is_dir() {
            out.push(lib.clone());
        }
        for python in inside(&lib, &|name| name.starts_with("python3")) {
            for kind in ["site-packages", "dist-packages"] {
                let all = inside(&python.join(kind).join("nvidia"), &|_| true);
                out.extend(all.into_iter().map(|p| p.join("lib")).filter(|p| p.is_dir()));
            }
        }
    }
    out
}

/// Opens a library whose loading runs only its own initialisation; the variable names its file or folder in place of a search.
pub fn open(
    stem: &str,
    majors: &[u32],
    variable: &str,
    driver: Option<u32>,
) -> Result<Library, String> {
    let names = names(stem, majors, driver);
    // SAFETY: as the caller says.
    let opened = |path: &Path| unsafe { Library::new(path) };
    if let Some(path) = env::var_os(variable).map(PathBuf::from) {
        let file = within(&path, &names).ok_or_else(|| {
            format!("{variable} names a folder without a {stem}.N that the driver takes")
        })?;
        return opened(&file)
            .map_err(|e| format!("{variable} names a file that cannot be opened: {e}"));
    }
    candidates(&names).find_map(|path| opened(&path).ok()).ok_or_else(|| {
        let all = names.join(" and ");
        format!(
            "{all} cannot be opened on the library path, in a usual folder of the CUDA toolkit or in a package of Python's; {variable} may name the file"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn packages_of_every_installation_are_found_in_order() {
        let root = env::temp_dir().join(format!("mlc-packages-{}", std::process::id()));
        let folders = [
            "venv/lib/python3.12/site-packages/nvidia/cu13/lib",
            "venv/lib/python3.12/site-packages/nvidia/cudnn/lib",
            "system/lib/python3/dist-packages/nvidia/cuda_nvrtc/lib",
            "conda/lib/python3.11/site-packages/numpy",
        ];
        for folder in folders.iter().chain(["conda/conda-meta", "venv/lib/python2"].iter()) {
            fs::create_dir_all(root.join(folder)).expect("made");
        }
        // A file where a folder is looked for.
        let file = root.join("system/lib/python3/dist-packages/nvidia/__init__.py");
        fs::write(file, "").expect("written");
        let all = ["none", "venv", "conda", "system"].map(|name| root.join(name));
        let expected = [folders[0], folders[1], "conda/lib", folders[2]].map(|f| root.join(f));
        assert_eq!(packages(&all), expected);
        fs::remove_dir_all(&root).expect("removed");
    }
}
