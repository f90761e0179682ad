//! A scripted editor: it speaks to the server over its standard input and output, and writes down what is said.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// An editor, its server, and what they have said.
pub struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: String,
    next: i32,
    transcript: String,
}

impl Client {
    /// Starts a server in a folder.
    pub fn start(folder: &Path, args: &[&str]) -> Client {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
            .arg("lsp")
            .args(args)
            .current_dir(folder)
            .env("XDG_DATA_HOME", folder.join("data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Client {
            child,
            input: input.expect("piped"),
            output: BufReader::new(output.expect("piped")),
            folder: folder.display().to_string(),
            next: 0,
            transcript: String::new(),
        }
    }

    /// The address of a file of the folder.
    pub fn uri(&self, file: &str) -> String {
        format!("file://{}/{file}", self.folder)
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{text}", text.len()).expect("it reads");
        self.input.flush().expect("it reads");
    }

    fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("it writes") > 0, "it ended");
            match line.trim_end().strip_prefix("Content-Length: ") {
                Some(n) => length = n.parse().expect("a length"),
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }
        let mut bytes = vec![0; length];
        self.output.read_exact(&mut bytes).expect("a message");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Writes down what the folder of the test is called by another name.
    fn note(&mut self, sign: &str, what: &str, value: &Value) {
        let text = match value {
            Value::String(s) => s.clone(),
            _ => compact(value, 0),
        };
        let text = text.replace(&self.folder, "/folder");
        let _ = writeln!(self.transcript, "{sign} {what} {text}");
    }

    /// Tells the server something.
    pub fn tell(&mut self, method: &str, params: Value) {
        self.note("-->", method, &params);
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Asks without waiting for the answer; the id of the request.
    pub fn ask_only(&mut self, method: &str, params: &Value) -> i32 {
        self.next += 1;
        let id = self.next;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The answer to a request, and what the server tells before it.
    pub fn answer(&mut self, id: i32) -> Value {
        loop {
            let message = self.receive();
            if message["id"] == json!(id) {
                return message;
            }
            let method = message["method"].as_str().expect("a notification").to_string();
            self.note("<--", &method, &message["params"]);
        }
    }

    /// Asks, and writes down the answer as `told` shortens it.
    pub fn ask(&mut self, method: &str, params: Value, told: impl Fn(&Value) -> Value) -> Value {
        self.note("==>", method, &params);
        let id = self.ask_only(method, &params);
        let answer = self.answer(id);
        match answer.get("error") {
            Some(error) => self.note("<==", "error", error),
            None => {
                let short = told(&answer["result"]);
                self.note("<==", "", &short);
            }
        }
        answer["result"].clone()
    }

    /// Waits for what the server tells by itself.
    pub fn hear(&mut self, method: &str) -> Value {
        loop {
            let message = self.receive();
            let said = message["method"].as_str().unwrap_or_default().to_string();
            self.note("<--", &said, &message["params"]);
            if said == method {
                return message["params"].clone();
            }
        }
    }

    /// Ends the conversation: the exit code, and the transcript.
    pub fn end(mut self) -> (Option<i32>, String) {
        self.ask("shutdown", Value::Null, Value::clone);
        self.tell("exit", Value::Null);
        let code = self.child.wait().expect("it ends").code();
        (code, self.transcript)
    }
}

/// JSON on few lines: ranges as `1:2-1:5`, members without quotes.
fn compact(value: &Value, depth: usize) -> String {
    if let Some(range) = range(value) {
        return range;
    }
    let pad = "  ".repeat(depth + 1);
    match value {
        Value::Object(members) => {
            let each = members.iter().map(|(k, v)| format!("{k}: {}", compact(v, depth + 1)));
            fitted(each.collect(), ('{', '}'), &pad)
        }
        Value::Array(items) => {
            let each = items.iter().map(|v| compact(v, depth + 1)).collect();
            fitted(each, ('[', ']'), &pad)
        }
        Value::String(s) if s.contains('\n') => {
            let lines: String = s.lines().map(|l| format!("\n{pad}| {l}")).collect();
            lines.trim_end().to_string()
        }
        _ => value.to_string(),
    }
}

fn fitted(parts: Vec<String>, (open, close): (char, char), pad: &str) -> String {
    let line = parts.join(", ");
    match line.len() < 100 && !line.contains('\n') {
        true => format!("{open}{line}{close}"),
        false => {
            let lines: String = parts.iter().map(|p| format!("\n{pad}{p}")).collect();
            format!("{open}{lines}{close}")
        }
    }
}

fn range(value: &Value) -> Option<String> {
    let at = |v: &Value| Some(format!("{}:{}", v.get("line")?, v.get("character")?));
    match (value.get("start"), value.get("end")) {
        (Some(start), Some(end)) => Some(format!("{}-{}", at(start)?, at(end)?)),
        _ => at(value),
    }
}
