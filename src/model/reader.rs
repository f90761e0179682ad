//! How models are read: with which rules, shapes and values.

use super::{AT_OFFERED, Model, ModelSource, told_in};
use crate::error::{Error, ErrorKind};
use crate::model::file_kind::{Content, content};
use crate::model::input_shapes::InputShapes;
use crate::model::input_values::{GivenValue, InputValues, notes};
use crate::model::{architectures, rules_model};
use crate::stack::with_room;
use crate::{recurrences, show, stdlib};
use bytes::Bytes;
use mlc_backends::arrays::AnyArray;
use mlc_dsl::ir::{Attr, DType, Program, Type};
use mlc_dsl::library::Library;
use mlc_explore::progress;
use mlc_onnx::{ImportError, Loops, RawModel, import_with_opaque_nodes, parse_onnx};
use mlc_weights::WeightFile;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How models are read: rules besides the shipped ones, and shapes in place of those that a model declares.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    pub(super) rules: Vec<Rules>,
    pub(super) shapes: InputShapes,
    pub(super) values: InputValues,
    /// Nodes that are kept as they are although they are understood.
    pub(super) kept: BTreeSet<String>,
    pub(super) loops: Loops,
    pub(super) color: bool,
    /// Options of architectures.
    pub(super) options: Vec<(String, Attr)>,
}

/// Rules of the user.
#[derive(Clone, Debug)]
pub(super) enum Rules {
    File(PathBuf),
    Text { name: String, text: String },
}

impl Reader {
    /// The shipped rules, and shapes as they are declared.
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Adds a file of laws, layers, operators or targets; may be called several times.
    pub fn rules(mut self, path: impl Into<PathBuf>) -> Reader {
        self.rules.push(Rules::File(path.into()));
        self
    }

    /// The same as a text, which messages call `name`.
    pub fn rules_text(mut self, name: impl Into<String>, text: impl Into<String>) -> Reader {
        self.rules.push(Rules::Text { name: name.into(), text: text.into() });
        self
    }

    /// Gives an input its shape, as `("image", &[1, 3, 224, 224])`, or a symbol its extent, as `("batch", &[1])`.
    pub fn shape(mut self, name: &str, extents: &[u64]) -> Reader {
        self.shapes.give(name, extents);
        self
    }

