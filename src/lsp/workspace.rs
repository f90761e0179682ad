//! The texts that a document is read with: the shipped ones, the configured ones, and its own; as `check --rules` reads them.
//!
//! An open document stands for its file. A document of the shipped texts' own folder stands for the shipped text of its name.

use crate::documents::{Document, Lines};
use crate::{Host, Settings};
use lsp_types::{Location, Uri};
use mlc_dsl::check::{Text, library_of, parsed};
use mlc_dsl::diagnostics::Diag;
use mlc_dsl::diagnostics::span::Span;
use mlc_dsl::library::Library;
use mlc_dsl::syntax::names::Names;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// A text of a library.
#[derive(Clone)]
pub enum Held {
    /// A shipped one.
    Shipped(&'static Text),
    /// One that an editor has open, or of a configured file.
    Own(Arc<Text>),
}

impl Deref for Held {
    type Target = Text;
    fn deref(&self) -> &Text {
        match self {
            Held::Shipped(text) => text,
            Held::Own(text) => text,
        }
    }
}

/// A document, read with the texts that it builds on.
pub struct Analysis {
    /// The texts, in reading order, each with the names in it.
    pub texts: Vec<(Held, Arc<Names>)>,
    /// Which of them is the document.
    pub own: usize,
    /// What comes of them.
    pub library: Arc<Library>,
    /// The document's own mistakes.
    pub diags: Vec<Diag>,
    /// How many texts are shipped.
    shipped: usize,
}

impl Analysis {
    /// The names of the document.
    pub fn names(&self) -> &Names {
        &self.texts[self.own].1
    }

    /// The texts besides the shipped ones, by name and content; nothing if one of them is an edition of a shipped one, which
    /// nothing but the checker reads in its place.
    pub fn besides_shipped(&self) -> Option<Vec<(String, String)>> {
        let mut out = Vec::new();
        let mut shipped = 0;
        for (text, _) in &self.texts {
            match text {
                Held::Shipped(_) => shipped += 1,
                Held::Own(text) => {
                    let source = text.source();
                    out.push((source.name.clone(), source.text.to_string()));
                }
            }
        }
        (shipped == self.shipped).then_some(out)
    }

    /// The text of the document.
    pub fn text(&self) -> &str {
        &self.texts[self.own].0.source().text
    }
}

/// What an editor has open, and what belongs to it.
pub struct Workspace {
    host: Arc<dyn Host>,
    /// The folder that an editor works in.
    root: Option<PathBuf>,
    /// The configured texts.
    pub settings: Settings,
    documents: BTreeMap<String, Document>,
    analyses: HashMap<String, Arc<Analysis>>,
    /// Configured texts as they lie on the disk.
    rules: Vec<(PathBuf, Arc<Text>, Arc<Names>)>,
    shipped: Vec<Arc<Names>>,
}

impl Workspace {
    /// Without documents.
    pub fn new(host: Arc<dyn Host>, root: Option<PathBuf>, settings: Settings) -> Workspace {
        let shipped = host.shipped().iter().map(|t| Arc::new(t.names())).collect();
        let mut out = Workspace {
            host,
            root,
            settings,
            documents: BTreeMap::new(),
            analyses: HashMap::new(),
            rules: vec![],
            shipped,
        };
        out.read_rules();
        out
    }

    /// Reads the configured texts anew. One that cannot be read is left out; what it declares is then missed where it is used.
    pub fn read_rules(&mut self) {
        let read = |path: &PathBuf| {
            let path = self.below_root(path);
            let text = std::fs::read_to_string(&path).ok()?;
            let (text, names) = own_text(&path.display().to_string(), &text);
            Some((path, text, names))
        };
        self.rules = self.settings.rules.iter().filter_map(read).collect();
        self.analyses.clear();
    }

