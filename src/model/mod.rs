//! Models: read from a file, from bytes or from a text, with the rules that they are read with.

mod architectures;
#[cfg(feature = "cli")]
pub(crate) mod coverage;
pub(crate) mod file_kind;
mod input_shapes;
mod input_values;
mod reader;
#[doc(hidden)]
pub mod recognition;
#[doc(hidden)]
pub mod rules_model;
mod tensor_info;

pub use reader::Reader;

use crate::error::{Error, ErrorKind};
use crate::{show, stack::with_room};
use bytes::Bytes;
use mlc_dsl::ir::Program;
use mlc_dsl::library::{Law, Library};
use mlc_dsl::shown;
use mlc_onnx::graphdiff::{Difference, compare};
#[cfg(feature = "cli")]
use mlc_onnx::import;
use mlc_onnx::{ImportError, Imported, Loops, ModelInfo, RawModel, import_with_opaque_nodes};
use mlc_weights::{Metadata, WeightFile};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use tensor_info::TensorInfo;
pub(crate) use tensor_info::{input_names, inputs, outputs};

/// A model: what is computed, and the declarations that it is read with. Cloning shares the weights.
#[derive(Clone)]
pub struct Model {
    pub(crate) library: Arc<Library>,
    pub(crate) program: Program,
    pub(crate) info: Option<ModelInfo>,
    entry: Option<String>,
    notes: Vec<String>,
    reader: Reader,
    source: Arc<ModelSource>,
    /// Inputs of the file that were read as constants, since they decide shapes.
    bound: Vec<String>,
    /// The file as it was read, with the shapes and values that were asked for; `None` of a text, and where data decided what is read.
    read_as: Option<Arc<RawModel>>,
    /// Symbols that had to be equal, or a number, for the model to be read; they are told.
    assumed: Vec<(String, String)>,
}

/// What a model was read from, to be read again with other rules or shapes.
enum ModelSource {
    Onnx { raw: Box<RawModel>, path: Option<PathBuf> },
    Text { name: String, text: String },
    Weights(WeightFile),
}

impl Model {
    /// Reads a model: an ONNX file; a text that ends in `.rules`, whose last `def` it is; a GGUF file, or a folder with
    /// `config.json` and `*.safetensors`, of an architecture that a text declares. `-` is standard input.
    /// Weights stay in the mapped file.
    ///
    /// # Errors
    /// The file cannot be read, is no model, or holds what is not supported.
    pub fn read(path: impl AsRef<Path>) -> Result<Model, Error> {
        Reader::new().read(path)
    }

