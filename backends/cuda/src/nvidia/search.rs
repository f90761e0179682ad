//! Where NVIDIA's libraries lie: those that the driver can use, on the library path or in a folder of the CUDA toolkit.

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

/// Where a library of these names may be.
pub fn candidates(names: &[String]) -> Vec<PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let usual = ["/usr/local/cuda", "/usr/local/cuda-13", "/usr/local/cuda-12", "/opt/cuda"];
    let folders = homes.chain(usual.map(PathBuf::from));
    let inside = folders
        .flat_map(|f| names.iter().map(move |n| f.join("lib64").join(n)).collect::<Vec<_>>());
    names.iter().map(PathBuf::from).chain(inside).collect()
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
    candidates(&names).iter().find_map(|path| opened(path).ok()).ok_or_else(|| {
        let all = names.join(" and ");
        format!(
            "{all} cannot be opened on the library path or in a usual folder of the CUDA toolkit; {variable} may name the file"
        )
    })
}
