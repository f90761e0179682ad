//! The launches of a kernel whose open extents are arguments.

use super::attention::{OpenAttention, OpenBlock};
use super::emitter::{OpenEmitter, RowThreads, TakenNumber};
use super::form::{Form, Variable};
use super::product::{Contraction, OpenProduct};
use super::program::{OpenProgram, product};
use super::scan::OpenScan;
use super::stages::{OpenSchedule, OpenStage};
use super::{KernelForm, OpenExtents, stages};
use crate::generate::emit::StatementWriter;
use crate::generate::flash_attention::split_kv;
use crate::generate::grid::GridSize;
use crate::generate::kernel::unsupported;
use crate::generate::procedure::TypedShape;
use crate::generate::{
    FunctionBody, Generator, KernelSite, Signature, StageMemory, THREADS, bytes_of, spelling,
};
use crate::launch::{Argument, Launch, Place};
use mlc_backends::BackendError;
use mlc_dsl::ir::{DType, Extent, NodeId, Value};
use std::collections::HashMap;

/// Rows up to this length are a warp's each, longer ones a block's. One function serves each of the two.
const OF_A_WARP: i64 = 1024;
/// Margin for positions that threads past the last element compute before their bounds check.
const MARGIN: i64 = 1 << 20;

/// A function that is written: what it computes, how large its grid is, and its text.
struct Written<'k> {
    emitter: OpenEmitter<'k>,
    grid: GridSize,
    words: &'static str,
    /// Partial results that blocks leave for the last one, if they do; the first axis counts their tiles.
    parts: Option<TypedShape>,
}

/// A kernel at the extents of a run.
struct BoundKernel<'a> {
    kernel: &'a OpenProgram,
    open: &'a OpenExtents<'a>,
    /// The type of index variables: of 64 bits where a value has, or a loop runs over, more elements than 32 bits count.
    index: &'static str,
    processors: u32,
}