    /// Binds a symbol, an axis that inputs name, to a positive extent: the model is read as if its inputs declared the number,
    /// what is computed from the extent is a constant, and an ONNX file that is written declares numbers too.
    ///
    /// Unlike [`Reader::shape`] this takes no names of inputs, and a symbol that is bound twice must be bound to the same extent.
    ///
    /// ```
    /// use mlc_rewrite::{ErrorKind, Reader};
    ///
    /// # fn main() -> Result<(), mlc_rewrite::Error> {
    /// let text = "def centred(x: f32[batch, n]) -> f32[batch, n]\n  = x - (sum(n) x / |n|)\n";
    /// let model = Reader::new().bind("batch", 4).bind("n", 16).from_rules(text)?;
    /// assert_eq!(model.inputs()[0].shape(), [Some(4), Some(16)]);
    ///
    /// let error = Reader::new().bind("seq", 8).from_rules(text).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Setting);
    /// assert_eq!(error.help(), Some("the symbols are `batch`, `n`"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn bind(mut self, symbol: &str, extent: u64) -> Reader {
        self.shapes.bind(symbol, extent);
        self
    }

    /// Gives an input a value: it is a constant of the model that is read, and no input any more. This is for inputs
    /// that decide shapes or axes, such as the axes of a reduction.
    pub fn value(mut self, name: &str, value: impl Into<AnyArray>) -> Reader {
        self.values.give(name, GivenValue::Array(value.into().into_tensor()));
        self
    }

    /// The same from numbers, which take the element type and the shape that the input declares.
    pub fn numbers(mut self, name: &str, numbers: &[f64]) -> Reader {
        self.values.give(name, GivenValue::Numbers(numbers.to_vec()));
        self
    }

    /// Whether inputs with a default become constants. Otherwise a run may give them or not, and no value is assumed.
    pub fn fold_defaults(mut self, folds: bool) -> Reader {
        self.values.fold_defaults(folds);
        self
    }

    /// Sets an option of the architecture that a file of weights is read by, as `last` of language models: logits of the last
    /// position alone.
    pub fn option(mut self, name: &str, value: bool) -> Reader {
        self.options.push((name.to_string(), Attr::Bool(value)));
        self
    }

    /// Values that a run will be given: those that decide shapes or axes become constants, the others stay inputs.
    #[cfg(feature = "cli")]
    pub(crate) fn offering(mut self, values: crate::model::input_values::Offered) -> Reader {
        self.values.offer(values);
        self
    }

    /// Whether mistakes in texts are drawn in colours, for a terminal.
    pub fn colored(self, color: bool) -> Reader {
        Reader { color, ..self }
    }

    /// True if nothing is read otherwise than by default.
    pub(crate) fn is_plain(&self) -> bool {
        self.rules.is_empty()
            && self.shapes.is_empty()
            && self.values.is_empty()
            && self.options.is_empty()
    }

    /// Reads a model, as [`Model::read`] does.
    ///
    /// # Errors
    /// As there, or the rules or shapes do not fit.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Model, Error> {
        let path = path.as_ref();
        with_room(|| {
            progress::report("reading", None);
            match content(path)? {
                Content::Onnx(raw) => self.understand(*raw, Some(path)),
                Content::Text(text) => self.entered(path.display().to_string(), text),
                Content::Weights(file) => self.weighed(*file),
            }
        })
    }

    /// Reads an ONNX model from memory, as [`Model::from_bytes`] does.
    ///
    /// # Errors
    /// As there, or the rules or shapes do not fit.
    pub fn from_bytes(&self, bytes: impl Into<Bytes>) -> Result<Model, Error> {
        let bytes = bytes.into();
        with_room(|| self.understand(parse_onnx(bytes, None)?, None))
    }

    /// Reads a `.rules` text, as [`Model::from_rules`] does.
    ///
    /// # Errors
    /// As there, or the rules or shapes do not fit.
    pub fn from_rules(&self, text: impl Into<String>) -> Result<Model, Error> {
        let text = text.into();
        with_room(|| self.entered("model.rules".into(), text))
    }

    /// A layer or an operator by itself as a model: its arrays, of these element types and extents, in the order of its parameters, are the inputs.
    /// Attributes that are not given take their defaults.
    ///
    /// # Errors
    /// Nothing has that name, or it is not defined for these arrays and attributes.
    pub fn layer(
        &self,
        name: &str,
        arrays: &[(DType, Vec<usize>)],
        attributes: &[(String, Attr)],
    ) -> Result<Model, Error> {
        with_room(|| {
            let library = self.library()?;
            let types: Vec<Type> = arrays.iter().map(|(d, shape)| Type::known(*d, shape)).collect();
            let program = rules_model::application(&library, name, &types, attributes)?;
            self.entered("model.rules".into(), show::program(&program, &library, "model"))
        })
    }

    /// The shipped declarations and those of the user, without a model.
    ///
    /// # Errors
    /// A text cannot be read or has mistakes.
    pub fn library(&self) -> Result<Arc<Library>, Error> {
        self.library_and(None)
    }

    fn library_and(&self, last: Option<(String, String)>) -> Result<Arc<Library>, Error> {
        if self.rules.is_empty() && last.is_none() {
            return Ok(stdlib::shipped());
        }
        let read = |rules: &Rules| match rules {
            Rules::File(path) => Ok((path.display().to_string(), stdlib::read_text(path)?)),
            Rules::Text { name, text } => Ok((name.clone(), text.clone())),
        };
        let mut texts = self.rules.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
        texts.extend(last);
        stdlib::sound(&texts, self.color)
    }

    /// An ONNX model as a program, with extents as asked for.
    pub(super) fn understand(
        &self,
        mut raw: RawModel,
        path: Option<&Path>,
    ) -> Result<Model, Error> {
        let library = self.library()?;
        let source =
            ModelSource::Onnx { raw: Box::new(raw.clone()), path: path.map(Path::to_path_buf) };
        self.enter_shapes(&mut raw)?;
        let defaults = raw.graph.defaults.clone();
        let mut bound = self.values.enter(&mut raw)?;
        let imported = loop {
            match import_with_opaque_nodes(raw.clone(), &library, &self.kept, self.loops) {
                Ok(imported) => {
                    let needed: Vec<String> = imported.model.opaque.needed_inputs().collect();
                    let again = self.values.decide(&mut raw, &needed, &mut bound)?
                        // Extents that the model needs equal may differ in the run: one of them repeats.
                        || !imported.assumed.is_empty() && self.values.enter_extents(&mut raw);
                    if !again {
                        break imported;
                    }
                }
                Err(ImportError::Undecided { inputs, .. })
                    if self.values.decide(&mut raw, &inputs, &mut bound)? => {}
                // What does not fit for all extents may for those of the run.
                Err(_) if self.values.enter_extents(&mut raw) => {}
                Err(e) => return Err(told_in(e, path)),
            }
        };
        let imported =
            recurrences::read(&raw, &library, &self.kept, self.loops).unwrap_or(imported);
        let notes = notes(&imported, &bound, &defaults);
        Ok(Model {
            read_as: Some(Arc::new(raw)),
            assumed: imported.assumed,
            library,
            program: imported.program,
            info: Some(imported.model),
            entry: None,
            notes,
            reader: self.clone(),
            source: Arc::new(source),
            bound,
        })
    }

    /// Gives an ONNX model the shapes that are asked for.
    pub(crate) fn enter_shapes(&self, raw: &mut RawModel) -> Result<(), Error> {
        self.shapes.enter(raw)
    }

    /// The program of a text for the extents that a run will have; `None` if that is not known, or there is none for them either.
    fn at_offered(&self, library: &Library, entry: &str) -> Result<Option<Program>, Error> {
        if self.values.offered().is_empty() {
            return Ok(None);
        }
        let shapes = self.shapes.or_of(self.values.offered());
        let found = rules_model::program_at(library, entry, &shapes.of_text()?);
        Ok(found.ok().filter(|(_, note)| note.is_none()).map(|(program, _)| program))
    }

    /// A file of weights as a model, by the architecture that it names.
    pub(crate) fn weighed(&self, file: WeightFile) -> Result<Model, Error> {
        let library = self.library()?;
        let shapes = self.shapes.of_text()?;
        let (program, note) = architectures::program(&library, &file, &shapes, &self.options)?;
        shapes.all_used(&program)?;
        let source = ModelSource::Weights(file);
        Ok(self.of_definitions(library, program, None, note, source))
    }

    /// A text as a model: its last `def`.
    pub(crate) fn entered(&self, name: String, text: String) -> Result<Model, Error> {
        let library = self.library_and(Some((name.clone(), text.clone())))?;
        let last = library.sources.len() as u32 - 1;
        let entry = rules_model::last_definition(&library, last).ok_or_else(|| {
            Error::new(ErrorKind::Rules, format!("{name} has no `def` to run"))
                .at(name.clone())
                .with_help("end the text with a `def`; its parameters are the inputs")
        })?;
        let shapes = self.shapes.of_text()?;
        let (program, note) = match rules_model::program_at(&library, &entry, &shapes) {
            Ok((program, None)) => (program, None),
            // It needs numbers: those of the run, if it is known.
            other => match self.at_offered(&library, &entry)? {
                Some(program) => (program, Some(AT_OFFERED.to_string())),
                None => other?,
            },
        };
        shapes.all_used(&program)?;
        let source = ModelSource::Text { name, text };
        Ok(self.of_definitions(library, program, Some(entry), note, source))
    }

    /// A model that is no ONNX file: a program that definitions are made.
    fn of_definitions(
        &self,
        library: Arc<Library>,
        program: Program,
        entry: Option<String>,
        note: Option<String>,
        source: ModelSource,
    ) -> Model {
        Model {
            library,
            program,
            info: None,
            read_as: None,
            assumed: vec![],
            bound: vec![],
            entry,
            notes: note.into_iter().collect(),
            reader: self.clone(),
            source: Arc::new(source),
        }
    }
}
