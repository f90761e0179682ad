//! The language server as an editor meets it: a session from `initialize` to `exit`, cancellation, and streams of garbage.
#![cfg(unix)]

mod client;

use client::Client;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// A text that every document of the session builds on.
const SHARED: &str = "//! Shared by the texts of the folder.\n\n/// Half of it.\n\
                      def half(x: F[..s]) -> F[..s]\n  = x / 2\n";

/// The document: `rlu` is a mistake.
const TEXT: &str = "//! A layer and its law.\n\n/// Doubles what is positive.\n\
                    def twice(x: F[..s]) -> F[..s]\n  = rlu(half(x)) * 4\n\n\
                    /// A positive factor is pulled out.\nrule twice_scaled\n  twice(k * x) => k * twice(x)\n  \
                    given x: F[..s], k: float in 0.5..4\n  error reorder\n";

/// A model that has the law's left side.
const MODEL: &str =
    "//! A model.\n\n/// It.\ndef model(x: f32[2, 3]) -> f32[2, 3]\n  = twice(3 * x) + twice(x)\n";

fn whole(value: &Value) -> Value {
    value.clone()
}

/// Of a list of completions how many there are, and those of these names.
fn among(names: &'static [&'static str]) -> impl Fn(&Value) -> Value {
    move |all| {
        let all = all.as_array().expect("a list");
        let label = |i: &&Value| names.iter().any(|n| i["label"] == *n);
        let short = |i: &Value| json!({ "label": i["label"], "detail": i["detail"] });
        let shown: Vec<Value> = all.iter().filter(label).map(short).collect();
        let count = if all.len() > 50 { "many".to_string() } else { all.len().to_string() };
        json!({ "items": count, "among them": shown })
    }
}

#[test]
fn a_session_is_as_it_is_written_down() {
    let folder = tempfile::tempdir().expect("a folder");
    for (file, text) in [("shared.rules", SHARED), ("model.rules", MODEL)] {
        std::fs::write(folder.path().join(file), text).expect("written");
    }
    let mut c = Client::start(folder.path(), &[]);
    let uri = c.uri("layer.rules");
    let root = c.uri("");
    let options = json!({ "rules": ["shared.rules"], "models": ["model.rules"] });
    let told = |v: &Value| json!({ "positionEncoding": v["capabilities"]["positionEncoding"] });
    c.ask("initialize", json!({ "rootUri": root, "initializationOptions": options }), told);
    c.tell("initialized", json!({}));

    let document = json!({ "uri": uri, "languageId": "rules", "version": 1, "text": TEXT });
    c.tell("textDocument/didOpen", json!({ "textDocument": document }));
    let found = c.hear("textDocument/publishDiagnostics");
    assert_eq!(found["diagnostics"][0]["code"], "R003");
    let mut version = 1;
    let mut edit = |c: &mut Client, from: (u32, u32), to: (u32, u32), text: &str| {
        version += 1;
        let at = |p: (u32, u32)| json!({ "line": p.0, "character": p.1 });
        let change = json!({ "range": { "start": at(from), "end": at(to) }, "text": text });
        c.tell(
            "textDocument/didChange",
            json!({ "textDocument": { "uri": uri, "version": version }, "contentChanges": [change] }),
        );
        c.hear("textDocument/publishDiagnostics")
    };
    // A character of two units: it is one mistake of two units, and taken away as two.
    let odd = edit(&mut c, (4, 4), (4, 7), "😀relu");
    assert_eq!(odd["diagnostics"][0]["range"]["end"]["character"], 6);
    let fixed = edit(&mut c, (4, 4), (4, 6), "");
    assert_eq!(fixed["diagnostics"], json!([]));

    let at = |line: u32, character: u32| json!({ "textDocument": { "uri": uri }, "position": { "line": line, "character": character } });
    let value = |v: &Value| v["contents"]["value"].clone();
    // `relu`, the parameter `x`, the variable `k`, `rule`, `error`.
    for (line, character) in [(4, 5), (3, 10), (8, 8), (7, 1), (10, 3)] {
        c.ask("textDocument/hover", at(line, character), value);
    }
    // `twice` in the law, `half` of the other text, `relu` of a shipped one.
    for (line, character) in [(8, 3), (4, 10), (4, 5)] {
        c.ask("textDocument/definition", at(line, character), whole);
    }
    let mut asked = at(3, 5);
    asked["context"] = json!({ "includeDeclaration": true });
    c.ask("textDocument/references", asked, whole);

    c.ask("textDocument/completion", at(4, 6), among(&["relu", "softmax", "half", "x"]));
    c.ask("textDocument/completion", at(10, 8), among(&["exact", "reorder", "approx"]));
    c.ask("textDocument/completion", at(6, 0), among(&["rule", "def"]));

    c.ask("textDocument/prepareRename", at(3, 5), whole);
    for (line, character, new) in [
        (3, 5, "doubled"),
        (8, 8, "factor"),
        (4, 10, "halved"),
        (4, 5, "r"),
        (8, 8, "x"),
        (8, 8, "if"),
    ] {
        let mut asked = at(line, character);
        asked["newName"] = json!(new);
        c.ask("textDocument/rename", asked, whole);
    }
    c.ask("textDocument/documentSymbol", json!({ "textDocument": { "uri": uri } }), |v| {
        json!(v.as_array().expect("a list").iter().map(|s| &s["name"]).collect::<Vec<_>>())
    });

    let lenses = c.ask("textDocument/codeLens", json!({ "textDocument": { "uri": uri } }), |v| {
        json!(
            v.as_array()
                .expect("a list")
                .iter()
                .map(|l| &l["command"]["title"])
                .collect::<Vec<_>>()
        )
    });
    // Without its condition the law is false.
    let law = |i: usize| lenses[i]["command"].clone();
    c.ask("workspace/executeCommand", law(2), whole);
    c.hear("textDocument/publishDiagnostics");
    edit(&mut c, (10, 0), (10, 0), "  if k > 0, k < inf\n");
    c.ask("workspace/executeCommand", law(2), whole);
    c.hear("textDocument/publishDiagnostics");
    c.ask("workspace/executeCommand", law(3), whole);

    edit(&mut c, (4, 2), (4, 4), "=    ");
    let options = json!({ "textDocument": { "uri": uri }, "options": { "tabSize": 2, "insertSpaces": true } });
    let edits = c.ask("textDocument/formatting", options, whole);
    assert!(edits[0]["newText"].as_str().expect("a text").contains("\n  = relu"));

    let (code, transcript) = c.end();
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(transcript);
    is_shown(&transcript);
}

