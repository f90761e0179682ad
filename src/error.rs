//! The error type of the library: what is wrong, where, and what to do about it.

use mlc_backends::BackendError;
use mlc_backends::arrays::ArrayError;
use mlc_backends::device::DriverError;
use mlc_dsl::check::SourceDiag;
use mlc_dsl::diagnostics::{Diag, Severity, render};
use mlc_dsl::library::Library;
use mlc_dsl::told;
use mlc_dsl::typing::infer::TypeError;
use mlc_dsl::typing::instantiate::BuildError;
use mlc_explore::ExtractionError;
use mlc_explore::constants::folding::ConstantError;
use mlc_extract::resources::TooMuch;
use mlc_extract::{EGraphViewError, ExtractError};
use mlc_files::FileError;
use mlc_files::npz::NpzError;
use mlc_onnx::{ExportError, ImportError, OnnxError};
use mlc_weights::WeightsError;
use std::fmt;
use std::path::Path;

/// Why something was not done. As text it is what the command line prints after `error: `.
#[derive(thiserror::Error)]
#[error("{0}")]
pub struct Error(Box<ErrorData>);

/// What kind of thing is wrong, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file cannot be read or written.
    File,
    /// Bytes are no model, or one that holds what is not supported.
    Model,
    /// A `.rules` text has mistakes.
    Rules,
    /// A setting names or asks for what there is not: a target, a law, an operator set, a shape.
    Setting,
    /// The inputs of a run do not fit the model: a name, an element type, a shape.
    Input,
    /// A result is asked for by a name or an element type that it does not have.
    Output,
    /// A run needs more memory or operations than are available.
    Resources,
    /// An operator fails on these inputs, as with an index out of range.
    Run,
    /// A program cannot be written as ONNX.
    Export,
    /// What was read of a model, or is to be written, is not what the model's file computes: nothing is written.
    Check,
    /// A stage of the pipeline failed in a way that no input should bring about.
    Pipeline,
}

struct ErrorData {
    kind: ErrorKind,
    code: Option<&'static str>,
    place: Option<String>,
    message: String,
    help: Option<String>,
    /// Diagnostics as they are drawn below their lines, in place of message and help.
    drawn: Option<String>,
}

impl fmt::Display for ErrorData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.drawn, &self.help) {
            (Some(drawn), _) => f.write_str(drawn),
            (None, Some(help)) => write!(f, "{}\nhelp: {help}", self.message),
            (None, None) => f.write_str(&self.message),
        }
    }
}

impl fmt::Debug for Error {
    /// The text for people, as `main` prints what it returns so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// What kind of thing is wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The code of a mistake in a `.rules` text, such as `R003`; the manual of the language lists them.
    pub fn code(&self) -> Option<&'static str> {
        self.0.code
    }

    /// Where it is: a file, `FILE:LINE:COLUMN` of a text, a node or tensor of a model, an input, an operator.
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// What is wrong, in one sentence; of a text with several mistakes the first one.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What can be done about it.
    pub fn help(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let message = message.into();
        Error(Box::new(ErrorData {
            kind,
            code: None,
            place: None,
            message,
            help: None,
            drawn: None,
        }))
    }

    /// A stage of the pipeline fails in a way that no input should bring about.
    pub(crate) fn unexpected(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Pipeline, message)
    }

    /// Inputs cannot be drawn.
    pub(crate) fn unsized_inputs() -> Error {
        Error::new(ErrorKind::Input, "the model's inputs have no known size")
            .with_help("give the extents with `--shape`, or inputs with `--inputs`")
    }

    /// The same with its code.
    pub(crate) fn with_code(mut self, code: &'static str) -> Error {
        self.0.code = Some(code);
        self
    }

    /// The same, after what it prevents.
    pub(crate) fn before(mut self, prevented: &str) -> Error {
        self.0.message = format!("{prevented}: {}", self.0.message);
        self
    }

    /// The same with its place.
    pub(crate) fn at(mut self, place: impl Into<String>) -> Error {
        self.0.place = Some(place.into());
        self
    }

    /// The same with what can be done about it, if that is known.
    pub(crate) fn or_help(mut self, help: Option<impl Into<String>>) -> Error {
        self.0.help = help.map(Into::into);
        self
    }

    /// The same with what can be done about it.
    pub(crate) fn with_help(self, help: impl Into<String>) -> Error {
        self.or_help(Some(help))
    }

    /// The same of the file that the wrong thing is in.
    pub(crate) fn in_file(mut self, path: &Path) -> Error {
        let path = told(&path.display().to_string());
        self.0.message = format!("{path}: {}", self.0.message);
        self.0.place = Some(match &self.0.place {
            Some(inner) => format!("{path}: {inner}"),
            None => path,
        });
        self
    }

    /// One mistake in a text.
    pub(crate) fn in_text(diag: &Diag, name: &str, text: &str) -> Error {
        let drawn = render(std::slice::from_ref(diag), name, text, false);
        Error::diagnosed(diag, name, text, drawn)
    }

    /// The mistakes in the texts of a library, of which there is one at least, as they are drawn.
    pub(crate) fn in_texts(library: &Library, diags: &[SourceDiag], drawn: String) -> Error {
        let is_error = |d: &&SourceDiag| d.diag.severity == Severity::Error;
        match diags.iter().find(is_error) {
            Some(first) => {
                let source = &library.sources[first.source as usize];
                Error::diagnosed(&first.diag, &source.name, &source.text, drawn)
            }
            None => Error::new(ErrorKind::Rules, drawn),
        }
    }

    fn diagnosed(diag: &Diag, name: &str, text: &str, drawn: String) -> Error {
        let start = (diag.span().start as usize).min(text.len());
        let before = text.get(..start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let mut error = Error::new(ErrorKind::Rules, diag.message.clone())
            .at(format!("{name}:{line}:{column}"))
            .or_help(diag.help.clone());
        error.0.code = Some(diag.code.0);
        error.0.drawn = Some(drawn);
        error
    }
}

