//! Runs code over the whole output.

use super::Engine;
use super::array::{Array, Elements, wrap};
use super::code::{Fault, Machine, Source, for_each};
use super::compile::{Body, Code};
use std::sync::Arc;

/// The `n` elements of the output.
pub(super) fn run(
    code: &Code,
    n: usize,
    args: &[Array],
    engine: Engine,
) -> Result<Elements, Fault> {
    let sources: Vec<Source> = args
        .iter()
        .map(|a| match a.elements() {
            Elements::Float(v) => Source::Float(v),
            Elements::Int(v) => Source::Int(v),
        })
        .collect();
    match engine {
        Engine::Plain => plain(code, n, &sources),
        Engine::Fast => plain(code, n, &sources),
    }
}

/// Element by element, in row-major order.
fn plain(code: &Code, n: usize, sources: &[Source]) -> Result<Elements, Fault> {
    let mut m = Machine::new(code.extents.len(), sources);
    let elements = match &code.body {
        Body::Real(body) => {
            let mut out = Vec::with_capacity(n);
            for_each(&code.axes, &mut m, |m| out.push(body.eval(m)));
            Elements::Float(Arc::new(out))
        }
        Body::Int(dtype, body) => {
            let mut out = Vec::with_capacity(n);
            for_each(&code.axes, &mut m, |m| out.push(wrap(*dtype, body.eval(m))));
            Elements::Int(Arc::new(out))
        }
    };
    m.verdict().map(|()| elements)
}
