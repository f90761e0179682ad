//! Hints for syntax errors whose message does not say what to write instead.

use crate::diagnostics::Diag;

/// Gives a help to every mistake that has none; `item` is the word that begins the item it stands in.
pub(super) fn advise(diag: &mut Diag, item: &str) {
    if diag.help.is_none() {
        diag.help = Some(advice(diag.code.0, item));
    }
}

fn advice(code: &str, item: &str) -> String {
    let general = match code {
        "S002" => "close it, or remove it",
        "S003" => "remove it, or add the opening bracket",
        "S006" => {
            "names consist of ASCII letters, digits and `_`; comments begin with `//`, and strings are enclosed in double quotes"
        }
        "S008" => "a version is a number such as 13",
        "S013" => {
            "write `error exact`, `error reorder` or `error approx(abs=1e-3, rel=1e-3)`, each bound at most once"
        }
        "S014" => "remove this token: `x: F[..s]` is a tensor, `k: float` an attribute",
        _ => return form(item),
    };
    general.to_string()
}

/// How an item is written.
fn form(item: &str) -> String {
    let form = match item {
        "op" => "op name(x: F[..s]) -> y: F[..s]` and `y[..s] = exp(x[..s])",
        "def" => "def name(x: F[..s], k: float) -> F[..s]` and `= k * exp(x)",
        "rule" => {
            "rule name`, `exp(x) * exp(y) => exp(x + y)`, `given x: F[..s], y: F[..s]` and `error reorder"
        }
        "fuse" => "fuse name(x: F[..s]) -> F[..s]`, `= pointwise(x)` and `on cpu(\"loop\")",
        "extern" => "extern name(x: F[..s]) -> y: F[..s]` and `reference \"function\"",
        "onnx" => "onnx Name(x; alpha = 0.01) since 6` and `= alpha * exp(x)",
        "target" => "target name`, `flops = 1e11` and `kernel \"gemm\" covers matmul",
        "architecture" => {
            "architecture name() of gguf \"name\"` and `let \"y\" = tensor(\"w\", [8])"
        }
        _ => return "the manual describes how items are written".into(),
    };
    format!("this kind of item is written `{form}`")
}

#[cfg(test)]
mod tests {
    use crate::syntax::parse;

    #[test]
    fn the_forms_that_are_shown_are_sound() {
        for item in crate::syntax::scan::ITEM_WORDS {
            let form = super::form(item);
            let parts: Vec<&str> = form.split('`').skip(1).step_by(2).collect();
            let (file, diags) = parse(&parts.join("\n"));
            assert!(diags.is_empty() && file.items.len() == 1, "{item}: {parts:?}\n{diags:#?}");
        }
    }
}