    /// Reads an ONNX model from memory. Weights in other files are not found.
    ///
    /// # Errors
    /// The bytes are no model, or one that holds what is not supported.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Model, Error> {
        Reader::new().from_bytes(bytes)
    }

    /// Reads a `.rules` text: its last `def` is the model, the parameters are the inputs.
    ///
    /// # Errors
    /// The text has mistakes, or inputs whose number of axes is open: [`Reader::shape`] gives shapes.
    pub fn from_rules(text: impl Into<String>) -> Result<Model, Error> {
        Reader::new().from_rules(text)
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> Vec<TensorInfo> {
        inputs(&self.program)
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> Vec<TensorInfo> {
        outputs(&self.program)
    }

    /// What is odd about the model and does not matter to its values, and what had to be assumed of its symbols.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The same model with more rules and shapes than it was read with.
    ///
    /// # Errors
    /// As when it is read.
    pub fn read_with(&self, more: &Reader) -> Result<Model, Error> {
        let mut reader = self.reader.clone();
        reader.rules.extend(more.rules.iter().cloned());
        reader.shapes.extend(&more.shapes);
        reader.values.extend(&more.values);
        reader.options.extend(more.options.iter().cloned());
        with_room(|| match &*self.source {
            ModelSource::Onnx { raw, path } => reader.understand((**raw).clone(), path.as_deref()),
            ModelSource::Text { name, text } => reader.entered(name.clone(), text.clone()),
            ModelSource::Weights(file) => reader.weighed(file.clone()),
        })
    }

    /// How the graph of another ONNX model differs from this one's.
    ///
    /// # Errors
    /// One of the two is no ONNX model.
    pub fn difference(&self, other: &Model) -> Result<Difference, Error> {
        let graph = |model: &Model| {
            let none = || Error::new(ErrorKind::Model, "a text is no graph of ONNX");
            let help = "optimise it and compare what is written, or compare the texts";
            model.raw()?.ok_or_else(|| none().with_help(help))
        };
        Ok(compare(&graph(self)?, &graph(other)?, &self.library))
    }

    /// The computation as a text of the language.
    pub fn text(&self) -> String {
        show::program(&self.program, &self.library, "model")
    }

    /// The declarations that it was read with.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// The same model with the nodes kept as they are that cannot be written at an operator set, or whose declaration says so.
    ///
    /// # Errors
    /// As when it is read.
    pub(crate) fn written_at(self, opset: i64) -> Result<Model, Error> {
        let mut model = self;
        let source = model.source.clone();
        let ModelSource::Onnx { raw, path } = &*source else { return Ok(model) };
        let mut keep = mlc_onnx::declared_opaque(raw, &model.library);
        loop {
            let Some(info) = &model.info else { return Ok(model) };
            // A node can only be kept at its own operator set.
            let loops = match opset == info.opset() && mlc_onnx::has_loops(raw) {
                true => Loops::Kept,
                false => Loops::WrittenOut,
            };
            let is_read = loops == model.reader.loops;
            keep.retain(|n| !model.reader.kept.contains(n));
            if keep.is_empty() && is_read {
                keep = mlc_onnx::unwritten(&model.program, &model.library, info, opset);
                keep.retain(|n| !model.reader.kept.contains(n));
                let is_spelled =
                    || mlc_onnx::spelled_out(&model.program, &model.library, info, opset).is_some();
                if opset != info.opset() && is_spelled() {
                    keep.clear();
                }
            }
            if keep.is_empty() && is_read {
                return Ok(model);
            }
            let mut reader = Reader { loops, ..model.reader.clone() };
            reader.kept.append(&mut keep);
            model = with_room(|| reader.understand((**raw).clone(), path.as_deref()))?;
        }
    }

    /// The same model, read with these nodes kept as they are.
    ///
    /// # Errors
    /// As when it is read.
    pub(crate) fn keeping(&self, names: &BTreeSet<String>) -> Result<Model, Error> {
        let ModelSource::Onnx { raw, path } = &*self.source else { return Ok(self.clone()) };
        let mut reader = self.reader.clone();
        reader.kept.extend(names.iter().cloned());
        with_room(|| reader.understand((**raw).clone(), path.as_deref()))
    }

    /// Those of these nodes that can be written as they are where operators of these domains run: they are of the file, each has
    /// a name of its own, and no bodies.
    pub(crate) fn may_stay(
        &self,
        names: &BTreeSet<String>,
        domains: &BTreeMap<String, i64>,
    ) -> BTreeSet<String> {
        let ModelSource::Onnx { raw, .. } = &*self.source else { return BTreeSet::new() };
        mlc_onnx::may_stay(&raw.graph, names, domains)
    }

    /// Nodes of the file's graph; none of a `.rules` text.
    #[cfg(feature = "cli")]
    pub(crate) fn file_nodes(&self) -> usize {
        let ModelSource::Onnx { raw, .. } = &*self.source else { return 0 };
        raw.graph.nodes.len()
    }

    /// True if there are nodes or inputs that the program does not contain.
    pub(crate) fn keeps_nodes(&self) -> bool {
        let all = self.info.iter().map(|i| &i.opaque);
        all.into_iter().any(|o| !o.nodes.is_empty() || !o.inputs.is_empty())
    }

    /// What an ONNX model was read from, with the shapes and values that were asked for; `None` of a text.
    ///
    /// # Errors
    /// A shape or value does not fit.
    pub(crate) fn raw(&self) -> Result<Option<RawModel>, Error> {
        let ModelSource::Onnx { raw, .. } = &*self.source else { return Ok(None) };
        let mut raw = (**raw).clone();
        self.reader.enter_shapes(&mut raw)?;
        self.reader.values.enter(&mut raw)?;
        Ok(Some(raw))
    }

    /// The same model, imported with `answers` values that were computed first.
    #[cfg(feature = "cli")]
    pub(crate) fn imported_as(self, imported: Imported, answers: usize) -> Model {
        let mut bound: Vec<String> = self.reader.values.given().map(str::to_string).collect();
        let defaults: &[mlc_onnx::RawValueInfo] = match &*self.source {
            ModelSource::Onnx { raw, .. } => &raw.graph.defaults,
            ModelSource::Text { .. } | ModelSource::Weights(_) => &[],
        };
        bound.extend(self.bound.iter().filter(|b| input_values::has_default(b, defaults)).cloned());
        let mut notes = input_values::notes(&imported, &bound, defaults);
        if answers > 0 {
            notes.push(format!(
                "the model is read for these inputs: {answers} values of theirs decide it"
            ));
        }
        let (program, info) = (imported.program, Some(imported.model));
        Model { program, info, notes, bound, read_as: None, ..self }
    }

    /// An error of the import, told of the model's file.
    pub(crate) fn refused(&self, e: ImportError) -> Error {
        match &*self.source {
            ModelSource::Onnx { path, .. } => told_in(e, path.as_deref()),
            ModelSource::Text { .. } | ModelSource::Weights(_) => Error::from(e),
        }
    }

    /// Refuses a model with a node that no data make readable.
    ///
    /// # Errors
    /// It names the first one, and what to do.
    pub(crate) fn could_be_decided(&self) -> Result<(), Error> {
        let Some(info) = &self.info else { return Ok(()) };
        let mut reasons = info.opaque.nodes.iter().map(|(_, why)| why);
        if let Some(why) =
            reasons.clone().find(|e| matches!(e, ImportError::UnknownOperator { .. }))
        {
            return Err(self.refused(why.clone()));
        }
        let mut values = info.inputs.iter().chain(&info.outputs);
        let asks = reasons
            .any(|e| matches!(e, ImportError::Undecided { .. } | ImportError::TooLong { .. }));
        if asks || values.any(|v| !v.containers.is_empty()) {
            Ok(())
        } else {
            self.all_understood()
        }
    }

    /// Refuses a model with a node that nothing can compute.
    ///
    /// # Errors
    /// It names the first one, and what to do.
    pub(crate) fn all_understood(&self) -> Result<(), Error> {
        let kept = self.info.iter().map(|i| &i.opaque);
        let opaque = kept.clone().flat_map(|o| &o.nodes).next();
        let input = kept.flat_map(|o| &o.inputs).next();
        match (opaque, input) {
            (Some((_, why)), _) => Err(self.refused(why.clone())),
            (None, Some(input)) => {
                let place = format!("input `{}`", shown(&input.name));
                let message = format!("{place} is a sequence or an optional, of unknown number");
                Err(Error::new(ErrorKind::Model, message).at(place).with_help(
                    "`run` takes the elements of a sequence by name: `NAME[0]`, `NAME[1]`, …",
                ))
            }
            (None, None) => Ok(()),
        }
    }

    /// The file as it was read; `None` if there is none, or if data of a run decided what it is.
    pub(crate) fn read_as(&self) -> Option<&RawModel> {
        self.read_as.as_deref()
    }

    /// Symbols that had to be equal, or a number, for the model to be read.
    pub(crate) fn assumed(&self) -> &[(String, String)] {
        &self.assumed
    }

    /// A model like the one that this was read from, read in the same way.
    pub(crate) fn import_again(&self, raw: RawModel) -> Result<Imported, ImportError> {
        import_with_opaque_nodes(raw, &self.library, &self.reader.kept, self.reader.loops)
    }

    /// What the model computes, typed, before anything is optimised.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What a file of weights says of itself under a key, as `tokenizer.ggml.tokens`; parts of nested objects have names with dots.
    pub fn metadata(&self, key: &str) -> Option<&Metadata> {
        match &*self.source {
            ModelSource::Weights(file) => file.metadata.get(key),
            ModelSource::Onnx { .. } | ModelSource::Text { .. } => None,
        }
    }

    /// Inputs of the file that are constants of this model, because a value was given for them.
    pub fn decided_inputs(&self) -> &[String] {
        &self.bound
    }

    /// What an ONNX file says besides its computation.
    pub fn info(&self) -> Option<&ModelInfo> {
        self.info.as_ref()
    }

    /// True of a text of rules, whose library has the model itself.
    pub(crate) fn is_text(&self) -> bool {
        self.entry.is_some()
    }

    /// Laws that recognise the model itself: it is not explained by its own name.
    pub(crate) fn own_laws(&self) -> Vec<String> {
        let Some(entry) = &self.entry else { return vec![] };
        let is_own = |l: &&Law| l.name.strip_suffix(".rev").unwrap_or(&l.name) == entry;
        self.library.laws.iter().filter(is_own).map(|l| l.name.to_string()).collect()
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inputs, outputs) = (self.inputs(), self.outputs());
        f.debug_struct("Model").field("inputs", &inputs).field("outputs", &outputs).finish()
    }
}

/// What an ONNX model is as a program of a library.
#[cfg(feature = "cli")]
pub(crate) fn imported(
    raw: RawModel,
    library: &Library,
    path: Option<&Path>,
) -> Result<Imported, Error> {
    import(raw, library).map_err(|e| told_in(e, path))
}

/// What is told of a text that has no program for all extents.
const AT_OFFERED: &str =
    "the text has no program for all extents: it is read for those of the inputs that are given";

fn told_in(e: ImportError, path: Option<&Path>) -> Error {
    match path {
        Some(path) => Error::from(e).in_file(path),
        None => Error::from(e),
    }
}