    /// A path as the editor's folder makes it whole.
    pub fn below_root(&self, path: &Path) -> PathBuf {
        self.root.as_ref().map_or_else(|| path.to_path_buf(), |root| root.join(path))
    }

    /// The documents that are open, by their addresses.
    pub fn documents(&self) -> &BTreeMap<String, Document> {
        &self.documents
    }

    /// Opens a document, or replaces it.
    pub fn open(&mut self, uri: &str, document: Document) {
        self.documents.insert(uri.to_string(), document);
        self.forget(uri);
    }

    /// Edits a document.
    pub fn edit(&mut self, uri: &str, edit: impl FnOnce(&mut Document)) {
        if let Some(document) = self.documents.get_mut(uri) {
            edit(document);
            self.forget(uri);
        }
    }

    /// Closes a document.
    pub fn close(&mut self, uri: &str) {
        self.documents.remove(uri);
        self.forget(uri);
    }

    /// True of a document that is one of the configured texts.
    pub fn is_configured(&self, uri: &str) -> bool {
        let path = path_of(uri);
        self.rules.iter().any(|(p, ..)| Some(p) == path.as_ref())
    }

    /// What builds on a document is read anew: all, if it is one of the configured texts.
    fn forget(&mut self, uri: &str) {
        match self.is_configured(uri) {
            true => self.analyses.drain().for_each(|(_, old)| discard(old)),
            false => self.analyses.remove(uri).into_iter().for_each(discard),
        }
    }

    /// A document read with what it builds on; nothing if it is not open.
    pub fn analysis(&mut self, uri: &str) -> Option<Arc<Analysis>> {
        if let Some(known) = self.analyses.get(uri) {
            return Some(known.clone());
        }
        let analysis = Arc::new(self.read(uri)?);
        self.analyses.insert(uri.to_string(), analysis.clone());
        Some(analysis)
    }

    fn read(&self, uri: &str) -> Option<Analysis> {
        let document = self.documents.get(uri)?;
        let path = path_of(uri);
        let name = path.as_ref().map_or_else(|| uri.to_string(), |p| p.display().to_string());
        let (own, names) = own_text(&name, &document.text);
        let own_entry = (Held::Own(own), names);
        let stands_for = self.stands_for(path.as_deref(), &own_entry.1);
        let mut texts = Vec::new();
        let mut at = None;
        for (index, text) in self.host.shipped().iter().enumerate() {
            if stands_for == Some(index) {
                at = Some(texts.len());
                texts.push(own_entry.clone());
            } else {
                texts.push((Held::Shipped(text), self.shipped[index].clone()));
            }
        }
        for (file, text, names) in &self.rules {
            let open = self.documents.iter().find(|(u, _)| path_of(u).as_ref() == Some(file));
            if path.as_ref() == Some(file) {
                at = Some(texts.len());
                texts.push(own_entry.clone());
            } else if let Some((_, open)) = open {
                let (text, names) = own_text(&file.display().to_string(), &open.text);
                texts.push((Held::Own(text), names));
            } else {
                texts.push((Held::Own(text.clone()), names.clone()));
            }
        }
        let own = at.unwrap_or(texts.len());
        if at.is_none() {
            texts.push(own_entry);
        }
        let (library, diags) = library_of(texts.iter().map(|(t, _)| &**t));
        let diags = diags.into_iter().filter(|d| d.source as usize == own).map(|d| d.diag);
        let diags = diags.collect();
        let shipped = self.shipped.len();
        Some(Analysis { texts, own, library: Arc::new(library), diags, shipped })
    }

    /// The shipped text that a document is an edition of: of the same path in a folder, and with a name in common.
    fn stands_for(&self, path: Option<&Path>, names: &Names) -> Option<usize> {
        let path = path?;
        let index = self.host.shipped().iter().position(|t| path.ends_with(&t.source().name))?;
        let declared = |names: &Names| -> HashSet<String> {
            names.items.iter().map(|i| i.name.text.clone()).collect()
        };
        (!declared(names).is_disjoint(&declared(&self.shipped[index]))).then_some(index)
    }

