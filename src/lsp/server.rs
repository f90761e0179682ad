//! The loop: one message after the other, in the order in which they come; answers are as of the message that asked.
//!
//! Mistakes are told once no further edit is waiting. A request that cannot be answered is an error of its own: the loop goes on.

use crate::commands::{self, Done};
use crate::diagnostics::{Finding, diagnostics};
use crate::documents::{Document, Lines};
use crate::outline::{self, CHECK, FIND};
use crate::transport::{self, Received};
use crate::workspace::{Analysis, Workspace, path_of};
use crate::{Host, Settings, completion, hover, symbols};
use crossbeam_channel::{Receiver, Sender, select};
use lsp_server::{ErrorCode, Message, Notification, Request, RequestId, Response, ResponseError};
use lsp_types::*;
use mlc_dsl::diagnostics::Severity;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{BufReader, Read, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Serves a client until it says `exit`, or its stream ends; the exit code of the process: 0 after `shutdown`.
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    host: Arc<dyn Host>,
    settings: Settings,
) -> u8 {
    let (to_server, received) = crossbeam_channel::unbounded();
    let (sender, to_client) = crossbeam_channel::unbounded::<Message>();
    // It ends with the stream, or with the process: a stream that stays open cannot be left.
    std::thread::spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let next = transport::read(&mut input);
            let end = matches!(next, Received::End);
            if to_server.send(next).is_err() || end {
                break;
            }
        }
    });
    let writer = std::thread::spawn(move || {
        let mut output = output;
        // A client that is gone hears nothing: the stream that it writes ends, too.
        while to_client.recv().is_ok_and(|message| message.write(&mut output).is_ok()) {}
    });
    let (done, finished) = crossbeam_channel::unbounded();
    let workspace = Workspace::new(host.clone(), None, settings.clone());
    let mut server = Server {
        host,
        settings,
        workspace,
        sender,
        done,
        running: HashSet::new(),
        findings: BTreeMap::new(),
        stale: BTreeSet::new(),
        stage: Stage::New,
    };
    let code = server.run(&received, &finished);
    drop(server);
    let _ = writer.join();
    code
}

/// How far a conversation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Ready,
    ShutDown,
}

struct Server {
    host: Arc<dyn Host>,
    settings: Settings,
    workspace: Workspace,
    sender: Sender<Message>,
    done: Sender<Done>,
    /// Requests whose answers are being worked on.
    running: HashSet<RequestId>,
    /// What was found about laws, per document.
    findings: BTreeMap<String, Vec<Finding>>,
    /// Documents whose mistakes are to be told anew.
    stale: BTreeSet<String>,
    stage: Stage,
}

/// What a client may say of the texts and models of its folder.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Chosen {
    rules: Vec<PathBuf>,
    models: Vec<PathBuf>,
}

/// An answer, or why there is none.
type Answer = Result<Value, ResponseError>;

fn refusal(code: ErrorCode, message: impl Into<String>) -> ResponseError {
    ResponseError { code: code as i32, message: message.into(), data: None }
}

impl Server {
    fn run(&mut self, received: &Receiver<Received>, finished: &Receiver<Done>) -> u8 {
        loop {
            select! {
                recv(received) -> next => match next {
                    Ok(Received::Message(Message::Request(r))) => self.request(r),
                    Ok(Received::Message(Message::Notification(n))) => {
                        if n.method == "exit" {
                            return u8::from(self.stage != Stage::ShutDown);
                        }
                        self.notification(n);
                    }
                    // Nothing is asked of a client.
                    Ok(Received::Message(Message::Response(_))) => {}
                    Ok(Received::Unreadable(why)) => self.unreadable(&why),
                    Ok(Received::End) | Err(_) => return u8::from(self.stage != Stage::ShutDown),
                },
                recv(finished) -> found => {
                    if let Ok(found) = found {
                        self.finish(found);
                    }
                }
            }
            if received.is_empty() {
                self.tell_mistakes();
            }
        }
    }

