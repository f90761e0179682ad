//! Files of weights as models: the steps of an `architecture` item are followed, once, as the file's description says.

mod calls;
mod expressions;
mod tensors;

use crate::error::{Error, ErrorKind};
use crate::model::rules_model::ExtentSource;
use crate::names;
use mlc_dsl::architecture::{Architecture, Target};
use mlc_dsl::diagnostics::span::Span;
use mlc_dsl::diagnostics::{Code, Diag};
use mlc_dsl::expr::{Expr, Name};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::unfold::unfold;
use mlc_dsl::ir::{Attr, Program, Type, Value};
use mlc_dsl::library::Library;
use mlc_dsl::shown;
use mlc_weights::{WeightFile, WeightsError};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most times that steps are repeated.
const MOST_TIMES: i64 = 4096;

/// What an expression is.
#[derive(Clone, Debug)]
enum Operand {
    Tensor(Value),
    Attr(Attr),
    Tuple(Vec<Operand>),
}

/// Why a file is no model by its architecture.
enum Fault {
    /// The file is not what the text says.
    File(WeightsError),
    /// The text goes wrong on this file.
    Text { span: Span, message: String, help: String },
    /// A setting does not fit.
    Setting(Error),
}

impl From<WeightsError> for Fault {
    fn from(e: WeightsError) -> Fault {
        Fault::File(e)
    }
}

/// The program of a file, with the extents and options that are given, and what is odd about the file.
///
/// # Errors
/// No architecture is known that the file names, or the file is not what the architecture needs.
pub(crate) fn program(
    library: &Library,
    file: &WeightFile,
    extents: &dyn ExtentSource,
    options: &[(String, Attr)],
) -> Result<(Program, Option<String>), Error> {
    let (item, called) = find(library, file)?;
    let failed = |fault: Fault| match fault {
        Fault::File(e) => Error::from(e),
        Fault::Setting(e) => e,
        Fault::Text { span, message, help } => {
            let source = &library.sources[item.source.file as usize];
            let message = format!("{}: {message}", file.path.display());
            let diag = Diag::error(Code("V013"), message, span).help(help);
            Error::in_text(&diag, &source.name, &source.text)
        }
    };
    // Extents of symbols are asked for input by input, and hold everywhere.
    let mut symbols = BTreeMap::new();
    loop {
        let mut reading = ArchitectureReading::new(library, file, item, extents, symbols.clone());
        reading.options(called, options).map_err(failed)?;
        reading.steps().map_err(failed)?;
        if reading.given == symbols {
            let note = reading.unread();
            return Ok((reading.finish().map_err(failed)?, note));
        }
        symbols = reading.given;
    }
}

/// The item for a file, and what the file calls it.
fn find<'l>(
    library: &'l Library,
    file: &'l WeightFile,
) -> Result<(&'l Architecture, &'l str), Error> {
    // Those of the user come last, and count first.
    let of_format = || library.architectures.iter().rev().filter(|a| &*a.format == file.format);
    for called in &file.architectures {
        if let Some(item) = of_format().find(|a| a.names.contains(called)) {
            return Ok((item, called));
        }
    }
    let called: Vec<String> =
        file.architectures.iter().map(|a| format!("`{}`", shown(a))).collect();
    let mut known: Vec<&str> =
        of_format().flat_map(|a| a.names.iter().map(String::as_str)).collect();
    known.sort_unstable();
    let help = format!(
        "known are {}; an `architecture` item in a text of yours (`--rules`) adds another",
        known.join(", ")
    );
    let reason =
        format!("no `architecture` of format `{}` is called {}", file.format, called.join(" or "));
    Err(WeightsError::new(&file.path, "the architecture", reason).help(help).into())
}

/// One file that is read.
struct ArchitectureReading<'a> {
    library: &'a Library,
    file: &'a WeightFile,
    item: &'a Architecture,
    extents: &'a dyn ExtentSource,
    builder: Builder<'a>,
    values: HashMap<Name, Operand>,
    outputs: Vec<(String, Value)>,
    /// The tensors of the file that values are, for messages.
    stored: HashMap<Value, String>,
    /// Names of tensors that were read.
    read: BTreeSet<String>,
    /// Extents of symbols, and those that were found to be given.
    symbols: BTreeMap<String, u64>,
    given: BTreeMap<String, u64>,
}