/// What `docs/lsp.md` shows of the session is what was said, in this order; `…` stands for what is left out.
fn is_shown(transcript: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/lsp.md");
    let document = std::fs::read_to_string(path).expect("a document");
    let block = document.split("```text\n").nth(1).and_then(|t| t.split("```\n").next());
    let mut said = transcript.lines();
    let shown = block.expect("a block").lines().filter(|l| l.trim() != "…");
    let mut count = 0;
    for line in shown {
        assert!(said.any(|l| l.trim() == line.trim()), "docs/lsp.md shows `{line}`");
        count += 1;
    }
    assert!(count > 50, "{count} lines");
}

#[test]
fn a_request_that_is_cancelled_is_answered_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut c = Client::start(folder.path(), &[]);
    c.ask("initialize", json!({}), whole);
    let uri = c.uri("a.rules");
    let text = "/// It.\nrule r\n  x * y => y * x\n  given x: F[..s], y: F[..s]\n  error exact\n";
    let document = json!({ "uri": uri, "languageId": "rules", "version": 1, "text": text });
    c.tell("textDocument/didOpen", json!({ "textDocument": document }));
    let asked = json!({ "command": "mlc-rewrite.check", "arguments": [uri, "r"] });
    let id = c.ask_only("workspace/executeCommand", &asked);
    c.tell("$/cancelRequest", json!({ "id": id }));
    let answer = c.answer(id);
    let cancelled = answer["error"]["code"] == -32800;
    assert!(cancelled || answer["result"].is_string(), "{answer}");
    let (code, transcript) = c.end();
    assert_eq!(code, Some(0), "{transcript}");
}

#[test]
fn garbage_ends_the_server_and_nothing_else() {
    let framed =
        |body: &[u8]| [format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat();
    for (bytes, code) in [
        (b"".to_vec(), 1),
        (b"\xff\xfe\r\n\r\n".to_vec(), 1),
        (b"Content-Length: 99999999999999\r\n\r\n{}".to_vec(), 1),
        (framed(b"\xff"), 1),
        (framed(br#"{"jsonrpc":"2.0","method":"exit"}"#), 1),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
            .arg("lsp")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        let _ = child.stdin.take().expect("piped").write_all(&bytes);
        assert_eq!(child.wait().expect("ends").code(), Some(code), "{bytes:?}");
    }
}