    fn send(&self, message: impl Into<Message>) {
        // A client that has gone hears nothing; the loop ends with its stream.
        let _ = self.sender.send(message.into());
    }

    fn notify(&self, method: &str, params: Value) {
        self.send(Notification::new(method.into(), params));
    }

    fn unreadable(&self, why: &str) {
        let error = refusal(ErrorCode::ParseError, format!("this is no message: {why}"));
        // Of a request whose id is unknown the answer has none; a log entry is what clients show.
        self.notify(
            "window/logMessage",
            json!({ "type": MessageType::ERROR, "message": error.message }),
        );
    }

    fn answer(&self, id: RequestId, answer: Answer) {
        let (result, error) = match answer {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(error)),
        };
        self.send(Response { id, result, error });
    }

    fn request(&mut self, request: Request) {
        let Request { id, method, params } = request;
        let answer = match (self.stage, method.as_str()) {
            (Stage::New, "initialize") => self.initialize(params),
            (Stage::New, _) => {
                Err(refusal(ErrorCode::ServerNotInitialized, "`initialize` comes first"))
            }
            (Stage::ShutDown, _) => {
                Err(refusal(ErrorCode::InvalidRequest, "the server is shut down"))
            }
            (Stage::Ready, "shutdown") => {
                self.stage = Stage::ShutDown;
                Ok(Value::Null)
            }
            (Stage::Ready, "workspace/executeCommand") => match self.execute(id.clone(), params) {
                // Its thread answers.
                Ok(()) => return,
                Err(error) => Err(error),
            },
            (Stage::Ready, _) => self.asked(&method, params),
        };
        self.answer(id, answer);
    }

    fn initialize(&mut self, params: Value) -> Answer {
        let folder = params.pointer("/workspaceFolders/0/uri").or_else(|| params.get("rootUri"));
        let root = folder.and_then(Value::as_str).and_then(path_of);
        let chosen: Chosen = match params.get("initializationOptions").filter(|v| !v.is_null()) {
            None => Chosen::default(),
            Some(options) => serde_json::from_value(options.clone()).map_err(|e| {
                refusal(ErrorCode::InvalidParams, format!("initializationOptions: {e}"))
            })?,
        };
        self.settings.rules.extend(chosen.rules);
        self.settings.models.extend(chosen.models);
        self.workspace = Workspace::new(self.host.clone(), root, self.settings.clone());
        self.stage = Stage::Ready;
        Ok(json!({
            "capabilities": {
                "positionEncoding": "utf-16",
                "textDocumentSync": { "openClose": true, "change": TextDocumentSyncKind::INCREMENTAL, "save": true },
                "hoverProvider": true,
                "definitionProvider": true,
                "referencesProvider": true,
                "completionProvider": {},
                "documentFormattingProvider": true,
                "documentSymbolProvider": true,
                "renameProvider": { "prepareProvider": true },
                "codeLensProvider": { "resolveProvider": false },
                "executeCommandProvider": { "commands": [CHECK, FIND] },
            },
            "serverInfo": { "name": "mlc-rewrite", "version": env!("CARGO_PKG_VERSION") },
        }))
    }

    fn asked(&mut self, method: &str, params: Value) -> Answer {
        match method {
            "textDocument/hover" => {
                self.at(params, |_, a, byte, _| Ok(json!(hover::hover(a, byte))))
            }
            "textDocument/definition" => self.at(params, |s, a, byte, uri| {
                let symbol = symbols::at(a, byte);
                Ok(json!(symbol.map(|x| symbols::definitions(&s.workspace, a, &x, uri))))
            }),
            "textDocument/references" => {
                let declarations =
                    params.pointer("/context/includeDeclaration").and_then(Value::as_bool);
                let others = self.others();
                self.at(params, |s, a, byte, uri| {
                    let found = symbols::at(a, byte).map(|x| {
                        let with = declarations.unwrap_or(true);
                        symbols::references(&s.workspace, a, &others, &x, with, uri)
                    });
                    Ok(json!(found))
                })
            }
            "textDocument/completion" => self
                .at(params, |_, a, byte, _| Ok(json!(completion::completions(a, byte as usize)))),
            "textDocument/prepareRename" => self.at(params, |s, a, byte, uri| {
                let Some(symbol) = symbols::at(a, byte) else { return Ok(Value::Null) };
                let range = symbols::renameable(&s.workspace, a, &symbol, uri);
                Ok(json!(range.map_err(|e| refusal(ErrorCode::RequestFailed, e))?))
            }),
            "textDocument/rename" => self.rename(params),
            "textDocument/formatting" => self.of(params, |_, a, _| Ok(json!(formatted(a)))),
            "textDocument/documentSymbol" => {
                self.of(params, |_, a, _| Ok(json!(outline::symbols(a))))
            }
            "textDocument/codeLens" => self.of(params, |s, a, uri| {
                Ok(json!(outline::lenses(a, uri, &s.workspace.settings.models)))
            }),
            _ => Err(refusal(ErrorCode::MethodNotFound, format!("there is no method `{method}`"))),
        }
    }

    /// Answers of a document.
    fn of(
        &mut self,
        params: Value,
        answer: impl FnOnce(&Server, &Analysis, &str) -> Answer,
    ) -> Answer {
        let uri = params.pointer("/textDocument/uri").and_then(Value::as_str);
        let uri =
            uri.ok_or_else(|| refusal(ErrorCode::InvalidParams, "there is no document in it"))?;
        let analysis = self.workspace.analysis(uri);
        let analysis = analysis
            .ok_or_else(|| refusal(ErrorCode::InvalidParams, format!("{uri} is not open")))?;
        answer(self, &analysis, uri)
    }

    /// Answers of a place of a document.
    fn at(
        &mut self,
        params: Value,
        answer: impl FnOnce(&Server, &Analysis, u32, &str) -> Answer,
    ) -> Answer {
        let place: Position = field(&params, "position")?;
        self.of(params, |s, a, uri| {
            let byte = Lines::of(a.text()).byte(a.text(), place);
            answer(s, a, byte, uri)
        })
    }

    fn rename(&mut self, params: Value) -> Answer {
        let new: String = field(&params, "newName")?;
        let others = self.others();
        self.at(params, |s, a, byte, uri| {
            let Some(symbol) = symbols::at(a, byte) else {
                return Err(refusal(ErrorCode::RequestFailed, "there is no name here"));
            };
            let changes = symbols::renamed(&s.workspace, a, &others, &symbol, &new, uri);
            let changes = changes.map_err(|e| refusal(ErrorCode::RequestFailed, e))?;
            Ok(json!({ "changes": changes }))
        })
    }

    /// All documents that are open.
    fn others(&mut self) -> Vec<(String, Arc<Analysis>)> {
        let uris: Vec<String> = self.workspace.documents().keys().cloned().collect();
        let read = |uri: String| self.workspace.analysis(&uri).map(|a| (uri, a));
        uris.into_iter().filter_map(read).collect()
    }

    fn execute(&mut self, id: RequestId, params: Value) -> Result<(), ResponseError> {
        let params: ExecuteCommandParams = whole(params)?;
        commands::start(id.clone(), &params, &mut self.workspace, &self.host, &self.done)
            .map_err(|e| refusal(ErrorCode::RequestFailed, e))?;
        self.running.insert(id);
        Ok(())
    }

    fn finish(&mut self, done: Done) {
        let Done { id, uri, version, told, finding } = done;
        if !self.running.remove(&id) {
            return;
        }
        let current = self.workspace.documents().get(&uri).is_some_and(|d| d.version == version);
        if let Some(finding) = finding.filter(|_| current) {
            let known = self.findings.entry(uri.clone()).or_default();
            known.retain(|f| f.law != finding.law);
            known.push(finding);
            self.stale.insert(uri);
        }
        if let Ok(message) = &told {
            self.notify(
                "window/showMessage",
                json!({ "type": MessageType::INFO, "message": message }),
            );
        }
        self.answer(id, told.map(Value::String).map_err(|e| refusal(ErrorCode::RequestFailed, e)));
    }

    fn notification(&mut self, notification: Notification) {
        let Notification { method, params } = notification;
        // What is malformed changes nothing: there is nobody to answer.
        match method.as_str() {
            "textDocument/didOpen" => {
                if let Ok(DidOpenTextDocumentParams { text_document: d }) = whole(params) {
                    let uri = d.uri.as_str().to_string();
                    self.workspace.open(&uri, Document::new(d.text, d.version));
                    self.changed(uri);
                }
            }
            "textDocument/didChange" => {
                if let Ok(DidChangeTextDocumentParams { text_document: d, content_changes }) =
                    whole(params)
                {
                    let uri = d.uri.as_str().to_string();
                    self.workspace.edit(&uri, |document| document.edit(content_changes, d.version));
                    self.changed(uri);
                }
            }
            "textDocument/didClose" => {
                if let Ok(DidCloseTextDocumentParams { text_document: d }) = whole(params) {
                    let uri = d.uri.as_str();
                    self.workspace.close(uri);
                    self.findings.remove(uri);
                    self.stale.remove(uri);
                    self.notify(
                        "textDocument/publishDiagnostics",
                        json!({ "uri": uri, "diagnostics": [] }),
                    );
                }
            }
            "textDocument/didSave" | "workspace/didChangeWatchedFiles" => {
                self.workspace.read_rules();
                self.stale.extend(self.workspace.documents().keys().cloned());
            }
            "$/cancelRequest" => {
                if let Ok(CancelParams { id }) = whole(params) {
                    let id = match id {
                        NumberOrString::Number(n) => RequestId::from(n),
                        NumberOrString::String(s) => RequestId::from(s),
                    };
                    if self.running.remove(&id) {
                        self.answer(id, Err(refusal(ErrorCode::RequestCanceled, "cancelled")));
                    }
                }
            }
            _ => {}
        }
    }

    /// After an edit: what was found about laws may no longer hold, and what builds on the document is told anew.
    fn changed(&mut self, uri: String) {
        self.findings.remove(&uri);
        let is_rules = self.workspace.is_configured(&uri);
        if is_rules {
            self.stale.extend(self.workspace.documents().keys().cloned());
        }
        self.stale.insert(uri);
    }

    fn tell_mistakes(&mut self) {
        for uri in std::mem::take(&mut self.stale) {
            let Some(analysis) = self.workspace.analysis(&uri) else { continue };
            let Ok(address) = Uri::from_str(&uri) else { continue };
            let findings = self.findings.get(&uri).map_or(&[][..], Vec::as_slice);
            let told = diagnostics(&analysis, &address, findings);
            let version = self.workspace.documents().get(&uri).map(|d| d.version);
            let params = json!({ "uri": uri, "version": version, "diagnostics": told });
            self.notify("textDocument/publishDiagnostics", params);
        }
    }
}

fn whole<T: DeserializeOwned>(params: Value) -> Result<T, ResponseError> {
    serde_json::from_value(params).map_err(|e| refusal(ErrorCode::InvalidParams, e.to_string()))
}

fn field<T: DeserializeOwned>(params: &Value, name: &str) -> Result<T, ResponseError> {
    whole(params.get(name).cloned().unwrap_or_default())
}

/// The edit that makes a document canonical; none if it is, or cannot be read.
fn formatted(analysis: &Analysis) -> Option<Vec<TextEdit>> {
    let is_syntax = |d: &mlc_dsl::diagnostics::Diag| d.code.0.starts_with('S');
    let broken = analysis.diags.iter().any(|d| d.severity == Severity::Error && is_syntax(d));
    if broken {
        return None;
    }
    let text = analysis.text();
    let canonical = analysis.texts[analysis.own].0.canonical();
    if canonical == text {
        return Some(vec![]);
    }
    let end = Lines::of(text).position(text, text.len() as u32);
    Some(vec![TextEdit { range: Range::new(Position::default(), end), new_text: canonical }])
}
