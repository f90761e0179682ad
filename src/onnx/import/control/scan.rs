//! `Scan`: its body runs once for each slice of its sequences.

use super::super::Importer;
use super::super::error::ImportError;
use super::super::value::NodeValue;
use super::{BodyScope, Read};
use crate::raw::{RawAttr, RawNode};
use mlc_dsl::ir::{Extent, Tensor, Value};

/// Along which axis of its sequence a scan goes, and whether from the end.
#[derive(Clone, Copy)]
pub(crate) struct ScanDirection {
    pub axis: i64,
    backward: bool,
}

/// The shape of one `Scan` node.
struct Scan<'g> {
    states: usize,
    /// Of each sequence that is read.
    reads: Vec<ScanDirection>,
    /// Of each sequence that is made.
    makes: Vec<ScanDirection>,
    body: BodyScope<'g>,
}

impl Importer<'_> {
    /// A `Scan` is its body, once for each slice.
    pub(crate) fn scan(&mut self, node: &RawNode, depth: usize) -> Read<Vec<NodeValue>> {
        let fail = |reason: &str| ImportError::node(node, reason);
        let graph = self.subgraph(node, "body")?;
        let sequences = node.attrs.get("num_scan_inputs").and_then(RawAttr::as_int);
        let sequences = sequences.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
        let sequences = sequences.ok_or_else(|| fail("it has no `num_scan_inputs`"))?;
        let is_batched = self.opsets.get("").is_some_and(|&o| o < 9);
        let first = usize::from(is_batched);
        let states = (node.inputs.len() - first.min(node.inputs.len())).checked_sub(sequences);
        let states = states.ok_or_else(|| fail("it has fewer inputs than sequences"))?;
        let made = graph.outputs.len().checked_sub(states);
        let made = made.ok_or_else(|| fail("its body has fewer outputs than states"))?;
        let inputs = (first..node.inputs.len())
            .map(|i| self.needed_tensor(node, i))
            .collect::<Read<Vec<_>>>()?;
        let of_inputs = if is_batched { "directions" } else { "scan_input_directions" };
        let reads = scan_directions(node, "scan_input_axes", of_inputs, sequences)?;
        let makes = scan_directions(node, "scan_output_axes", "scan_output_directions", made)?;
        let batch = match is_batched {
            true => Some(self.lengths(node, &inputs)?),
            false => None,
        };
        let scan = Scan { states, reads, makes, body: self.enter(node, graph, depth)? };
        let results = match batch {
            None => self.slices(node, &scan, &inputs, None),
            Some(lengths) => self.batches(node, &scan, &inputs, &lengths),
        };
        self.leave(scan.body);
        Ok(results?.into_iter().map(NodeValue::Tensor).collect())
    }

    /// The number of slices of each sequence of a batch, in the form of `Scan` whose values have one; `None` of all slices.
    fn lengths(&mut self, node: &RawNode, inputs: &[Value]) -> Read<Vec<Option<i64>>> {
        let batch = inputs.first().map(|&v| self.extent(node, v, 0)).transpose()?;
        let Some(batch) = batch.filter(|&n| n > 0) else {
            return Err(ImportError::node(
                node,
                self.draft.unsupported("its batch is empty".into()),
            ));
        };
        let all = vec![None; usize::try_from(batch).unwrap_or_default()];
        let Some(given) = self.given(node, 0)? else { return Ok(all) };
        let fail = |reason: &str| ImportError::node(node, reason);
        let given = given.tensor().ok_or_else(|| fail("its lengths are no tensor"))?;
        let known = self.draft.required(given).and_then(|k| k.extents());
        let known = known.ok_or_else(|| fail("its lengths depend on the inputs"))?;
        let lengths: Vec<Option<i64>> = known.iter().map(|e| e.as_const()).collect();
        match lengths.len() == all.len() && lengths.iter().all(Option::is_some) {
            true => Ok(lengths),
            false => Err(fail("its lengths are not a number for each sequence of the batch")),
        }
    }

    /// The extent of an axis, which must be a number.
    fn extent(&mut self, node: &RawNode, v: Value, axis: usize) -> Read<i64> {
        let extent = self.draft.builder.ty(v).shape.get(axis).cloned();
        let none = || ImportError::node(node, format!("an input has no axis {axis}"));
        let extent = extent.ok_or_else(none)?;
        extent.as_const().ok_or_else(|| {
            let reason = format!(
                "its sequences have the symbolic extent {extent}; `--shape` gives it a number"
            );
            ImportError::node(node, self.draft.unsupported(reason)).of_shapes()
        })
    }

    fn batches(
        &mut self,
        node: &RawNode,
        scan: &Scan<'_>,
        inputs: &[Value],
        lengths: &[Option<i64>],
    ) -> Read<Vec<Value>> {
        let mut results: Vec<Vec<Value>> = vec![];
        for (b, &count) in lengths.iter().enumerate() {
            let one = inputs.iter().map(|&v| self.part(node, v, 0, b as i64));
            let one = one.collect::<Read<Vec<_>>>()?;
            let of_one = self.slices(node, scan, &one, count)?;
            results.resize(of_one.len(), vec![]);
            results.iter_mut().zip(of_one).for_each(|(all, v)| all.push(v));
        }
        results.iter().map(|all| self.stack(node, all, 0, true)).collect()
    }

    /// The states after the first `count` slices (all if it is not given), and what is made; behind the last slice that is zero.
    fn slices(
        &mut self,
        node: &RawNode,
        scan: &Scan<'_>,
        inputs: &[Value],
        count: Option<i64>,
    ) -> Read<Vec<Value>> {
        let (states, sequences) = inputs.split_at(scan.states);
        let mut length = None;
        let mut axes = vec![];
        for (&v, way) in sequences.iter().zip(&scan.reads) {
            let rank = self.draft.builder.ty(v).rank() as i64;
            let axis = if way.axis < 0 { way.axis + rank } else { way.axis };
            let axis = usize::try_from(axis).unwrap_or(usize::MAX);
            let n = self.extent(node, v, axis)?;
            if *length.get_or_insert(n) != n {
                return Err(ImportError::node(node, "its sequences differ in length"));
            }
            axes.push(axis);
        }
        let all = length.unwrap_or(0);
        let length = count.unwrap_or(all);
        if !(0..=all).contains(&length) {
            return Err(ImportError::node(node, "its lengths are longer than its sequences"));
        }
        self.count_passes(node, scan.body.graph, length)?;
        let mut carried: Vec<NodeValue> = states.iter().map(|&v| NodeValue::Tensor(v)).collect();
        let mut made: Vec<Vec<NodeValue>> = vec![];
        for t in 0..length {
            let mut given = carried.clone();
            for ((&v, way), &axis) in sequences.iter().zip(&scan.reads).zip(&axes) {
                let at = if way.backward { length - 1 - t } else { t };
                given.push(NodeValue::Tensor(self.part(node, v, axis, at)?));
            }
            let mut results = self.pass(node, &scan.body, given)?;
            made.push(results.split_off(scan.states));
            carried = results;
        }
        if length == 0 && !scan.makes.is_empty() {
            made.push(self.of_no_slice(node, scan, &carried, sequences, &axes)?);
        }
        let mut results = self.tensors(node, carried.iter())?;
        for (k, way) in scan.makes.iter().enumerate() {
            let mut elements = self.tensors(node, made.iter().filter_map(|all| all.get(k)))?;
            if way.backward {
                elements.reverse();
            }
            if length < all {
                let zero = self.zero(node, elements.first().copied())?;
                elements.truncate(length as usize);
                elements.resize(all as usize, zero);
            }
            results.push(self.stack(node, &elements, way.axis, all > 0)?);
        }
        Ok(results)
    }

    /// Zeros of the type of a value.
    fn zero(&mut self, node: &RawNode, like: Option<Value>) -> Read<Value> {
        let like = like.ok_or_else(|| ImportError::node(node, "it has no results"))?;
        let ty = self.draft.builder.ty(like).clone();
        let zero = Tensor::from_f64(ty.dtype, vec![], &[0.0]);
        let zero = self.draft.builder.constant(zero);
        let zeros = self.draft.builder.broadcast(zero, &[], &ty.shape);
        zeros.map_err(|e| ImportError::node(node, e.to_string()))
    }

    /// What the body would yield for a slice, if there were one.
    fn of_no_slice(
        &mut self,
        node: &RawNode,
        scan: &Scan<'_>,
        carried: &[NodeValue],
        sequences: &[Value],
        axes: &[usize],
    ) -> Read<Vec<NodeValue>> {
        let mut given = carried.to_vec();
        for (&v, &axis) in sequences.iter().zip(axes) {
            let mut ty = self.draft.builder.ty(v).clone();
            ty.shape.remove(axis);
            let Some(shape) = ty.known_shape() else {
                let reason = "it never runs, and its sequences have symbolic extents".to_string();
                return Err(ImportError::node(node, self.draft.unsupported(reason)));
            };
            let zero = Tensor::from_f64(ty.dtype, vec![], &[0.0]);
            let zero = self.draft.builder.constant(zero);
            let shape: Vec<Extent> = shape.into_iter().map(Extent::from).collect();
            let slice = self.draft.builder.broadcast(zero, &[], &shape);
            let slice = slice.map_err(|e| ImportError::node(node, e.to_string()))?;
            given.push(NodeValue::Tensor(slice));
        }
        Ok(self.dry(node, &scan.body, given)?.split_off(scan.states))
    }

    /// The slice at a place along an axis, without that axis.
    fn part(&mut self, node: &RawNode, v: Value, axis: usize, at: i64) -> Read<Value> {
        let fail = |reason: String| ImportError::node(node, reason);
        let shape = self.draft.builder.ty(v).shape.clone();
        if axis >= shape.len() {
            return Err(fail(format!("an input has no axis {axis}")));
        }
        let mut start = vec![Extent::from(0); shape.len()];
        start[axis] = Extent::from(at);
        let mut size = shape;
        size[axis] = Extent::from(1);
        let slice = self.draft.slice(v, start, size.clone()).map_err(fail)?;
        size.remove(axis);
        self.draft.reshape(slice, size).map_err(fail)
    }
}

/// How each sequence is gone along.
pub(crate) fn scan_directions(
    node: &RawNode,
    axes: &str,
    directions: &str,
    count: usize,
) -> Read<Vec<ScanDirection>> {
    let list = |key: &str| match node.attrs.get(key) {
        None => Ok(vec![0; count]),
        Some(RawAttr::Ints(v)) if v.len() == count => Ok(v.clone()),
        Some(_) => {
            Err(ImportError::node(node, format!("its `{key}` are not as many as its sequences")))
        }
    };
    let (axes, directions) = (list(axes)?, list(directions)?);
    Ok(axes
        .into_iter()
        .zip(directions)
        .map(|(axis, d)| ScanDirection { axis, backward: d == 1 })
        .collect())
}