impl<'a> BoundKernel<'a> {
    fn new(
        kernel: &'a OpenProgram,
        open: &'a OpenExtents<'a>,
        processors: u32,
    ) -> Result<BoundKernel<'a>, BackendError> {
        let mut bound = BoundKernel { kernel, open, index: "long long", processors };
        let mut most = 0;
        for v in kernel.values() {
            most = most.max(bound.number(&product(kernel.shape(v)))?);
            most = most.max(bound.number(&product(&kernel.loops(v)))?);
            bound.typed(v)?;
        }
        if most <= i64::from(i32::MAX) - MARGIN {
            bound.index = "int";
        }
        Ok(bound)
    }

    /// The value of an extent.
    fn number(&self, n: &Extent) -> Result<i64, BackendError> {
        let value = self.open.symbols.eval(n);
        value.ok_or_else(|| unsupported(format!("values whose extents data decide ({n})")))
    }

    /// The element type and the extents of a value.
    fn typed(&self, v: Value) -> Result<TypedShape, BackendError> {
        let ty = self.kernel.program.ty(v);
        let too_large = || unsupported(format!("a value of more than 2^63 bytes ({ty})"));
        let mut shape = vec![];
        let mut bytes = ty.dtype.size();
        for n in &ty.shape {
            let n = usize::try_from(self.number(n)?).map_err(|_| too_large())?;
            bytes = bytes.checked_mul(n.max(1)).ok_or_else(too_large)?;
            shape.push(n);
        }
        i64::try_from(bytes).map_err(|_| too_large())?;
        Ok((ty.dtype, shape))
    }

    /// Variables of the axes of a value, and its index.
    fn axes(&self, e: &mut OpenEmitter<'_>, v: Value) -> (Vec<(Variable, Extent)>, Vec<Form>) {
        let shape = self.kernel.shape(v).iter();
        let axes: Vec<(Variable, Extent)> = shape.map(|n| (e.variable(n).0, n.clone())).collect();
        let index = axes.iter().map(|a| Form::variable(a.0)).collect();
        (axes, index)
    }

    /// An element for each thread.
    fn elements(&self, mut e: OpenEmitter<'a>, v: Value) -> Result<Written<'a>, BackendError> {
        let (axes, index) = self.axes(&mut e, v);
        let total = product(self.kernel.shape(v));
        let (kind, end) = (e.index, e.number(&total));
        e.line(format!("{kind} at = ({kind})blockIdx.x * {THREADS} + threadIdx.x;"));
        e.line(format!("if (at >= {end}) return;"));
        e.coordinates("at", &axes);
        let text = e.element(v, &index);
        e.store(v, &index, &text);
        let blocks = (self.number(&total)? as u64).div_ceil(THREADS.into());
        let grid = GridSize { blocks, threads: THREADS };
        Ok(Written { emitter: e, grid, words: "an element for each thread", parts: None })
    }

    /// A row for each block, or for each warp of a block: its threads share loops.
    fn rows(
        &self,
        mut e: OpenEmitter<'a>,
        v: Value,
        rows: &[usize],
    ) -> Result<Written<'a>, BackendError> {
        let (axes, index) = self.axes(&mut e, v);
        let (of_rows, along): (Vec<_>, Vec<_>) =
            axes.iter().enumerate().partition(|(a, _)| rows.contains(a));
        let bare = |axes: Vec<(usize, &(Variable, Extent))>| -> Vec<(Variable, Extent)> {
            axes.into_iter().map(|(_, a)| a.clone()).collect()
        };
        let (of_rows, along) = (bare(of_rows), bare(along));
        let all: Vec<Extent> = of_rows.iter().map(|a| a.1.clone()).collect();
        let count = product(&all);
        let by_warp = self.is_of_warps(&e, v, &index, &along, &count)?;
        let row = RowThreads { threads: if by_warp { 32 } else { THREADS }, by_warp };
        let kind = e.index;
        let of_block = if by_warp { THREADS / 32 } else { 1 };
        match by_warp {
            true => {
                let end = e.number(&count);
                let own = format!("({kind})blockIdx.x * {of_block} + threadIdx.x / 32");
                e.line(format!("{kind} row = {own};"));
                e.line(format!("if (row >= {end}) return;"));
            }
            false => e.line(format!("{kind} row = blockIdx.x;")),
        }
        e.coordinates("row", &of_rows);
        e.row = Some(row);
        for (h, at) in e.analyse(|e| drop(e.element(v, &index))) {
            e.element(h, &at);
        }
        e.open_shared("", &along, row);
        e.row = None;
        let text = e.element(v, &index);
        e.store(v, &index, &text);
        e.close();
        let blocks = (self.number(&count)? as u64).div_ceil(of_block.into());
        let grid = GridSize { blocks, threads: THREADS };
        let words = if by_warp { "a row for each warp" } else { "a row for each block" };
        Ok(Written { emitter: e, grid, words, parts: None })
    }

    /// A running reduction: a row for each block, or for each thread.
    fn scan(&self, mut e: OpenEmitter<'a>, v: Value) -> Result<Written<'a>, BackendError> {
        let scan = OpenScan::recognise(&mut e, v).expect("the stage is a running reduction");
        let sharing = scan.sharing(self.number(scan.length())?);
        scan.write(&mut e, sharing);
        let rows = self.number(&scan.rows())? as u64;
        let blocks = if sharing.is_some() { rows } else { rows.div_ceil(THREADS.into()) };
        let grid = GridSize { blocks, threads: sharing.unwrap_or(THREADS) };
        let words = "a running reduction in one pass";
        Ok(Written { emitter: e, grid, words, parts: None })
    }

    /// A tile of a product for each block.
    fn product(
        &self,
        mut e: OpenEmitter<'a>,
        v: Value,
        h: Value,
        tf32: bool,
    ) -> Result<Written<'a>, BackendError> {
        let c = Contraction::recognise(self.kernel, h).expect("the stage is one of a product");
        let mut p = OpenProduct::new(&mut e, h, &c, tf32);
        let [batch, rows, columns, depth] = p.sizes();
        let sizes = [
            self.number(&batch)?,
            self.number(&rows)?,
            self.number(&columns)?,
            self.number(&depth)?,
        ];
        let blocks = p.choose(sizes, self.processors);
        p.write(&mut e, &mut |e, _| {
            let text = e.element(v, &p.index);
            e.store(v, &p.index, &text);
        });
        let grid = GridSize { blocks, threads: THREADS };
        Ok(Written { emitter: e, grid, words: "a tile of a product for each block", parts: None })
    }

    /// A tile of queries for each block, or parts of the keys.
    fn attention(
        &self,
        mut e: OpenEmitter<'a>,
        v: Value,
        h: Value,
        tf32: bool,
    ) -> Result<Written<'a>, BackendError> {
        let p = OpenAttention::recognise(&mut e, h, tf32).expect("the stage is an attention");
        let number = |n: &Extent| self.open.symbols.eval(n);
        let tilings = p.tilings(&number, self.processors);
        let too_large = || unsupported("values whose extents data decide".into());
        let [tiling, own] = tilings.ok_or_else(too_large)?;
        let store = |e: &mut OpenEmitter<'a>| {
            let text = e.element(v, &p.index);
            e.store(v, &p.index, &text);
        };
        OpenBlock { e: &mut e, attention: &p, tiling, own, store: &store }.write();
        let shape = [split_kv::tiles(&own), own.parts, split_kv::floats(&own)];
        let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
        let is_split = tiling.parts > 1;
        let words = match is_split {
            true => "a part of a product with a normalised factor for each block",
            false => "a tile of a product with a normalised factor for each block",
        };
        let grid = GridSize { blocks: own.blocks(), threads: own.threads };
        Ok(Written { emitter: e, grid, words, parts: is_split.then_some((DType::F32, shape)) })
    }

    /// Whether rows are so short that a warp has one each.
    fn is_of_warps(
        &self,
        e: &OpenEmitter<'_>,
        v: Value,
        index: &[Form],
        along: &[(Variable, Extent)],
        count: &Extent,
    ) -> Result<bool, BackendError> {
        let all: Vec<Extent> = along.iter().map(|a| a.1.clone()).collect();
        let mut longest = self.number(&product(&all))?;
        let mut open = e.analyse(|e| drop(e.element(v, index)));
        let mut seen = open.clone();
        while let Some((h, at)) = open.pop() {
            longest = longest.max(self.number(&product(&self.kernel.loops(h)))?);
            let next = e.analyse_body(h, &at).into_iter();
            let next: Vec<_> = next.filter(|n| !seen.contains(n)).collect();
            seen.extend(next.iter().cloned());
            open.extend(next);
        }
        let are_many = self.number(count)? >= 8 * i64::from(self.processors);
        Ok(longest <= OF_A_WARP && (are_many || longest <= OF_A_WARP / 8))
    }
}