impl<'a> ArchitectureReading<'a> {
    fn new(
        library: &'a Library,
        file: &'a WeightFile,
        item: &'a Architecture,
        extents: &'a dyn ExtentSource,
        symbols: BTreeMap<String, u64>,
    ) -> ArchitectureReading<'a> {
        ArchitectureReading {
            library,
            file,
            item,
            extents,
            builder: Builder::new(library),
            values: HashMap::new(),
            outputs: vec![],
            stored: HashMap::new(),
            read: BTreeSet::new(),
            given: symbols.clone(),
            symbols,
        }
    }

    fn options(&mut self, called: &str, given: &[(String, Attr)]) -> Result<(), Fault> {
        let architecture = Attr::Str(called.to_string());
        self.values.insert(Name::from("architecture"), Operand::Attr(architecture));
        for (name, default) in &self.item.options {
            let value = match given.iter().rev().find(|(n, _)| **n == **name) {
                Some((_, value)) => value.clone(),
                None => self.attr(default)?,
            };
            self.values.insert(name.clone(), Operand::Attr(value));
        }
        let is_option = |n: &String| self.item.options.iter().any(|(o, _)| **o == **n);
        match given.iter().find(|(n, _)| !is_option(n)) {
            None => Ok(()),
            Some((name, _)) => {
                let place = format!("option `{}`", shown(name));
                let known: Vec<&str> = self.item.options.iter().map(|(n, _)| &**n).collect();
                let all = match known.is_empty() {
                    true => "it has no options".to_string(),
                    false => format!("its options are {}", known.join(", ")),
                };
                let message =
                    format!("{place}: the architecture `{}` does not have it", self.item.name);
                Err(Fault::Setting(
                    Error::new(ErrorKind::Setting, message)
                        .at(place)
                        .or_help(names::did_you_mean(name, known, &all)),
                ))
            }
        }
    }

    fn steps(&mut self) -> Result<(), Fault> {
        let item = self.item;
        for steps in &item.steps {
            let Some((count, times)) = &steps.each else {
                self.run(&steps.steps)?;
                continue;
            };
            let number = self.integer(times)?;
            if !(0..=MOST_TIMES).contains(&number) {
                let message = format!("`{count}` would count to {number}");
                let help = format!("steps are repeated at most {MOST_TIMES} times");
                return Err(self.fault(times, message, help));
            }
            for i in 0..number {
                self.values.insert(count.clone(), Operand::Attr(Attr::int(i)));
                self.run(&steps.steps)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, steps: &[(Target, Expr)]) -> Result<(), Fault> {
        for (target, value) in steps {
            match target {
                Target::Output(name) => {
                    let name = self.filled(name, value)?;
                    self.builder.set_origin(&name);
                    let value = self.tensor(value)?;
                    self.outputs.push((name, value));
                }
                Target::Names(names) => {
                    let found = self.expr(value)?;
                    self.name(names, found, value)?;
                }
            }
        }
        Ok(())
    }

    fn name(&mut self, names: &[Name], found: Operand, at: &Expr) -> Result<(), Fault> {
        match (names, found) {
            ([name], one) => drop(self.values.insert(name.clone(), one)),
            (names, Operand::Tuple(parts)) if parts.len() == names.len() => {
                self.values.extend(names.iter().cloned().zip(parts));
            }
            (names, _) => {
                let message = format!("this is not {} values", names.len());
                let help = "a call yields as many values as its operator has results";
                return Err(self.fault(at, message, help));
            }
        }
        Ok(())
    }

    /// That the file has tensors which the model does not read.
    fn unread(&self) -> Option<String> {
        const SHOWN: usize = 3;
        let all: Vec<&String> =
            self.file.tensors.keys().filter(|n| !self.read.contains(*n)).collect();
        let names: Vec<String> =
            all.iter().take(SHOWN).map(|n| format!("`{}`", shown(n))).collect();
        let more = if all.len() > SHOWN { ", …" } else { "" };
        let named = names.join(", ");
        (!all.is_empty()).then(|| {
            let (item, count) = (&self.item.name, all.len());
            format!("the architecture `{item}` does not read all of the file: {count} unread, {named}{more}")
        })
    }

    fn finish(self) -> Result<Program, Fault> {
        let (item, library) = (self.item, self.library);
        let text =
            |message: String, help: String| Fault::Text { span: item.source.span, message, help };
        let mut names: Vec<&str> = self.outputs.iter().map(|(n, _)| n.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
            let message = format!("the output `{}` is there twice", twice[0]);
            return Err(text(message, "mention the count, as in `\"present.{i}.key\"`".into()));
        }
        if names.is_empty() {
            let message = format!("`{}` has no output", item.name);
            return Err(text(message, "add a step `\"logits\" = …`".into()));
        }
        let program = self.builder.finish(self.outputs);
        unfold(&program, library, &|call| library.is_part(call))
            .map_err(|e| text(e.to_string(), e.help()))
    }

    /// An input of the model; extents that are symbols may be given.
    fn input(&mut self, name: &str, ty: Type) -> Value {
        for (axis, extent) in ty.shape.iter().enumerate() {
            let symbols = extent.symbols();
            let [symbol] = symbols.as_slice() else { continue };
            let is_bare = *extent == mlc_dsl::ir::Extent::sym(symbol);
            if let Some(n) = self.extents.extent(name, axis, symbol).filter(|_| is_bare) {
                self.given.insert(symbol.to_string(), n);
            }
        }
        self.builder.input(name, ty)
    }

    fn fault(&self, at: &Expr, message: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault::Text { span: at.span, message: message.into(), help: help.into() }
    }
}
