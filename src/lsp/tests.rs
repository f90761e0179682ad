//! The server on streams in memory: whatever the bytes, it answers or ends, and never panics.

use crate::{Host, Settings, Verdict, serve};
use mlc_dsl::check::{Text, parsed};
use mlc_dsl::library::Library;
use serde_json::{Value, json};
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

const SHIPPED: &str = "/// It is never below zero.\nop relu(x: F[..s]) -> y: F[..s]\n  y[..s] = x[..s] if x[..s] > 0 else 0\n\n\
                       /// A product.\nop mul(x: F[..s], y: F[..s]) -> z: F[..s]\n  commutative\n  z[..s] = x[..s] * y[..s]\n";

static TEXTS: LazyLock<Vec<Text>> = LazyLock::new(|| parsed(&[("ops.rules", SHIPPED)]));

/// A program around the server that knows a few operators and holds every law to be true.
struct Small;

impl Host for Small {
    fn shipped(&self) -> &'static [Text] {
        &TEXTS
    }
    fn check(&self, _: &Arc<Library>, law: &str) -> Result<Verdict, String> {
        let text = format!("`{law}` holds");
        Ok(Verdict { holds: true, code: None, summary: text.clone(), text })
    }
    fn find(&self, _: &[(String, String)], _: &str, model: &Path) -> Result<String, String> {
        Err(format!("cannot read {}", model.display()))
    }
    fn file_of(&self, shipped: &str) -> Option<PathBuf> {
        Some(Path::new("/shipped").join(shipped))
    }
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("held by one").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the server says to these bytes, message by message, and its exit code.
fn said(bytes: Vec<u8>) -> (u8, Vec<Value>) {
    let sink = Sink::default();
    let code = serve(Cursor::new(bytes), sink.clone(), Arc::new(Small), Settings::default());
    let bytes = sink.0.lock().expect("held by one").clone();
    let mut rest = String::from_utf8(bytes).expect("UTF-8");
    let mut out = Vec::new();
    while let Some((head, body)) = rest.split_once("\r\n\r\n") {
        let length: usize = head.trim_start_matches("Content-Length: ").parse().expect("a length");
        out.push(serde_json::from_str(&body[..length]).expect("JSON"));
        rest = body[length..].to_string();
    }
    (code, out)
}

