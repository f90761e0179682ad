//! A declaration for display: the text of a law or operator, its documentation, and its location.

use mlc_dsl::library::{Law, LawOrigin, Library};
use serde::Serialize;
use std::fmt::Write;

/// A law or an operator as it is declared.
#[derive(Clone, Debug, Serialize)]
pub struct Declaration {
    pub name: String,
    /// Lines of documentation.
    pub doc: Vec<String>,
    pub text: String,
    /// The file and line.
    pub declared: String,
    /// Error class and direction of a law.
    pub law: Option<(String, String)>,
}

/// What is declared of a law or operator.
pub fn declaration(library: &Library, name: &str) -> Option<Declaration> {
    let law = library.laws.iter().find(|l| l.answers_to(name));
    let call = library.find(name).map(|c| library.call(c));
    let (source, doc) = match (law, call) {
        (Some(l), _) => (l.source, &l.doc),
        (None, Some(c)) => (c.source, &c.doc),
        (None, None) => return None,
    };
    let text = &library.sources[source.file as usize];
    let line = text.text[..source.span.start as usize].lines().count() + 1;
    Some(Declaration {
        name: name.to_string(),
        doc: doc.clone(),
        text: text.text[source.span.range()].trim_end().to_string(),
        declared: format!("{}:{line}", text.name),
        law: law.map(|l| (l.error.to_string(), origin(l).to_string())),
    })
}

impl Declaration {
    /// For people.
    pub fn human(&self) -> String {
        let mut out = String::new();
        for d in &self.doc {
            let _ = writeln!(out, "{d}");
        }
        let _ = writeln!(out, "\n{}", self.text);
        let _ = writeln!(out, "\ndeclared in {}", self.declared);
        if let Some((class, origin)) = &self.law {
            let _ = writeln!(out, "error class {class}; {origin}");
        }
        out
    }
}

fn origin(l: &Law) -> &'static str {
    match l.origin {
        LawOrigin::Rule => "fires from left to right",
        LawOrigin::Reverse => "fires from right to left",
        LawOrigin::Fold => "a definition: its body is recognised in any spelling",
        LawOrigin::Unfold => "a definition: the name is replaced by its body",
    }
}