#[cfg(feature = "cli")]
impl Error {
    /// What the command line's own parts told, as of this kind.
    pub(crate) fn of(kind: ErrorKind) -> impl Fn(anyhow::Error) -> Error {
        move |e| match e.downcast::<Error>() {
            Ok(e) => e,
            Err(e) => {
                let text = text(&e);
                match text.split_once("\nhelp: ") {
                    Some((message, help)) => Error::new(kind, message).with_help(help),
                    None => Error::new(kind, text),
                }
            }
        }
    }
}

/// An error as the command line prints it: its causes, and what to do about the one that says.
#[cfg(feature = "cli")]
pub(crate) fn text(e: &anyhow::Error) -> String {
    let text = format!("{e:#}");
    let help = e.chain().find_map(|cause| {
        let file = cause.downcast_ref::<FileError>().and_then(FileError::help);
        let room = || cause.downcast_ref::<TooMuch>().map(TooMuch::help);
        file.or_else(room).or_else(|| cause.downcast_ref::<BackendError>().map(help_of_backend))
    });
    match help {
        Some(help) if !text.contains("\nhelp: ") => format!("{text}\nhelp: {help}"),
        _ => text,
    }
}

/// Errors of stages that no input should bring about.
macro_rules! unexpected {
    ($($error:ty),*) => {
        $(impl From<$error> for Error {
            fn from(e: $error) -> Error {
                Error::unexpected(e.to_string())
            }
        })*
    };
}

unexpected!(BuildError, ExtractError, ExtractionError, TypeError, EGraphViewError);

impl From<OnnxError> for Error {
    fn from(e: OnnxError) -> Error {
        let kind =
            if let OnnxError::Io { .. } = e.root() { ErrorKind::File } else { ErrorKind::Model };
        let error = Error::new(kind, e.to_string()).or_help(e.help());
        match place(&e) {
            Some(place) => error.at(place),
            None => error,
        }
    }
}

/// Where an error of a model is.
fn place(e: &OnnxError) -> Option<String> {
    match e {
        OnnxError::Io { path, .. } => Some(told(&path.display().to_string())),
        OnnxError::InFile { path, source } => {
            let path = told(&path.display().to_string());
            Some(match place(source) {
                Some(inner) => format!("{path}: {inner}"),
                None => path,
            })
        }
        OnnxError::Invalid { place, .. }
        | OnnxError::TooDeep { place, .. }
        | OnnxError::UnsupportedType { place, .. }
        | OnnxError::Unsupported { place, .. }
        | OnnxError::Duplicate { place, .. }
        | OnnxError::Undefined { place, .. } => Some(told(place)),
        OnnxError::BadTensor { tensor, .. } | OnnxError::ExternalData { tensor, .. } => {
            Some(told(tensor))
        }
        OnnxError::Malformed { .. }
        | OnnxError::TooLarge { .. }
        | OnnxError::Cycle { .. }
        | OnnxError::RecursiveFunction { .. } => None,
    }
}

impl From<WeightsError> for Error {
    fn from(e: WeightsError) -> Error {
        Error::new(ErrorKind::Model, e.to_string()).at(e.place()).with_help(e.advice())
    }
}

impl From<ImportError> for Error {
    fn from(e: ImportError) -> Error {
        let (ImportError::UnknownOperator { node: place, .. }
        | ImportError::Node { node: place, .. }
        | ImportError::Undecided { node: place, .. }
        | ImportError::TooLong { node: place, .. }
        | ImportError::Graph { place, .. }) = &e;
        Error::new(ErrorKind::Model, e.to_string()).at(told(place)).or_help(e.help())
    }
}