    /// Where an editor finds a text of an analysis, and whether it may be changed there.
    pub fn home(&self, analysis: &Analysis, text: usize, uri: &str) -> Option<(Uri, bool)> {
        if text == analysis.own {
            return Some((Uri::from_str(uri).ok()?, true));
        }
        let source = analysis.texts[text].0.source();
        let Held::Shipped(_) = analysis.texts[text].0 else {
            let open =
                |u: &&String| path_of(u).is_some_and(|p| p.display().to_string() == source.name);
            let known = self.documents.keys().find(open).cloned();
            let uri = known.unwrap_or_else(|| uri_of(Path::new(&source.name)));
            return Some((Uri::from_str(&uri).ok()?, true));
        };
        let in_root = self.root.as_ref().map(|root| root.join(&source.name));
        let same = |p: &PathBuf| std::fs::read_to_string(p).is_ok_and(|t| *t == *source.text);
        if let Some(path) = in_root.filter(same) {
            return Some((Uri::from_str(&uri_of(&path)).ok()?, true));
        }
        let path = self.host.file_of(&source.name)?;
        Some((Uri::from_str(&uri_of(&path)).ok()?, false))
    }

    /// A span of a text of an analysis as an editor goes there.
    pub fn location(
        &self,
        analysis: &Analysis,
        text: usize,
        span: Span,
        uri: &str,
    ) -> Option<Location> {
        let (home, _) = self.home(analysis, text, uri)?;
        let content = &analysis.texts[text].0.source().text;
        Some(Location { uri: home, range: Lines::of(content).range(content, span) })
    }
}

/// Drops what is large on another thread: whoever types does not wait for it. Where none can be started, this one does.
fn discard(old: Arc<Analysis>) {
    let _ = std::thread::Builder::new().spawn(move || drop(old));
}

/// A text of a name, and the names in it.
fn own_text(name: &str, text: &str) -> (Arc<Text>, Arc<Names>) {
    let text = parsed(&[(name, text)]).remove(0);
    let names = Arc::new(text.names());
    (Arc::new(text), names)
}

/// The path of a `file:` address; nothing of any other.
pub fn path_of(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    // A host is left out: it is this machine.
    let path = &rest[rest.find('/')?..];
    let bytes = path.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&b) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|d| std::str::from_utf8(d).ok());
        let byte = digits.filter(|_| b == b'%').and_then(|d| u8::from_str_radix(d, 16).ok());
        plain.push(byte.unwrap_or(b));
        at += if byte.is_some() { 3 } else { 1 };
    }
    let path = String::from_utf8(plain).ok()?;
    // `/C:/a` is `C:/a`.
    let is_drive =
        path.as_bytes().get(2) == Some(&b':') && path.as_bytes()[1].is_ascii_alphabetic();
    Some(PathBuf::from(if is_drive { &path[1..] } else { &path }))
}

/// The address of a file.
pub fn uri_of(path: &Path) -> String {
    let path = path.display().to_string().replace('\\', "/");
    let mut out = String::from(if path.starts_with('/') { "file://" } else { "file:///" });
    for b in path.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b':' => {
                out.push(b as char);
            }
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_paths_are_each_others() {
        for path in ["/a/b c.rules", "/ü/100%.rules", "/a#b?.rules"] {
            assert_eq!(path_of(&uri_of(Path::new(path))), Some(PathBuf::from(path)));
        }
        assert_eq!(path_of("file:///C%3A/a.rules"), Some(PathBuf::from("C:/a.rules")));
        assert_eq!(path_of("file:///%zz%"), Some(PathBuf::from("/%zz%")));
        for none in ["untitled:Untitled-1", "file://", "", "file:///%ff"] {
            assert_eq!(path_of(none), None, "{none}");
        }
    }
}
