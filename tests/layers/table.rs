//! The layers of `examples/layers`, with inputs that a formula yields and the outputs that NumPy computed.

use mlc_rewrite::ndarray::ArrayD;
use mlc_rewrite::{Model, Reader};
use std::path::{Path, PathBuf};

/// A layer, and what it computes.
pub struct Case {
    pub name: String,
    pub inputs: Vec<(String, Vec<usize>)>,
    pub shape: Vec<usize>,
    pub elements: Vec<f64>,
}

/// The folder of the layers.
pub fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = root.join("examples/layers");
    if here.is_dir() { here } else { root.join("../examples/layers") }
}

/// The table that `expected.py` wrote.
pub fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("expected.txt")).expect("a table");
    let mut out: Vec<Case> = Vec::new();
    let extents = |words: &[&str]| words.iter().map(|w| w.parse().expect("an extent")).collect();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match (words.as_slice(), out.last_mut()) {
            (["layer", name], _) => out.push(Case {
                name: (*name).into(),
                inputs: vec![],
                shape: vec![],
                elements: vec![],
            }),
            (["input", name, shape @ ..], Some(case)) => {
                case.inputs.push(((*name).into(), extents(shape)));
            }
            (["output", rest @ ..], Some(case)) => {
                let colon = rest.iter().position(|w| *w == ":").expect("a colon");
                case.shape = extents(&rest[..colon]);
                let number = |w: &&str| w.parse().expect("a number");
                case.elements = rest[colon + 1..].iter().map(number).collect();
            }
            _ => panic!("no line of the table: {line}"),
        }
    }
    out
}

impl Case {
    /// The text of the layer.
    pub fn path(&self) -> PathBuf {
        folder().join(format!("{}.rules", self.name))
    }

    /// The layer as a model of the shapes of the table.
    pub fn model(&self) -> Model {
        let mut reader = Reader::new();
        for (name, shape) in &self.inputs {
            let shape: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
            reader = reader.shape(name, &shape);
        }
        reader.read(self.path()).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// The inputs, by the formula of `expected.py`.
    pub fn arrays(&self) -> Vec<(String, ArrayD<f32>)> {
        let array = |(k, (name, shape)): (usize, &(String, Vec<usize>))| {
            let value = |i: usize| {
                let v = (31 * i * i + 856 * i + 211 * k + 97) % 1009;
                (v as f64 / 504.0 - 1.0) as f32
            };
            let elements = (0..shape.iter().product()).map(value).collect();
            (name.clone(), ArrayD::from_shape_vec(shape.clone(), elements).expect("as many"))
        };
        self.inputs.iter().enumerate().map(array).collect()
    }

    /// The largest difference to what NumPy computed, in parts of the largest element.
    pub fn difference(&self, found: &[f32]) -> f64 {
        assert_eq!(found.len(), self.elements.len(), "{}", self.name);
        let largest = self.elements.iter().fold(0.0f64, |a, e| a.max(e.abs()));
        assert!(largest > 0.0, "{} computes nothing", self.name);
        let apart = found.iter().zip(&self.elements).map(|(f, e)| (f64::from(*f) - e).abs());
        apart.fold(0.0, |a, d| if d.is_nan() { f64::INFINITY } else { a.max(d) }) / largest
    }
}
