//! Sessions as files, so that a service starts in the time of mapping weights: a plan with its constants and the texts of the user, which is
//! run as it is, without reading, searching or comparing again. A file is in the format of safetensors: constants by their numbers, the plan
//! beside them as JSON.
//!
//! A file is made for a version of this crate and for a machine, and says which. Never trusted: what it says is typed and validated.

mod extents;
mod program;
#[cfg(test)]
mod tests;

use crate::error::{Error, ErrorKind};
use crate::stdlib;
use bytes::Bytes;
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_dsl::told;
use mlc_files::AtomicFile;
use program::SavedPlan;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// What a session is made of.
pub struct SavedSession {
    pub plan: Plan,
    pub library: Arc<Library>,
    /// Inputs that a run need not give.
    pub defaults: Vec<(String, Tensor)>,
}

/// Where the plan stands among the metadata.
const KEY: &str = "mlc-rewrite";

/// What the file holds beside tensors.
#[derive(Serialize, Deserialize)]
struct Description {
    made: Made,
    /// The texts of the user, by name.
    rules: Vec<(String, String)>,
    constants: Vec<Constant>,
    /// Inputs that a run need not give: theirs are the last constants.
    defaults: Vec<String>,
    plan: SavedPlan,
}

/// What a file is made by and for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Made {
    version: String,
    /// Of the shipped texts: layers and laws may be others at one version.
    texts: u64,
    /// What kernels are chosen for.
    machine: String,
}

/// The same, as far as all versions have it.
#[derive(Deserialize)]
struct Origin {
    made: Made,
}

/// A tensor: its bytes are a tensor of the file, unless its elements are texts.
#[derive(Serialize, Deserialize)]
struct Constant {
    #[serde(rename = "type")]
    dtype: String,
    shape: Vec<usize>,
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    texts: Option<Vec<String>>,
}

impl Made {
    fn here(machine: String) -> Made {
        static TEXTS: LazyLock<u64> = LazyLock::new(|| {
            let mut state = DefaultHasher::new();
            stdlib::sources().iter().for_each(|s| (&s.name, &s.text).hash(&mut state));
            state.finish()
        });
        Made { version: env!("CARGO_PKG_VERSION").into(), texts: *TEXTS, machine }
    }

    /// Refuses what was made elsewhere.
    fn fits(&self, here: &Made) -> Result<(), String> {
        if (&self.version, self.texts) != (&here.version, here.texts) {
            return Err(format!("it was saved by another build, of version {}", self.version));
        }
        match self.machine == here.machine {
            true => Ok(()),
            false => Err(format!("it was saved for {}, this is {}", self.machine, here.machine)),
        }
    }
}

impl Constant {
    fn of(t: &Tensor) -> Constant {
        let texts = || (0..t.len()).map(|i| t.get_str(i).to_string()).collect();
        Constant {
            dtype: t.dtype().name().into(),
            shape: t.shape().to_vec(),
            name: t.name().map(String::from),
            texts: (t.dtype() == DType::Str).then(texts),
        }
    }

    fn read(self, bytes: Bytes) -> Result<Tensor, String> {
        let dtype: DType =
            self.dtype.parse().map_err(|()| format!("`{}` is no type", told(&self.dtype)))?;
        let tensor = match (dtype, self.texts) {
            (DType::Str, Some(texts)) => Tensor::from_strings(self.shape, texts),
            (DType::Str, None) => return Err("its texts are missing".into()),
            (_, Some(_)) => return Err("it has texts".into()),
            (_, None) => Tensor::new(dtype, self.shape, bytes),
        };
        let tensor = tensor.map_err(|e| e.to_string())?;
        Ok(match self.name {
            Some(name) => tensor.named(&name),
            None => tensor,
        })
    }
}

/// The bytes of a tensor that stand in the file.
fn stored(t: &Tensor) -> &[u8] {
    if t.dtype() == DType::Str { &[] } else { t.bytes() }
}

