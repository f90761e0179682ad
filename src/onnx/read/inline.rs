//! Inlines model-local functions.
//!
//! Works on wire messages, before tensors are decoded, so that a constant in a function is
//! shared by all its calls. The growth is bounded: nested calls can double the size at each level.

use crate::proto::*;
use crate::raw::error::OnnxError;
use crate::raw::label;
use mlc_dsl::shown;
use std::collections::{HashMap, HashSet};

/// Most bytes that inlined bodies may take together.
const GROWTH: usize = 192 << 20;
/// Deepest nesting of calls and subgraphs.
const DEPTH: usize = 64;

/// Domain, name and overload.
type Key = (String, String, String);

/// The standard domain has two names.
pub(crate) fn domain(name: Option<&str>) -> &str {
    match name {
        None | Some("ai.onnx") => "",
        Some(other) => other,
    }
}

fn key(domain_name: &Option<String>, name: &Option<String>, overload: &Option<String>) -> Key {
    let text = |s: &Option<String>| s.clone().unwrap_or_default();
    (domain(domain_name.as_deref()).to_string(), text(name), text(overload))
}

fn node_key(n: &NodeProto) -> Key {
    key(&n.domain, &n.op_type, &n.overload)
}

fn call_label(n: &NodeProto) -> String {
    label(n.op_type.as_deref().unwrap_or(""), n.name.as_deref().unwrap_or(""), &n.output)
}

/// Replaces all calls of the model's functions and drops the functions.
pub(crate) fn inline_functions(model: &mut ModelProto) -> Result<(), OnnxError> {
    let mut table = HashMap::new();
    for f in std::mem::take(&mut model.functions) {
        let key = key(&f.domain, &f.name, &f.overload);
        let name = key.1.clone();
        if table.insert(key, f).is_some() {
            return Err(OnnxError::Duplicate { name, place: "a second function".into() });
        }
    }
    let Some(graph) = model.graph.as_mut().filter(|_| !table.is_empty()) else {
        return Ok(());
    };
    let mut inliner = Inliner {
        table: &table,
        names: HashSet::new(),
        numbers: HashMap::new(),
        opsets: model
            .opset_import
            .iter()
            .map(|o| (domain(o.domain.as_deref()).to_string(), o.version.unwrap_or(0)))
            .collect(),
        added: Vec::new(),
        calls: Vec::new(),
        growth: 0,
    };
    inliner.collect(graph);
    graph.node = inliner.nodes(std::mem::take(&mut graph.node), 0)?;
    let added = inliner.added;
    let mut used = HashSet::new();
    domains(&graph.node, &mut used);
    model.opset_import.extend(added);
    model.opset_import.retain(|o| {
        let name = domain(o.domain.as_deref());
        used.contains(name) || !table.keys().any(|k| k.0 == name)
    });
    Ok(())
}

fn graphs(n: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    n.attribute.iter().flat_map(|a| a.g.as_deref().into_iter().chain(&a.graphs))
}

fn domains<'a>(nodes: &'a [NodeProto], out: &mut HashSet<&'a str>) {
    for n in nodes {
        out.insert(domain(n.domain.as_deref()));
        graphs(n).for_each(|g| domains(&g.node, out));
    }
}

/// What the names of a body stand for at one call.
struct Call<'a> {
    names: HashMap<String, String>,
    attrs: HashMap<&'a str, &'a AttributeProto>,
    prefix: String,
    function: &'a FunctionProto,
}

struct Inliner<'a> {
    table: &'a HashMap<Key, FunctionProto>,
    /// Every name in use, so that new ones are new.
    names: HashSet<String>,
    /// The last number given to a name that was taken.
    numbers: HashMap<String, usize>,
    opsets: HashMap<String, i64>,
    added: Vec<OperatorSetIdProto>,
    /// The functions being inlined.
    calls: Vec<&'a Key>,
    growth: usize,
}

