//! CUDA C++ functions that a device compiles and loads together.

use std::collections::HashSet;

/// Functions of a translation unit that is compiled beside others: so few that many units keep all cores busy, so many that what every unit
/// begins with, which takes a third of the time of a function, is the least of it.
const TOGETHER: usize = 4;

/// Functions, each once, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Code<'a> {
    names: HashSet<&'a str>,
    functions: Vec<(&'a str, &'a str)>,
}

impl<'a> Code<'a> {
    /// Adds a function that needs nothing but [`PRELUDE`](crate::PRELUDE), unless one of its name is there.
    pub fn add(&mut self, name: &'a str, text: &'a str) {
        if self.names.insert(name) {
            self.functions.push((name, text));
        }
    }

    /// Each function's name and text.
    pub fn functions(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.functions.iter().copied()
    }

    /// All functions as one translation unit.
    pub fn unit(&self) -> String {
        unit(&self.functions)
    }

    /// All functions as translation units of a few each, which may be compiled at the same time.
    pub fn units(&self) -> Vec<String> {
        self.functions.chunks(TOGETHER).map(unit).collect()
    }
}

fn unit(functions: &[(&str, &str)]) -> String {
    std::iter::once(crate::PRELUDE)
        .chain(functions.iter().map(|f| f.1))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_every_function_once() {
        let mut code = Code::default();
        let names: Vec<String> = (0..9).map(|i| format!("f{i}")).collect();
        let texts: Vec<String> = names.iter().map(|n| format!("KERNEL(1) {n}() {{}}")).collect();
        for (name, text) in names.iter().zip(&texts).chain([(&names[3], &texts[3])]) {
            code.add(name, text);
        }
        let units = code.units();
        assert_eq!(units.len(), 3);
        assert!(units.iter().all(|u| u.starts_with(crate::PRELUDE)));
        let own = |u: &String| u[crate::PRELUDE.len()..].to_string();
        let expected = code.unit()[crate::PRELUDE.len()..].to_string();
        assert_eq!(units.iter().map(own).collect::<String>(), expected);
        assert!(texts.iter().all(|t| expected.matches(t.as_str()).count() == 1));
        assert_eq!(Code::default().units(), Vec::<String>::new());
    }
}
