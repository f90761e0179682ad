//! Hostile texts: broken, endless, deeply nested.

use super::examples::EXAMPLES;
use mlc_dsl::diagnostics::render;
use mlc_dsl::syntax::{parse, print_file};

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides.max(1) as u64) as usize
    }
}

fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>) {
    let at = dice.roll(bytes.len());
    let length = dice.roll(40).min(bytes.len() - at);
    match dice.roll(7) {
        0 => bytes[at] ^= 1 << dice.roll(8),
        1 => bytes.truncate(at),
        2 => {
            bytes.drain(at..at + length);
        }
        3 => {
            let copy = bytes[at..at + length].to_vec();
            let to = dice.roll(bytes.len());
            bytes.splice(to..to, copy);
        }
        4 => {
            const SIGNS: &[u8] = b"()[]|,;:?=<>+-*/%@^.!\"\\\n{";
            bytes[at] = SIGNS[dice.roll(SIGNS.len())];
        }
        5 => {
            const WORDS: [&str; 8] =
                [" if ", " else ", " each ", " sum(k) ", "\nrule ", " // ", " /// ", "\u{e9}"];
            bytes.splice(at..at, WORDS[dice.roll(WORDS.len())].bytes());
        }
        _ => {
            bytes.remove(at);
        }
    }
    if bytes.is_empty() {
        bytes.push(b'x');
    }
}

#[test]
fn mutated_texts_never_panic() {
    let items: Vec<&str> = EXAMPLES.split("\n\n").collect();
    let mut dice = Dice(1);
    for round in 0..3000 {
        let mut bytes = if round % 10 == 0 {
            EXAMPLES.as_bytes().to_vec()
        } else {
            items[dice.roll(items.len())].as_bytes().to_vec()
        };
        for _ in 0..=dice.roll(4) {
            mutate(&mut dice, &mut bytes);
        }
        let text = String::from_utf8_lossy(&bytes);
        let (file, diags) = parse(&text);
        render(&diags, "test.rules", &text, false);
        if diags.is_empty() {
            let printed = print_file(&file);
            let (again, diags) = parse(&printed);
            assert!(diags.is_empty(), "{text}\n{}", render(&diags, "test.rules", &printed, false));
            assert_eq!(file, again, "{text}\n{printed}");
        }
    }
}

fn body(text: &str) -> String {
    format!("def f(x: F) -> F = {text}")
}

#[test]
fn nests_without_end_are_refused() {
    let many = 100_000;
    let texts = [
        "(".repeat(many),
        body(&"(".repeat(many)),
        body(&format!("{}x{}", "(".repeat(many), ")".repeat(many))),
        body(&format!("{}x{}", "f(".repeat(60), ")".repeat(60))),
        body(&format!("{}x{}", "max(a) (".repeat(60), ")".repeat(60))),
        body(&format!("{}x", "max(a) (".repeat(60))),
        body(&format!("{}x{}", "max(a, (".repeat(30), "))".repeat(30))),
        body(&format!("{}x{}", "(x if (".repeat(30), "))".repeat(30))),
        body(&format!("{}x{}", "(x if x else (".repeat(30), "))".repeat(30))),
        body(&format!("{}x{}", "x[..x[i] else (".repeat(30), ")]".repeat(30))),
        body(&format!("{}x{}", "f(a=[..(".repeat(20), ")])".repeat(20))),
        body(&format!("{}x{}", format!("{}(", "-".repeat(300)).repeat(60), ")".repeat(60))),
        body(&format!("{}x{}", "(".repeat(60), "+x+x+x+x+x+x+x)".repeat(60))),
        body(&"x+".repeat(many)),
        body(&"x^".repeat(many)),
        body(&"-".repeat(many)),
        body(&"not ".repeat(many)),
        body(&"sum(k) ".repeat(many)),
        body(&"max(a) (".repeat(many)),
        body(&"x if x else ".repeat(many)),
        body(&"x if x ".repeat(many)),
        body(&"x[i] else ".repeat(many)),
        body(&"x = ".repeat(many)),
        body(&format!("x {}", "if x ".repeat(many))),
        format!("op f({}", "x: F[n], ".repeat(many)),
        format!("op f(x: {}", "F[".repeat(many)),
        format!("rule r {}", "(a, ".repeat(50)),
        format!("rule r {}", "(a, b) = ".repeat(many)),
        format!("onnx X(x) since 1 {}", "= x if y | ".repeat(many)),
        "op ".repeat(many),
        "op x".repeat(many),
        "\"".repeat(many),
        "\" \n".repeat(many),
        "// a\n".repeat(many),
        "/// a\n".repeat(many),
        format!("op f(x: F) {}", "// a\n".repeat(many)),
        "{}".repeat(many),
        "\u{e9} op ".repeat(many),
        format!("target t {}", "a = |".repeat(many)),
        format!("extern f() -> F reference \"{}\"", "\\u{".repeat(many)),
    ];
    for text in texts {
        let (file, _) = parse(&text);
        drop(print_file(&file));
    }
}

#[test]
fn many_mistakes_are_drawn() {
    let text = "rule r => x\n".repeat(3000);
    let (_, diags) = parse(&text);
    assert_eq!(diags.len(), 3000);
    assert!(render(&diags, "test.rules", &text, false).contains(" --> test.rules:3000:8\n"));
}

#[test]
fn long_texts_are_read_whole() {
    let text = EXAMPLES.repeat(100).replace("//!", "//");
    let (file, diags) = parse(&text);
    assert!(diags.is_empty());
    assert_eq!(file.items.len(), 2000);
}

#[test]
fn a_small_stack_is_enough() {
    let text = [
        body(&format!("{}x{}", "(x if x[i] * -f(a=[..".repeat(16), "]) else x)".repeat(16))),
        body(&format!("{}x{}", "max(a) (".repeat(63), ")".repeat(63))),
        body(&format!("{}x", "-".repeat(200))),
    ]
    .join("\n");
    let read = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
        let (file, diags) = parse(&text);
        assert!(diags.is_empty(), "{}", render(&diags, "test.rules", &text, false));
        let printed = print_file(&file);
        assert_eq!(parse(&printed).0, file);
    });
    assert!(read.expect("a thread").join().is_ok());
}

#[test]
fn long_runs_are_printed_as_they_are_read() {
    let runs = ["@", "%", "*", "/", "+", "-", "^", "and", "or"]
        .map(|op| ["x"; 200].join(&format!(" {op} ")));
    let mixed = "x @ x * x % x / ".repeat(50) + "x";
    let prefixes = ["-", "not ", "sum(n) "].map(|sign| sign.repeat(200) + "x");
    for run in runs.into_iter().chain([mixed]).chain(prefixes) {
        let text = format!("def f(x: F[n]) -> F[n]\n  = {run}\n");
        let (file, diags) = parse(&text);
        assert!(diags.is_empty(), "{diags:?}");
        let printed = print_file(&file);
        let (again, diags) = parse(&printed);
        assert!(diags.is_empty() && again == file, "{printed}\n{diags:?}");
        assert_eq!(print_file(&again), printed);
    }
}
