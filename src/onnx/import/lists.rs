//! Operators on sequences and optionals. Their number of elements is known, so each is a list of what the names of its
//! elements stand for, and none of it is in the program.

use super::Importer;
use super::control::Read;
use super::error::ImportError;
use super::value::{NodeValue, not};
use crate::raw::{RawAttr, RawNode};
use mlc_dsl::ir::{DType, Extent, Tensor, Value};
use mlc_dsl::{shown, told};
use std::rc::Rc;

/// Sequences may have so many elements together, each one counted when it is made.
const MAX_LISTED: usize = 1 << 24;

impl Importer<'_> {
    /// What a node on sequences or optionals yields; `None` if it is an `Identity` of a tensor.
    pub(crate) fn list(&mut self, node: &RawNode, depth: usize) -> Option<Read<Vec<NodeValue>>> {
        let one = |value: Read<NodeValue>| Some(value.map(|v| vec![v]));
        match node.op_type.as_str() {
            "Identity" => match self.given(node, 0) {
                Ok(Some(v)) if v.tensor().is_none() => one(Ok(v)),
                _ => None,
            },
            "SequenceEmpty" => one(Ok(NodeValue::sequence(vec![]))),
            "SequenceConstruct" => one(self.constructed(node)),
            "SequenceInsert" => one(self.inserted(node)),
            "SequenceErase" => one(self.erased(node)),
            "SequenceAt" => one(self.element(node)),
            "SequenceLength" => one(self.length(node)),
            "SequenceMap" => Some(self.mapped(node, depth)),
            "ConcatFromSequence" => one(self.joined(node)),
            "SplitToSequence" => one(self.split(node)),
            "Optional" => one(self.given(node, 0).map(|v| NodeValue::Optional(v.map(Rc::new)))),
            "OptionalHasElement" => one(self.has_element(node)),
            "OptionalGetElement" => one(self.held(node)),
            _ => None,
        }
    }

    fn sequence(&self, node: &RawNode, input: usize) -> Read<Rc<Vec<Value>>> {
        let name = node.inputs.get(input).map_or("", String::as_str);
        match self.needed(node, input)? {
            NodeValue::Sequence(all) => Ok(all),
            other => Err(ImportError::node(node, not("a sequence", name, &other))),
        }
    }

    /// A sequence that a node makes.
    fn made(&mut self, node: &RawNode, values: Vec<Value>) -> Read<NodeValue> {
        self.listed = self.listed.saturating_add(values.len());
        if self.listed <= MAX_LISTED {
            return Ok(NodeValue::sequence(values));
        }
        let reason =
            format!("the sequences of the model have more than {MAX_LISTED} elements together");
        Err(ImportError::node(node, self.draft.unsupported(reason)))
    }

    fn constructed(&mut self, node: &RawNode) -> Read<NodeValue> {
        let all = (0..node.inputs.len()).map(|i| self.needed_tensor(node, i));
        let all = all.collect::<Read<Vec<_>>>()?;
        self.made(node, all)
    }

    /// A place in a sequence of `count` that the input of a number names; a negative one counts from the end.
    fn place(&mut self, node: &RawNode, input: usize, count: usize) -> Read<Option<usize>> {
        if self.given(node, input)?.is_none() {
            return Ok(None);
        }
        let v = self.needed_tensor(node, input)?;
        let at = self.decided(node, v, "position")?;
        let from_front = if at < 0 { at.checked_add(count as i64) } else { Some(at) };
        let from_front =
            from_front.and_then(|at| usize::try_from(at).ok()).filter(|&at| at < count);
        let none = || format!("position {at} does not exist in a sequence of {} elements", count);
        from_front.map(Some).ok_or_else(|| ImportError::node(node, none()))
    }

    fn inserted(&mut self, node: &RawNode) -> Read<NodeValue> {
        let before = self.sequence(node, 0)?;
        let new = self.needed_tensor(node, 1)?;
        let at = match self.given(node, 2)? {
            None => before.len(),
            Some(_) => {
                let v = self.needed_tensor(node, 2)?;
                let at = self.decided(node, v, "position")?;
                let count = before.len() as i64;
                let from_front = if at < 0 { at.saturating_add(count) } else { at };
                if !(0..=count).contains(&from_front) {
                    let reason =
                        format!("position {at} is not within a sequence of {count} elements");
                    return Err(ImportError::node(node, reason));
                }
                from_front as usize
            }
        };
        let mut all = before.to_vec();
        all.insert(at, new);
        self.made(node, all)
    }

    fn erased(&mut self, node: &RawNode) -> Read<NodeValue> {
        let before = self.sequence(node, 0)?;
        let last = before.len().checked_sub(1);
        let at = self.place(node, 1, before.len())?.or(last);
        let at = at.ok_or_else(|| ImportError::node(node, "its sequence is empty"))?;
        let mut all = before.to_vec();
        all.remove(at);
        self.made(node, all)
    }

    fn element(&mut self, node: &RawNode) -> Read<NodeValue> {
        let all = self.sequence(node, 0)?;
        let at = self.place(node, 1, all.len())?;
        let missing = || ImportError::node(node, "its position is missing");
        at.map(|at| NodeValue::Tensor(all[at])).ok_or_else(missing)
    }

    fn length(&mut self, node: &RawNode) -> Read<NodeValue> {
        let count = self.sequence(node, 0)?.len() as i64;
        Ok(self.scalar(DType::I64, count))
    }

    fn scalar(&mut self, dtype: DType, value: i64) -> NodeValue {
        let tensor = Tensor::from_i64(dtype, vec![], &[value]);
        NodeValue::Tensor(self.draft.builder.constant(tensor))
    }

    fn joined(&mut self, node: &RawNode) -> Read<NodeValue> {
        let fail = |reason: String| ImportError::node(node, reason);
        let int = |key: &str| node.attrs.get(key).and_then(RawAttr::as_int);
        let axis = int("axis").ok_or_else(|| fail("it has no `axis`".into()))?;
        let all = self.sequence(node, 0)?;
        let Some(&first) = all.first() else { return Err(fail("its sequence is empty".into())) };
        if int("new_axis").unwrap_or(0) != 0 {
            return Ok(NodeValue::Tensor(self.stack(node, &all, axis, true)?));
        }
        let axis = axis_of(node, axis, self.draft.builder.ty(first).rank())?;
        Ok(NodeValue::Tensor(self.draft.concat(all.to_vec(), axis).map_err(fail)?))
    }

    fn split(&mut self, node: &RawNode) -> Read<NodeValue> {
        let fail = |reason: String| ImportError::node(node, reason);
        let int = |key: &str| node.attrs.get(key).and_then(RawAttr::as_int);
        let x = self.needed_tensor(node, 0)?;
        let shape = self.draft.builder.ty(x).shape.clone();
        let axis = axis_of(node, int("axis").unwrap_or(0), shape.len())?;
        let Some(extent) = shape[axis].as_const() else {
            let reason = format!(
                "the extent {} of what it splits is symbolic; `--shape` gives it a number",
                shape[axis]
            );
            return Err(fail(self.draft.unsupported(reason)));
        };
        let given = self.given(node, 1)?.is_some();
        let sizes = self.sizes(node, extent)?;
        let keeps = given || int("keepdims").unwrap_or(1) != 0;
        let mut parts = Vec::with_capacity(sizes.len());
        let mut at = 0;
        for n in sizes {
            let mut start = vec![Extent::from(0); shape.len()];
            start[axis] = Extent::from(at);
            let mut size = shape.clone();
            size[axis] = Extent::from(n);
            let mut part = self.draft.slice(x, start, size.clone()).map_err(fail)?;
            if !keeps {
                size.remove(axis);
                part = self.draft.reshape(part, size).map_err(fail)?;
            }
            parts.push(part);
            at += n;
        }
        self.made(node, parts)
    }

    /// The extents of the parts of an axis.
    fn sizes(&mut self, node: &RawNode, extent: i64) -> Read<Vec<i64>> {
        let fail = |reason: String| ImportError::node(node, reason);
        let mut each = 1;
        if self.given(node, 1)?.is_some() {
            let v = self.needed_tensor(node, 1)?;
            let known = self.draft.required(v);
            let known = known.ok_or_else(|| fail("its `split` depends on the inputs".into()))?;
            let sizes: Option<Vec<i64>> =
                known.extents().and_then(|all| all.iter().map(Extent::as_const).collect());
            let sizes = sizes.ok_or_else(|| {
                fail(self.draft.unsupported("its `split` depends on symbolic extents".into()))
            })?;
            if !known.shape.is_empty() {
                let total = sizes.iter().try_fold(0i64, |sum, &n| sum.checked_add(n));
                if sizes.iter().any(|&n| n < 0) || total != Some(extent) {
                    return Err(fail(format!("its parts {sizes:?} do not add up to {extent}")));
                }
                return Ok(sizes);
            }
            each = sizes.first().copied().unwrap_or(0);
        }
        if each <= 0 {
            return Err(fail(format!("a part has the extent {each}")));
        }
        let parts = extent / each + i64::from(extent % each > 0);
        if parts > super::control::MAX_REPEATED as i64 {
            let reason = format!("it would make a sequence of {parts} elements");
            return Err(fail(self.draft.unsupported(reason)));
        }
        Ok((0..parts).map(|i| each.min(extent - i * each)).collect())
    }

    fn mapped(&mut self, node: &RawNode, depth: usize) -> Read<Vec<NodeValue>> {
        let graph = self.subgraph(node, "body")?;
        let count = self.sequence(node, 0)?.len();
        self.count_passes(node, graph, count as i64)?;
        let all = (0..node.inputs.len()).map(|i| self.needed(node, i)).collect::<Read<Vec<_>>>()?;
        let differ = |v: &NodeValue| matches!(v, NodeValue::Sequence(s) if s.len() != count);
        if all.iter().any(differ) {
            return Err(ImportError::node(node, "its sequences differ in length"));
        }
        let mut results: Vec<Vec<NodeValue>> = vec![];
        let body = self.enter(node, graph, depth)?;
        for i in 0..count {
            let at = |v: &NodeValue| match v {
                NodeValue::Sequence(s) => NodeValue::Tensor(s[i]),
                other => other.clone(),
            };
            match self.pass(node, &body, all.iter().map(at).collect()) {
                Ok(result) => results.push(result),
                Err(e) => {
                    self.leave(body);
                    return Err(e);
                }
            }
        }
        self.leave(body);
        let mut made = vec![];
        for k in 0..graph.outputs.len() {
            let elements = self.tensors(node, results.iter().filter_map(|r| r.get(k)))?;
            made.push(self.made(node, elements)?);
        }
        Ok(made)
    }

    /// What maps are made of, in their place: a row for each map, a column for each key. A note says so.
    pub(crate) fn columns(&mut self, node: &RawNode) -> Read<NodeValue> {
        let rows = self.needed_tensor(node, 0)?;
        let ty = self.draft.builder.ty(rows);
        let (named, count) = keys(node);
        let last = ty.shape.last().cloned();
        let fits = ty.dtype == DType::F32 && matches!(ty.rank(), 1 | 2);
        if !fits || count == 0 || last.and_then(|e| e.as_const()).is_some_and(|n| n != count as i64)
        {
            let reason = format!("it makes maps of {count} keys from {ty}");
            return Err(ImportError::node(node, reason));
        }
        let name = node.outputs.first().map_or("", String::as_str);
        let more = if count > named.len() { ", …" } else { "" };
        self.notes.push(told(&format!(
            "`{}` is a tensor in place of maps: a column for each key, {}{more}",
            shown(name),
            named.join(", ")
        )));
        Ok(NodeValue::Tensor(rows))
    }

    fn has_element(&mut self, node: &RawNode) -> Read<NodeValue> {
        let empty = matches!(self.given(node, 0)?, None | Some(NodeValue::Optional(None)));
        Ok(self.scalar(DType::Bool, i64::from(!empty)))
    }

    fn held(&mut self, node: &RawNode) -> Read<NodeValue> {
        match self.needed(node, 0)? {
            NodeValue::Optional(Some(held)) => Ok((*held).clone()),
            NodeValue::Optional(None) => Err(ImportError::node(node, "its optional holds nothing")),
            other => Ok(other),
        }
    }
}