impl From<ExportError> for Error {
    fn from(e: ExportError) -> Error {
        let error = Error::new(ErrorKind::Export, e.to_string()).or_help(e.help());
        match &e {
            ExportError::Operator { op, .. } | ExportError::Body { op, .. } => {
                error.at(format!("operator `{}`", told(op)))
            }
            ExportError::Extent { extent, .. } => error.at(format!("extent {}", told(extent))),
            ExportError::Kernel { fault } => match &fault.kernel {
                Some((_, name)) => error.at(format!("kernel `{}`", told(name))),
                None => error,
            },
            ExportError::OperatorSet { .. }
            | ExportError::Opaque { .. }
            | ExportError::Names { .. } => error,
        }
    }
}

impl From<FileError> for Error {
    fn from(e: FileError) -> Error {
        let place = e.path().display().to_string();
        Error::new(ErrorKind::File, e.to_string()).at(place).or_help(e.help())
    }
}

impl From<ConstantError> for Error {
    fn from(e: ConstantError) -> Error {
        match e {
            ConstantError::Value(e) => Error::from(e),
            other => Error::new(ErrorKind::Pipeline, other.to_string()),
        }
    }
}

impl From<TooMuch> for Error {
    fn from(e: TooMuch) -> Error {
        Error::new(ErrorKind::Resources, e.to_string()).at(e.place()).with_help(e.help())
    }
}

impl From<NpzError> for Error {
    fn from(e: NpzError) -> Error {
        let place = told(&e.file().display().to_string());
        Error::new(ErrorKind::File, e.to_string()).at(place).or_help(e.help())
    }
}

impl From<BackendError> for Error {
    fn from(e: BackendError) -> Error {
        let message = e.to_string();
        let operator = |op: &String| format!("operator `{}`", told(op));
        let error = match &e {
            BackendError::Input { name, .. } => {
                Error::new(ErrorKind::Input, message).at(format!("input `{}`", told(name)))
            }
            BackendError::Operator { op, .. } => {
                Error::new(ErrorKind::Run, message).at(operator(op))
            }
            BackendError::Memory { op, .. } => {
                Error::new(ErrorKind::Resources, message).at(operator(op))
            }
            BackendError::Plan { backend, .. } => {
                Error::new(ErrorKind::Pipeline, message).at(format!("backend `{backend}`"))
            }
            BackendError::Unsupported { backend, .. } => {
                Error::new(ErrorKind::Run, message).at(format!("backend `{backend}`"))
            }
            BackendError::Device(e) => return of_device(e),
        };
        error.with_help(help_of_backend(&e))
    }
}

/// What to do about an error of a backend.
fn help_of_backend(e: &BackendError) -> &'static str {
    match e {
        BackendError::Input { .. } => "extents of one name are equal in all inputs",
        BackendError::Operator { .. } => {
            "check the values of the inputs: indices, divisors and extents that they decide"
        }
        BackendError::Memory { .. } => "allow more memory, or give smaller inputs",
        BackendError::Plan { .. } => "plan for the target of the backend that runs the plan",
        BackendError::Unsupported { .. } => "run on `reference`, which has all operators",
        BackendError::Device(e) => kind_and_help(e).1,
    }
}

/// A device does not do what it is asked.
fn of_device(e: &DriverError) -> Error {
    let (kind, help) = kind_and_help(e);
    Error::new(kind, e.to_string()).at("cuda").with_help(help)
}

fn kind_and_help(e: &DriverError) -> (ErrorKind, &'static str) {
    match e {
        DriverError::NoDevice(_) => {
            let help =
                "install NVIDIA's driver, or run on this machine's processor (`--backend cpu`)";
            (ErrorKind::Setting, help)
        }
        DriverError::NoCompiler(_) => {
            let help = "install CUDA's NVRTC, or name its library file in the variable MLC_NVRTC";
            (ErrorKind::Setting, help)
        }
        DriverError::Memory { .. } => {
            (ErrorKind::Resources, "give smaller inputs, or end what else uses the device")
        }
        DriverError::Compile(_) => (ErrorKind::Pipeline, "run on `cpu` or `reference`"),
        DriverError::Call { .. } => {
            (ErrorKind::Run, "check that the device works and that nothing else takes it")
        }
        DriverError::Lost { .. } => {
            let help = "start the process again: the driver gives it no other context";
            (ErrorKind::Run, help)
        }
        DriverError::Kernel { functions, .. } => {
            let help = match functions.len() {
                1 => "`show --cuda` prints its code; run on `cpu`",
                _ => "MLC_CUDA_BLOCKING=1 tells which, `show --cuda` prints its code; run on `cpu`",
            };
            (ErrorKind::Run, help)
        }
    }
}

impl From<ArrayError> for Error {
    fn from(e: ArrayError) -> Error {
        let help = match &e {
            ArrayError::DType { found, .. } => format!("ask for elements of type {found}"),
            ArrayError::Order => "give an array in row-major order without gaps".to_string(),
            ArrayError::Shape { .. } => "give as many elements as the shape has".to_string(),
        };
        Error::new(ErrorKind::Output, e.to_string()).with_help(help)
    }
}
