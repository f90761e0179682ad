//! The kernels of a unit, and the functions through which they are launched.

use std::fmt::Write;

/// A kernel, as a unit declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// The name of the function.
    pub(crate) name: String,
    /// The most threads that a block may have: an expression of C++.
    pub(crate) threads: String,
}

/// The kernels that `KERNEL(threads) name(` or `KERNEL(threads, registers) name(` declares, outside of comments and directives.
pub(crate) fn find(source: &str) -> Vec<Kernel> {
    let text = without_comments_and_directives(source);
    let mut kernels = Vec::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("KERNEL(") {
        let is_word = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        rest = &rest[at + "KERNEL(".len()..];
        let Some(end) = closing(rest).filter(|_| is_word) else { continue };
        let after = rest[end + 1..].trim_start();
        let name_end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let (name, tail) = after.split_at(name_end.unwrap_or(after.len()));
        if !name.is_empty() && tail.trim_start().starts_with('(') {
            let threads = rest[..end].split(',').next().unwrap_or_default().trim().to_owned();
            kernels.push(Kernel { name: name.to_owned(), threads });
        }
    }
    kernels
}

/// Where the parenthesis closes that is open at the beginning.
fn closing(text: &str) -> Option<usize> {
    let mut open = 1;
    text.char_indices().find_map(|(at, c)| {
        open += i32::from(c == '(') - i32::from(c == ')');
        (open == 0).then_some(at)
    })
}

/// Generated code has no string that contains the beginning of a comment.
fn without_comments_and_directives(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("/*") {
        // A comment may also begin within a comment to the end of the line, and is none then.
        let line = rest[..at].rfind('\n').map_or(0, |newline| newline + 1);
        if rest[line..at].contains("//") {
            let end = rest[at..].find('\n').map_or(rest.len(), |newline| at + newline);
            text.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        text.push_str(&rest[..at]);
        text.push(' ');
        rest = rest[at..].find("*/").map_or("", |end| &rest[at + end + 2..]);
    }
    text.push_str(rest);
    let mut directive = false;
    let mut kept = String::with_capacity(text.len());
    for line in text.lines() {
        directive |= line.trim_start().starts_with('#');
        if !directive {
            kept.push_str(line.split("//").next().unwrap_or_default());
            kept.push('\n');
        }
        directive &= line.ends_with('\\');
    }
    kept
}

/// The symbol of the function that launches a kernel.
pub(crate) fn entry(name: &str) -> String {
    format!("emulated_launch_{name}")
}

/// The unit as the C++ compiler gets it. Its lines keep their numbers, which errors name.
pub(crate) fn with_entries(source: &str, kernels: &[Kernel]) -> String {
    let mut unit =
        format!("#include \"emulator.hpp\"\n#line 1 \"unit\"\n{source}\n#line 1 \"entries\"\n");
    for Kernel { name, threads } in kernels {
        let _ = writeln!(
            unit,
            "extern \"C\" __attribute__((visibility(\"default\"))) const char* \
             emulated_launch_{name}(const emulated::Request* request) {{ \
             return emulated::Kernel<decltype(&{name}), &{name}>::launch(\"{name}\", {threads}, *request); }}"
        );
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_outside_of_comments_and_directives() {
        let source = "
            #define KERNEL(threads) \\
                extern KERNEL(1) a(
            // KERNEL(2) b()
            /* KERNEL(3)
               c() */ KERNEL(2 * (3 + 1))
            d (GLOBAL(float) x) {} // a /* that opens nothing
            KERNEL(256) e(GLOBAL(float) x) {}
            KERNEL(64, 255) g() {}
            MY_KERNEL(1) f() {}";
        let kernel =
            |name: &str, threads: &str| Kernel { name: name.into(), threads: threads.into() };
        let expected = [kernel("d", "2 * (3 + 1)"), kernel("e", "256"), kernel("g", "64")];
        assert_eq!(find(source), expected);
    }
}