impl<'a> Inliner<'a> {
    fn collect(&mut self, g: &GraphProto) {
        let values = g.input.iter().chain(&g.output).filter_map(|v| v.name.clone());
        self.names.extend(values);
        self.names.extend(g.initializer.iter().filter_map(|t| t.name.clone()));
        self.names.extend(sparse(g).filter_map(|t| t.name.clone()));
        for n in &g.node {
            self.names.extend(n.input.iter().chain(&n.output).cloned());
            graphs(n).for_each(|g| self.collect(g));
        }
    }

    /// `base`, or `base` with a number: a name that nothing has.
    fn fresh(&mut self, base: String) -> String {
        if self.names.insert(base.clone()) {
            return base;
        }
        // Each base goes on from its last number: the names of many calls stay cheap to find.
        let next = self.numbers.entry(base.clone()).or_insert(0);
        loop {
            *next += 1;
            let fresh = format!("{base}.{next}");
            if self.names.insert(fresh.clone()) {
                return fresh;
            }
        }
    }

    fn charge(&mut self, bytes: usize) -> Result<(), OnnxError> {
        self.growth += bytes;
        if self.growth <= GROWTH {
            return Ok(());
        }
        let help = "inline the functions before exporting, or make them call each other less often";
        let what = "the graph with all function calls inlined".into();
        Err(OnnxError::TooLarge { what, limit: GROWTH as u64 >> 20, help })
    }

    fn nodes(&mut self, nodes: Vec<NodeProto>, depth: usize) -> Result<Vec<NodeProto>, OnnxError> {
        let mut out = Vec::with_capacity(nodes.len());
        for mut n in nodes {
            if depth > DEPTH {
                return Err(OnnxError::TooDeep { place: call_label(&n), limit: DEPTH });
            }
            for a in &mut n.attribute {
                for g in a.g.as_deref_mut().into_iter().chain(&mut a.graphs) {
                    g.node = self.nodes(std::mem::take(&mut g.node), depth + 1)?;
                }
            }
            match self.table.get_key_value(&node_key(&n)) {
                Some((key, f)) => out.extend(self.expand(key, f, &n, depth)?),
                None => out.push(n),
            }
        }
        Ok(out)
    }

    fn expand(
        &mut self,
        key: &'a Key,
        function: &'a FunctionProto,
        node: &NodeProto,
        depth: usize,
    ) -> Result<Vec<NodeProto>, OnnxError> {
        if let Some(start) = self.calls.iter().position(|&k| k == key) {
            let chain = self.calls[start..].iter().copied().chain([key]);
            return Err(OnnxError::RecursiveFunction {
                functions: chain.map(|k| k.1.clone()).collect(),
            });
        }
        let sides =
            [("inputs", &node.input, &function.input), ("outputs", &node.output, &function.output)];
        for (side, given, known) in sides {
            if given.len() > known.len() {
                let reason = format!(
                    "it has {} {side}, the function `{}` knows {}",
                    given.len(),
                    shown(&key.1),
                    known.len()
                );
                return Err(OnnxError::invalid(call_label(node), reason));
            }
        }
        let base = node.name.as_deref().filter(|n| !n.is_empty()).unwrap_or(&key.1);
        let prefix = self.fresh(base.to_string());
        let defaults = function.attribute_proto.iter();
        let attrs = defaults.chain(&node.attribute).filter_map(|a| Some((a.name.as_deref()?, a)));
        let mut call = Call { names: HashMap::new(), attrs: attrs.collect(), prefix, function };
        let absent = String::new();
        for (i, formal) in function.input.iter().enumerate() {
            let actual = node.input.get(i).unwrap_or(&absent).clone();
            if call.names.insert(formal.clone(), actual).is_some() {
                let place = format!("a second input of the function `{}`", shown(&key.1));
                return Err(OnnxError::Duplicate { name: formal.clone(), place });
            }
        }
        let mut copies = Vec::new();
        for (i, formal) in function.output.iter().enumerate() {
            let actual = node.output.get(i).filter(|n| !n.is_empty());
            match (call.names.get(formal), actual) {
                // An input handed through, or one value under two names.
                (Some(source), Some(actual)) => copies.push(NodeProto {
                    op_type: Some("Identity".into()),
                    input: vec![source.clone()],
                    output: vec![actual.clone()],
                    ..NodeProto::default()
                }),
                (Some(_), None) => {}
                (None, Some(actual)) => {
                    call.names.insert(formal.clone(), actual.clone());
                }
                (None, None) => {
                    let fresh = self.fresh(format!("{}/{formal}", call.prefix));
                    call.names.insert(formal.clone(), fresh);
                }
            }
        }
        for name in function.node.iter().flat_map(|n| &n.output) {
            if !name.is_empty() && !call.names.contains_key(name) {
                let fresh = self.fresh(format!("{}/{name}", call.prefix));
                call.names.insert(name.clone(), fresh);
            }
        }
        let mut body = Vec::with_capacity(function.node.len());
        for n in &function.node {
            body.push(self.instantiate(n, &mut call, depth + 1)?);
        }
        body.extend(copies);
        self.calls.push(key);
        let body = self.nodes(body, depth + 1);
        self.calls.pop();
        body
    }