/// True of a node that makes maps from the rows of a tensor.
pub(crate) fn makes_maps(node: &RawNode) -> bool {
    node.domain == "ai.onnx.ml" && node.op_type == "ZipMap"
}

/// Keys of maps that a note names.
const NAMED: usize = 8;

/// The keys of a node that makes maps: each shown, for a note, as many as are named; and how many there are.
fn keys(node: &RawNode) -> (Vec<String>, usize) {
    match (node.attrs.get("classlabels_strings"), node.attrs.get("classlabels_int64s")) {
        (Some(RawAttr::Strs(all)), _) if !all.is_empty() => {
            let shown = all.iter().take(NAMED).map(|k| format!("{:?}", String::from_utf8_lossy(k)));
            (shown.collect(), all.len())
        }
        (_, Some(RawAttr::Ints(all))) => {
            (all.iter().take(NAMED).map(i64::to_string).collect(), all.len())
        }
        _ => (vec![], 0),
    }
}

/// An axis that may count from the end.
fn axis_of(node: &RawNode, axis: i64, rank: usize) -> Read<usize> {
    let from_front = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    let from_front = usize::try_from(from_front).ok().filter(|&a| a < rank);
    let none = || ImportError::node(node, format!("a tensor of {rank} axes has no axis {axis}"));
    from_front.ok_or_else(none)
}