fn framed(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    format!("Content-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
}

fn stream(messages: &[Value]) -> Vec<u8> {
    messages.iter().flat_map(framed).collect()
}

fn request(id: i32, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn notice(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

const URI: &str = "file:///a.rules";

fn opened(text: &str) -> Vec<Value> {
    let document = json!({ "uri": URI, "languageId": "rules", "version": 1, "text": text });
    vec![
        request(1, "initialize", json!({})),
        notice("textDocument/didOpen", json!({ "textDocument": document })),
    ]
}

fn place(line: u32, character: u32) -> Value {
    json!({ "textDocument": { "uri": URI }, "position": { "line": line, "character": character }, "newName": "n" })
}

const AT: &[&str] = &[
    "textDocument/hover",
    "textDocument/definition",
    "textDocument/references",
    "textDocument/completion",
    "textDocument/prepareRename",
    "textDocument/rename",
];

const OF: &[&str] =
    &["textDocument/formatting", "textDocument/documentSymbol", "textDocument/codeLens"];

/// Broken in many ways; lines end in all three ways.
const TEXT: &str = "/// 😀\r\nrule r\r  relu(k * x) => k * rleu(x)\n  given x: F[..s], k: float in 0.5..\n  if k >\n  error \n\
                    def d(x: F[..s]) -> F[..s]\n  = relu(x[..s)\ndef e(y: F[..s], b: bool = true) -> F[..s]\n  = d(relu(y), c=\"\u{202e}ü\n";

#[test]
fn every_place_of_a_broken_text_is_answered() {
    let mut messages = opened(TEXT);
    let mut id = 1;
    for line in 0..14 {
        for character in [0, 1, 2, 3, 7, 12, 23, 99, u32::MAX] {
            for method in AT {
                id += 1;
                messages.push(request(id, method, place(line, character)));
            }
        }
    }
    for method in OF {
        id += 1;
        messages.push(request(id, method, place(0, 0)));
    }
    messages.push(request(id + 1, "shutdown", Value::Null));
    messages.push(notice("exit", Value::Null));
    let (code, said) = said(stream(&messages));
    assert_eq!(code, 0);
    let answered = said.iter().filter(|m| m.get("id").is_some()).count();
    assert_eq!(answered, id as usize + 1);
}

#[test]
fn every_prefix_of_a_text_is_read_and_completed() {
    let text = format!("{SHIPPED}\n{TEXT}");
    let mut messages = opened("");
    let cuts: Vec<usize> =
        (0..text.len()).filter(|i| text.is_char_boundary(*i)).step_by(3).collect();
    for (cut, version) in cuts.iter().zip(2..) {
        let change = json!([{ "text": text[..*cut] }]);
        let document = json!({ "uri": URI, "version": version });
        messages.push(notice(
            "textDocument/didChange",
            json!({ "textDocument": document, "contentChanges": change }),
        ));
        messages.push(request(version, "textDocument/completion", place(99, 99)));
    }
    let (code, said) = said(stream(&messages));
    // The stream ends without `exit`.
    assert_eq!(code, 1);
    let answers = said.iter().filter(|m| m.get("result").is_some()).count();
    assert_eq!(answers, cuts.len() + 1);
}

#[test]
fn changed_bytes_never_panic() {
    let mut messages = opened(TEXT);
    messages.extend(AT.iter().zip(2..).map(|(m, id)| request(id, m, place(2, 3))));
    let command = json!({ "command": "mlc-rewrite.find", "arguments": [URI, "r", "m.onnx"] });
    messages.push(request(20, "workspace/executeCommand", command));
    messages.push(request(21, "shutdown", Value::Null));
    let bytes = stream(&messages);
    // A linear congruence: the same bytes on every machine.
    let mut state = 1u64;
    let mut next = |n: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for _ in 0..300 {
        let mut changed = bytes.clone();
        for _ in 0..1 + next(4) {
            let at = next(changed.len());
            match next(3) {
                0 => changed[at] = next(256) as u8,
                1 => drop(changed.remove(at)),
                _ => changed.insert(at, b"{}[]\",:0\xff\n"[next(10)]),
            }
        }
        let (code, _) = said(changed);
        assert!(code <= 1);
    }
}

#[test]
fn texts_say_what_is_renamed_and_what_cannot_be() {
    let text = "/// It.\ndef d(x: F[..s], scale: float = 1) -> F[..s]\n  = relu(x) * scale\n\n\
                /// So is this.\nrule r\n  d(k * x, scale=2) => k * d(x, scale=2)\n  given x: F[..s], k: float\n  error reorder\n";
    let mut messages = opened(text);
    let asked = |id: i32, line: u32, character: u32, new: &str| {
        let mut at = place(line, character);
        at["newName"] = json!(new);
        request(id, "textDocument/rename", at)
    };
    for (id, line, character, new) in [
        (2, 1, 17, "factor"),
        (3, 5, 6, "law"),
        (4, 6, 4, "factor"),
        (5, 7, 15, "t"),
        (6, 2, 5, "rectified"),
        (7, 1, 4, "mul"),
        (8, 1, 4, "2d"),
        (9, 6, 4, "x"),
    ] {
        messages.push(asked(id, line, character, new));
    }
    let (_, said) = said(stream(&messages));
    let told = |id: i32| {
        let answer = said.iter().find(|m| m["id"] == json!(id)).expect("answered");
        match answer["error"]["message"].as_str() {
            Some(why) => why.to_string(),
            None => {
                let edits = answer["result"]["changes"][URI].as_array().expect("edits").len();
                format!("{edits} edits")
            }
        }
    };
    // The parameter where it is declared, used and passed twice.
    assert_eq!(told(2), "4 edits");
    assert_eq!(told(3), "1 edits");
    assert_eq!(told(4), "3 edits");
    assert_eq!(told(5), "1 edits");
    assert_eq!(told(6), "`relu` is declared in the shipped text ops.rules");
    assert_eq!(told(7), "`mul` is the name of something else here");
    assert_eq!(told(8), "`2d` is no name: letters, digits and `_`, and no digit first");
    assert_eq!(told(9), "`x` is the name of something else here");
}