/// Writes a session for a machine; the file takes its name when it is complete.
pub fn write(
    path: &Path,
    (plan, library): (&Plan, &Library),
    defaults: &[(String, Tensor)],
    machine: String,
) -> Result<(), Error> {
    let user = library.sources.iter().skip(stdlib::SHIPPED_TEXTS);
    let constants = plan.program.consts.iter();
    let tensors: Vec<&Tensor> = constants.chain(defaults.iter().map(|(_, t)| t)).collect();
    let description = Description {
        made: Made::here(machine),
        rules: user.map(|s| (s.name.clone(), s.text.to_string())).collect(),
        constants: tensors.iter().map(|t| Constant::of(t)).collect(),
        defaults: defaults.iter().map(|(name, _)| name.clone()).collect(),
        plan: SavedPlan::of(plan, library),
    };
    let unwritten = |e: io::Error| Error::from(mlc_files::error("write", path, e));
    written(path, &description, &tensors).map_err(unwritten)
}

fn written(path: &Path, description: &Description, tensors: &[&Tensor]) -> io::Result<()> {
    // From the largest elements to the smallest, each is aligned.
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(tensors[*i].dtype().size()));
    let mut end = 0;
    let info = |&i: &usize| {
        let (start, len) = (end, stored(tensors[i]).len());
        end += len;
        let info =
            TensorInfo { dtype: Dtype::U8, shape: vec![len], data_offsets: (start, start + len) };
        (i.to_string(), info)
    };
    let infos = order.iter().map(info).collect();
    let text = serde_json::to_string(description)?;
    let header = Metadata::new(Some(HashMap::from([(KEY.to_string(), text)])), infos);
    let mut header = serde_json::to_vec(&header.map_err(io::Error::other)?)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = AtomicFile::create(path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    order.iter().try_for_each(|&i| file.write_all(stored(tensors[i])))?;
    file.commit()
}

/// Reads a session for a machine; its constants stay in the mapped file.
///
/// # Errors
/// The file cannot be read, is damaged, or was made by another version or for another machine.
pub fn read(path: &Path, machine: String) -> Result<SavedSession, Error> {
    let bytes = mlc_files::map(path).map_err(|e| mlc_files::error("read", path, e))?;
    let place = path.display().to_string();
    let damaged = |reason: String| {
        let message = format!("{place} is no saved session: {reason}");
        let error = Error::new(ErrorKind::Model, message).at(place.clone());
        error.with_help("save one with `Session::save`")
    };
    let no_tensors = |e: safetensors::SafeTensorError| damaged(e.to_string());
    let (length, header) = SafeTensors::read_metadata(&bytes).map_err(no_tensors)?;
    let text = header.metadata().as_ref().and_then(|m| m.get(KEY));
    let text = text.ok_or_else(|| damaged("it says nothing of a plan".into()))?;
    let here = Made::here(machine);
    let origin: Origin = serde_json::from_str(text).map_err(|e| damaged(e.to_string()))?;
    origin.made.fits(&here).map_err(|reason| {
        let error = Error::new(ErrorKind::Setting, format!("{place}: {reason}")).at(place.clone());
        error.with_help("optimise the model again, and save its session here")
    })?;
    let description: Description =
        serde_json::from_str(text).map_err(|e| damaged(e.to_string()))?;
    let elements = bytes.slice(size_of::<u64>() + length..);
    let mut constants = Vec::with_capacity(description.constants.len());
    for (i, constant) in description.constants.into_iter().enumerate() {
        let info = header.info(&i.to_string());
        let info = info.ok_or_else(|| damaged(format!("constant {i} is missing")))?;
        let (start, end) = info.data_offsets;
        let read = constant.read(elements.slice(start..end));
        constants.push(read.map_err(|reason| damaged(format!("constant {i}: {reason}")))?);
    }
    let library = stdlib::sound(&description.rules, false)?;
    let own = constants.len().checked_sub(description.defaults.len());
    let own = own.ok_or_else(|| damaged("constants are missing".into()))?;
    let defaults = description.defaults.into_iter().zip(constants.split_off(own)).collect();
    let plan = description.plan.read(&constants, &library).map_err(damaged)?;
    Ok(SavedSession { plan, library, defaults })
}