    /// A node of a body as it is at one call.
    fn instantiate(
        &mut self,
        n: &NodeProto,
        call: &mut Call<'_>,
        depth: usize,
    ) -> Result<NodeProto, OnnxError> {
        if depth > DEPTH {
            return Err(OnnxError::TooDeep { place: call_label(n), limit: DEPTH });
        }
        self.charge(1024 + text(&n.name) + text(&n.op_type) + text(&n.domain) + call.prefix.len())?;
        self.opset(n, call.function)?;
        let mut out = NodeProto {
            input: self.renamed(&n.input, call, &|| call_label(n))?,
            output: self.renamed(&n.output, call, &|| call_label(n))?,
            name: n.name.as_ref().filter(|s| !s.is_empty()).map(|s| format!("{}/{s}", call.prefix)),
            op_type: n.op_type.clone(),
            domain: n.domain.clone(),
            overload: n.overload.clone(),
            ..NodeProto::default()
        };
        for a in &n.attribute {
            let reference = a.ref_attr_name.as_deref().unwrap_or("");
            if !reference.is_empty() {
                // An attribute that the caller does not give is absent here too.
                if let Some(&given) = call.attrs.get(reference) {
                    self.charge(attr_cost(given))?;
                    out.attribute.push(AttributeProto { name: a.name.clone(), ..given.clone() });
                }
                continue;
            }
            self.charge(attr_cost(a))?;
            let mut copy = a.clone();
            for g in copy.g.as_deref_mut().into_iter().chain(&mut copy.graphs) {
                self.subgraph(g, call, depth + 1)?;
            }
            out.attribute.push(copy);
        }
        Ok(out)
    }

    /// Renames all of a subgraph in a body; its own names are known within it only.
    fn subgraph(
        &mut self,
        g: &mut GraphProto,
        call: &mut Call<'_>,
        depth: usize,
    ) -> Result<(), OnnxError> {
        let mut own: Vec<String> = Vec::new();
        own.extend(g.input.iter().filter_map(|v| v.name.clone()));
        own.extend(g.initializer.iter().filter_map(|t| t.name.clone()));
        own.extend(sparse(g).filter_map(|t| t.name.clone()));
        own.extend(g.node.iter().flat_map(|n| &n.output).filter(|n| !n.is_empty()).cloned());
        let mut hidden = Vec::with_capacity(own.len());
        for name in own {
            let fresh = self.fresh(format!("{}/{name}", call.prefix));
            self.charge(128 + fresh.len())?;
            let old = call.names.insert(name.clone(), fresh);
            hidden.push((name, old));
        }
        g.value_info.clear();
        let place =
            || format!("a subgraph of the function `{}`", shown(text_of(&call.function.name)));
        let mut names = Vec::with_capacity(g.input.len() + g.output.len() + g.initializer.len());
        names.extend(g.input.iter_mut().chain(&mut g.output).map(|v| &mut v.name));
        names.extend(g.initializer.iter_mut().map(|t| &mut t.name));
        let sparse = g.sparse_initializer.iter_mut().filter_map(|t| t.values.as_mut());
        names.extend(sparse.map(|t| &mut t.name));
        for name in names.into_iter().filter_map(Option::as_mut) {
            *name = rename(name, &call.names, &place)?;
        }
        for n in &mut g.node {
            *n = self.instantiate(n, call, depth)?;
        }
        for (name, old) in hidden.into_iter().rev() {
            match old {
                Some(old) => call.names.insert(name, old),
                None => call.names.remove(&name),
            };
        }
        Ok(())
    }

