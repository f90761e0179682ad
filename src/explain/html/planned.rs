//! The result as it is planned: its kernels, what each takes, and why neighbours are apart.

use super::drawn::Graph;
use super::nodes::{short, shortened};
use super::prices::{Kernels, Other, limit};

use crate::explain::apart::Apart;
use crate::explain::regions::KernelLine;
use crate::kernel_times::KernelTime;
use crate::show;
use mlc_dsl::ir::{NodeId, NodeKind, Type, Value};
use mlc_dsl::plan::Kernel;
use mlc_extract::cost::target::VIEW;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// A kernel, or an input or output.
#[derive(Debug, Serialize)]
pub(super) struct Item {
    /// The kernel's name on the target; empty of inputs and outputs.
    pub kernel: String,
    /// Its operators in short, or `input` and `output`.
    pub op: String,
    pub operators: Vec<String>,
    /// Names of the model's nodes that it computes, or that read it.
    pub nodes: Vec<String>,
    pub region: Option<usize>,
    pub seconds: f64,
    /// Its fastest time, if kernels were timed.
    pub measured: Option<f64>,
    /// The part of the roofline that it reaches: by the clock, or else by its estimate.
    pub roofline: Option<f64>,
    /// What sets its estimate.
    pub limit: &'static str,
    pub bytes: f64,
    pub flops: f64,
    /// Its operators, as `show` prints them.
    pub text: String,
    /// The next best that is known: the same operators in kernels of their own.
    pub apart: Option<Other>,
}

/// Why two kernels, one of which reads what the other yields, are two.
#[derive(Debug, Serialize)]
pub(super) struct Link {
    pub from: usize,
    pub to: usize,
    /// The reason, by its number.
    pub why: usize,
}

/// The result's side of the page. The first items are the plan's kernels, in the order in which they run.
pub(super) struct PlannedSide {
    pub items: Vec<Item>,
    pub graph: Graph,
    pub links: Vec<Link>,
    pub reasons: Vec<String>,
}

impl Apart<'_> {
    /// The plan's side of the page.
    pub(super) fn side(
        &self,
        lines: &[KernelLine],
        regions: &HashMap<&str, usize>,
        measured: Option<&[KernelTime]>,
    ) -> PlannedSide {
        let program = &self.plan.program;
        let mut side =
            PlannedSide { items: vec![], graph: Graph::default(), links: vec![], reasons: vec![] };
        // Inputs come first, so that edges lead on.
        for (name, ty) in &program.inputs {
            side.items.push(Item::end(name, "input"));
            side.graph.push(&["input", &short(name)], ("input", ty));
        }
        let first = side.items.len();
        let mut maker: HashMap<NodeId, usize> = HashMap::new();
        for (id, node) in (0..).map(NodeId).zip(&program.nodes) {
            if let NodeKind::Input(n) = node.kind {
                maker.insert(id, n as usize);
            }
        }
        for (k, (kernel, line)) in self.plan.kernels.iter().zip(lines).enumerate() {
            let item = self.item(kernel, line, regions, measured.map(|m| &m[k]));
            let types = kernel.outputs.iter().map(|v| program.ty(*v));
            let look = (&item.kernel, &item.operators, types.collect::<Vec<&Type>>());
            let name = short(line.nodes.first().map_or("", String::as_str));
            side.graph.push(&[&item.op, &name], look);
            let at = first + k;
            for from in kernel.inputs.iter().filter_map(|v| maker.get(&v.node)) {
                side.graph.edges.insert((*from, at));
            }
            maker.extend(kernel.outputs.iter().map(|v| (v.node, at)));
            side.items.push(item);
        }
        for (name, value) in &program.outputs {
            let at = side.items.len();
            side.graph.edges.extend(maker.get(&value.node).map(|from| (*from, at)));
            side.graph.push(&["output", &short(name)], ("output", program.ty(*value)));
            side.items.push(Item::end(name, "output"));
        }
        self.link(&mut side, first);
        side
    }

    fn item(
        &self,
        kernel: &Kernel,
        line: &KernelLine,
        regions: &HashMap<&str, usize>,
        measured: Option<&KernelTime>,
    ) -> Item {
        let program = &self.plan.program;
        let (limit, work) = limit(program, kernel, self.prices);
        let mut own = Kernels::default();
        own.push(program, kernel, self.prices);
        let apart = Kernels::apart(program, kernel, self.prices);
        let dtype = kernel.outputs.first().map(|v| program.ty(*v).dtype);
        let ideal = dtype.map_or(0.0, |d| self.prices.model().roofline(d, &work));
        let estimated = (line.seconds > 0.0).then(|| (ideal / line.seconds).min(1.0));
        let lists = [&kernel.anchors, &kernel.prologue, &kernel.epilogue];
        let computes = |n: &&NodeId| lists.iter().any(|l| l.contains(n));
        let name = |n: &NodeId| self.library.node_name(program, *n);
        let lines = kernel.nodes.iter().map(|n| show::application(program, self.library, *n));
        Item {
            kernel: kernel.name.clone(),
            op: match kernel.name.as_str() {
                VIEW => format!("view: {}", shortened(line.operators.iter().cloned())),
                // What is in none of these lists is a view inside.
                _ if kernel.nodes.iter().any(|n| computes(&n)) => {
                    shortened(kernel.nodes.iter().filter(computes).map(name))
                }
                _ => shortened(line.operators.iter().cloned()),
            },
            operators: line.operators.clone(),
            nodes: line.nodes.clone(),
            region: line.nodes.first().and_then(|n| regions.get(&**n)).copied(),
            seconds: line.seconds,
            measured: measured.map(|m| m.measured),
            roofline: measured.map_or(estimated, |m| m.roofline),
            limit,
            bytes: work.read + work.written,
            flops: work.flops,
            text: lines.filter(|l| !l.is_empty()).collect::<Vec<_>>().join("\n"),
            apart: apart.map(|apart| own.against(&apart, self.prices)),
        }
    }

    /// Says of every two kernels, one of which reads the other, why they are two.
    fn link(&self, side: &mut PlannedSide, first: usize) {
        let program = &self.plan.program;
        let mut maker: HashMap<Value, usize> = HashMap::new();
        let mut readers: HashMap<Value, usize> = HashMap::new();
        for (k, kernel) in self.plan.kernels.iter().enumerate() {
            maker.extend(kernel.outputs.iter().map(|v| (*v, k)));
            kernel.inputs.iter().for_each(|v| *readers.entry(*v).or_default() += 1);
        }
        program.outputs.iter().for_each(|(_, v)| *readers.entry(*v).or_default() += 1);
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        for (k, kernel) in self.plan.kernels.iter().enumerate() {
            for value in &kernel.inputs {
                let Some(&from) = maker.get(value).filter(|f| **f != k) else { continue };
                let why = self.why(&self.plan.kernels[from], kernel, *value, readers[value]);
                let next = side.reasons.len();
                let at = *known.entry(why.clone()).or_insert(next);
                if at == next {
                    side.reasons.push(why);
                }
                side.links.push(Link { from: first + from, to: first + k, why: at });
            }
        }
    }
}

impl Item {
    fn end(name: &str, op: &str) -> Item {
        Item {
            kernel: String::new(),
            op: op.into(),
            operators: vec![],
            nodes: vec![name.into()],
            region: None,
            seconds: 0.0,
            measured: None,
            roofline: None,
            limit: "",
            bytes: 0.0,
            flops: 0.0,
            text: String::new(),
            apart: None,
        }
    }
}