impl Generator<'_> {
    /// Decides how each kernel is generated. The nodes of those whose extents are arguments come first in the record of a fault: their
    /// numbers depend on no extent.
    pub(in crate::generate) fn read_forms(&mut self, open: &OpenExtents<'_>) {
        for k in 0..=self.plan.kernels.len() {
            let outputs = if k < self.plan.kernels.len() { self.stores(k) } else { self.copies() };
            let form = (!outputs.is_empty()).then(|| {
                let nodes = self.plan.kernels.get(k).map_or(&[][..], |kernel| &kernel.nodes);
                self.form_of(open, &|v| nodes.contains(&v.node), &outputs)
            });
            let first_node = self.out.nodes.len();
            if let Some(KernelForm::Open(kernel, _)) = &form {
                self.name_nodes(&kernel.program);
            }
            self.forms.push(form.map(|form| (form, first_node)));
        }
    }

    /// How the code of a kernel is generated where the plan's extents are open.
    fn form_of(
        &self,
        open: &OpenExtents<'_>,
        inside: &dyn Fn(Value) -> bool,
        outputs: &[(Value, Place)],
    ) -> KernelForm {
        let program = OpenProgram::new(open.plan, self.library, &self.stored, inside, outputs);
        match program {
            Ok(None) => KernelForm::Known,
            Ok(Some(program)) => match stages(&program) {
                Ok(stages) => KernelForm::Open(Box::new(program), stages),
                Err(why) => KernelForm::PerExtents(why),
            },
            Err(why) => KernelForm::PerExtents(why),
        }
    }

    /// Adds the launches of a kernel whose open extents are arguments; where scratch memory for its stages ends.
    pub(in crate::generate) fn launch_open(
        &mut self,
        site: KernelSite<'_>,
        open: &OpenExtents<'_>,
        kernel: &OpenProgram,
        stages: &[OpenStage],
    ) -> Result<u64, BackendError> {
        let bound = BoundKernel::new(kernel, open, self.target.tuning.processors)?;
        let mut memory = StageMemory { places: HashMap::new(), scratch: self.scratch };
        for i in 0..kernel.program.nodes.len() as u32 {
            let v = Value { node: NodeId(i), output: 0 };
            if let Some(input) = kernel.input(v) {
                memory.places.insert(v, kernel.inputs[input]);
            }
        }
        for stage in stages {
            let v = stage.value;
            let own = kernel.outputs.iter().filter(|o| o.0 == v).map(|o| o.1);
            let mut targets: Vec<Place> = own.collect();
            if targets.is_empty() {
                targets.push(memory.allocate(&bound.typed(v)?)?);
            }
            for target in &targets {
                let launch = self.launch_open_stage(site, &bound, stage, *target, &mut memory)?;
                self.list(site.once).extend(launch);
            }
            if kernel.input(v).is_none() {
                memory.places.insert(v, targets[0]);
            }
        }
        Ok(memory.scratch)
    }

    fn launch_open_stage(
        &mut self,
        site: KernelSite<'_>,
        bound: &BoundKernel<'_>,
        stage: &OpenStage,
        target: Place,
        memory: &mut StageMemory,
    ) -> Result<Option<Launch>, BackendError> {
        let v = stage.value;
        let ty = bound.typed(v)?;
        if ty.1.contains(&0) {
            return Ok(None);
        }
        let mut e = OpenEmitter::new(bound.kernel, bound.index);
        e.first_node = site.first_node;
        let mut order: Vec<Value> = memory.places.keys().copied().collect();
        order.sort_unstable();
        e.unaligned = order.iter().copied().filter(|v| !memory.places[v].is_aligned()).collect();
        e.stored = order.iter().enumerate().map(|(i, v)| (*v, format!("x{i}"))).collect();
        let Written { emitter: e, grid, words, parts } = match &stage.schedule {
            OpenSchedule::Elements => bound.elements(e, v)?,
            OpenSchedule::Rows(rows) => bound.rows(e, v, rows)?,
            OpenSchedule::Scan => bound.scan(e, v)?,
            OpenSchedule::Product(h) => bound.product(e, v, *h, self.target.tuning.tf32)?,
            OpenSchedule::Attention(h) => bound.attention(e, v, *h, self.target.tuning.tf32)?,
        };
        let mut signature = Signature::default();
        for of in order.iter().filter(|v| e.read.contains(v)) {
            let (ty, place) = (bound.typed(*of)?, memory.places[of]);
            self.reads(place);
            signature.push(
                format!("GLOBAL(const {}) {}", spelling::stored(ty.0), e.stored[of]),
                Argument { place, bytes: bytes_of(&ty), dtype: ty.0, written: false },
            );
        }
        signature.push(
            format!("GLOBAL({}) out", spelling::stored(ty.0)),
            Argument { place: target, bytes: bytes_of(&ty), dtype: ty.0, written: true },
        );
        if let Some(parts) = &parts {
            // Blocks read what others write.
            let place = memory.allocate(parts)?;
            signature.push(
                format!("PLAIN({}) parts", spelling::stored(parts.0)),
                Argument { place, bytes: bytes_of(parts), dtype: parts.0, written: true },
            );
            signature.push("PLAIN(unsigned) counts".into(), Argument::counts(parts.1[0]));
        }
        for n in &e.numbers {
            signature.numbers.push(match n {
                TakenNumber::Extent(n) => bound.number(n)?,
                TakenNumber::Chosen(_, n) => *n,
            });
        }
        let what = bound.kernel.program.ty(v);
        let what = format!("{}: {what}, {words}.", self.kernel_words(site.number));
        let body = FunctionBody {
            faults: e.faults,
            registers: e.registers,
            ahead: String::new(),
            text: e.text(),
        };
        self.assembled(site, what, body, signature, grid).map(Some)
    }
}
