//! Reading a `.rules` text never panics, and what it prints reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlc_dsl::syntax::{parse, print_file, same};

fuzz_target!(|text: &str| {
    let (file, diags) = parse(text);
    let _ = mlc_dsl::diagnostics::render(&diags, "input", text, false);
    if diags.is_empty() {
        let (again, diags) = parse(&print_file(&file));
        assert!(diags.is_empty(), "what is printed has errors");
        assert!(same(&file, &again), "what is printed says something else");
    }
    let _ = mlc_dsl::check::library(&[("input".to_string(), text.to_string())]);
});