    fn renamed(
        &mut self,
        names: &[String],
        call: &Call<'_>,
        place: &dyn Fn() -> String,
    ) -> Result<Vec<String>, OnnxError> {
        let out: Result<Vec<String>, OnnxError> =
            names.iter().map(|n| rename(n, &call.names, place)).collect();
        let out = out?;
        self.charge(out.iter().map(|n| 64 + n.len()).sum())?;
        Ok(out)
    }

    /// A body means the operators of its own versions; they must be the model's.
    fn opset(&mut self, n: &NodeProto, function: &FunctionProto) -> Result<(), OnnxError> {
        if self.table.contains_key(&node_key(n)) {
            return Ok(());
        }
        let name = domain(n.domain.as_deref());
        let import = |o: &&OperatorSetIdProto| domain(o.domain.as_deref()) == name;
        let Some(version) = function.opset_import.iter().find(import).and_then(|o| o.version)
        else {
            return Ok(());
        };
        match self.opsets.get(name) {
            Some(&model) if model != version => Err(OnnxError::unsupported(
                format!("function `{}`", shown(text_of(&function.name))),
                format!(
                    "version {version} of the operators `{}` in a model with version {model}",
                    shown(name)
                ),
            )),
            Some(_) => Ok(()),
            None => {
                self.opsets.insert(name.to_string(), version);
                let domain = Some(name.to_string());
                self.added.push(OperatorSetIdProto { domain, version: Some(version) });
                Ok(())
            }
        }
    }
}

fn rename(
    name: &str,
    names: &HashMap<String, String>,
    place: &dyn Fn() -> String,
) -> Result<String, OnnxError> {
    if name.is_empty() {
        return Ok(String::new());
    }
    let undefined = || OnnxError::Undefined { name: name.to_string(), place: place() };
    names.get(name).cloned().ok_or_else(undefined)
}

fn text(s: &Option<String>) -> usize {
    s.as_ref().map_or(0, String::len)
}

fn text_of(s: &Option<String>) -> &str {
    s.as_deref().unwrap_or("")
}

/// About the bytes a copy takes; raw data is shared.
fn attr_cost(a: &AttributeProto) -> usize {
    let tensors = a.t.iter().map(|t| &**t).chain(&a.tensors).map(tensor_cost).sum::<usize>();
    let graphs = a.g.iter().map(|g| &**g).chain(&a.graphs).map(graph_cost).sum::<usize>();
    let types = 1024 * (a.tp.iter().len() + a.type_protos.len());
    let lists = 4 * a.floats.len() + 8 * a.ints.len() + 64 * a.strings.len();
    512 + text(&a.name) + text(&a.doc_string) + tensors + graphs + types + lists
}

/// The named part of sparse initialisers.
fn sparse(g: &GraphProto) -> impl Iterator<Item = &TensorProto> {
    g.sparse_initializer.iter().filter_map(|t| t.values.as_ref())
}

fn tensor_cost(t: &TensorProto) -> usize {
    let numbers = 4 * (t.float_data.len() + t.int32_data.len());
    let wide = 8 * (t.double_data.len() + t.int64_data.len() + t.uint64_data.len());
    512 + 8 * t.dims.len() + text(&t.name) + numbers + wide + 64 * t.string_data.len()
}

fn graph_cost(g: &GraphProto) -> usize {
    let values = g.input.iter().chain(&g.output).chain(&g.value_info);
    let values = values.map(|v| 512 + text(&v.name)).sum::<usize>();
    let tensors = g.initializer.iter().chain(sparse(g)).map(tensor_cost).sum::<usize>();
    let nodes = g.node.iter().map(|n| {
        let names = n.input.iter().chain(&n.output).map(|s| 32 + s.len()).sum::<usize>();
        512 + names + text(&n.name) + n.attribute.iter().map(attr_cost).sum::<usize>()
    });
    256 + values + tensors + nodes.sum::<usize>()
}
