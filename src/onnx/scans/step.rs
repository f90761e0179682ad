//! One step of a recurrence as a program: the body of a `Scan`, the states before the first step, and what is computed
//! after the last one.
//!
//! Results are read one step back; what a read says is there before the first step is the state that the scan begins with.

use super::without;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{BinaryOp, Elem, Expr, ExprKind, IndexVar, Meaning, Read};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, Program, Type, Value};
use mlc_dsl::library::{CallId, CallKind, Callable, Library};
use mlc_dsl::recurrence::Recurrence;
use mlc_dsl::typing::infer::{Application, infer};
use mlc_dsl::whole_tensors::{Bounded, Source, Sources, WholeTensors, widths};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Variables that stand for the axes of a state are numbered from here on.
const OF_STATE: usize = 1 << 20;

/// A recurrence whose steps can be taken one by one.
pub(crate) struct Step<'c> {
    meanings: &'c [Meaning],
    /// Tensor parameters.
    inputs: usize,
    pub backwards: bool,
    /// The number of steps.
    pub length: Extent,
    /// Of each result that has the axis of the steps: which of its axes that is, and the variable of it.
    places: Vec<Option<(usize, usize)>>,
    /// Of each result that is read one step back: what is there before the first step, over the variables of its axes.
    pub states: BTreeMap<usize, Expr>,
}

/// The body of a scan, and what it reads.
pub(crate) struct StepBody {
    pub program: Program,
    /// Parameters of which it gets a slice, with the axis.
    pub sequences: Vec<(usize, usize)>,
    /// Parameters that it sees whole.
    pub captured: BTreeSet<usize>,
    /// True if it reads the number of the step.
    pub counts: bool,
}

/// One step of a recurrence over operands of given types. Parameters and results are numbered as they are declared.
#[derive(Debug)]
pub struct RecurrenceStep {
    /// Reads `/stateR`, slices `/sliceKKKK_AA` of the parameter K along its axis A, and whole parameters `/paramK`; yields `/nextR`
    /// and `/madeR`.
    pub program: Program,
    /// The states before the first step, `/firstR`, of whole parameters.
    pub first: Program,
    /// The results that are read one step back.
    pub states: Vec<usize>,
    /// The parameters of which the step reads a slice, each with its axis.
    pub sequences: Vec<(usize, usize)>,
    /// The results that have the axis of the steps, and which axis that is.
    pub made: Vec<(usize, usize)>,
    /// From the last step to the first.
    pub backwards: bool,
    /// The types of the results.
    pub results: Vec<Type>,
}

/// One step of a recurrence; `None` if it is none over such operands, or reads the number of the step.
pub fn recurrence_step(
    library: &Library,
    call: CallId,
    operands: &[Type],
) -> Option<RecurrenceStep> {
    let declared = library.call(call);
    let (CallKind::Op(meanings), Some(recurrence)) = (&declared.kind, &declared.recurrence) else {
        return None;
    };
    let types: Vec<&Type> = operands.iter().collect();
    let app = infer(declared, &types, &vec![None; declared.attrs.len()]).ok()?;
    let step = steps(declared, meanings, recurrence, &app, operands.len())?;
    let names: Vec<String> = (0..operands.len()).map(|k| format!("/param{k}")).collect();
    let mut builder = Builder::new(library);
    let given = names.iter().zip(operands);
    let args: Vec<Value> = given.map(|(name, ty)| builder.input(name, ty.clone())).collect();
    let body = step.body(library, &app, &args, &names, "", &builder)?;
    let first = step.first(&mut builder, &app, &args)?;
    let first = first.into_iter().map(|(r, v)| (format!("/first{r}"), v)).collect();
    (!body.counts).then(|| RecurrenceStep {
        program: body.program,
        first: builder.finish(first),
        states: step.states.keys().copied().collect(),
        sequences: body.sequences,
        made: step.stepwise(),
        backwards: step.backwards,
        results: app.types.clone(),
    })
}

/// The steps of a recurrence; `None` if a read goes back otherwise than by one step.
pub(crate) fn steps<'c>(
    declared: &'c Callable,
    meanings: &'c [Meaning],
    recurrence: &Recurrence,
    app: &Application,
    inputs: usize,
) -> Option<Step<'c>> {
    let length = app.env.axis(&recurrence.axis)?.clone();
    let mut places = vec![];
    for (m, ty) in meanings.iter().zip(&app.types) {
        let widths = widths(&m.index, &app.env, ty.rank())?;
        let at = m.index.iter().position(|v| v.name == recurrence.axis);
        places.push(at.map(|at| (widths[..at].iter().sum(), m.index[at].id)));
    }
    debug_assert_eq!(declared.outputs.len(), meanings.len());
    let backwards = recurrence.backwards;
    let states = BTreeMap::new();
    let mut step = Step { meanings, inputs, backwards, length, places, states };
    for (m, place) in meanings.iter().zip(step.places.clone()) {
        let Some((_, variable)) = place else { continue };
        let mut reads = vec![];
        m.value.walk(&mut |e| {
            if let ExprKind::Read(read) = &e.kind
                && read.input >= inputs
            {
                reads.push(read);
            }
        });
        for read in reads {
            let r = read.input - inputs;
            match step.back(read, variable)? {
                0 => {}
                1 => {
                    let first = step.first_of(read, r)?;
                    if *step.states.entry(r).or_insert_with(|| first.clone()) != first {
                        return None;
                    }
                }
                _ => return None,
            }
        }
    }
    Some(step)
}

impl Step<'_> {
    /// How many steps back a result is read.
    fn back(&self, read: &Read, variable: usize) -> Option<i64> {
        let at = self.entry_of_step(read)?;
        let Elem::One(e) = &read.index[at] else { return None };
        let is_step = |e: &Expr| e.kind == ExprKind::Index(variable);
        match &e.kind {
            _ if is_step(e) => Some(0),
            ExprKind::Binary(BinaryOp::Sub | BinaryOp::Add, a, b) if is_step(a) => match b.kind {
                ExprKind::Int(k) => Some(k),
                _ => None,
            },
            _ => None,
        }
    }

    /// The entry of a read's index that belongs to the axis of the steps.
    fn entry_of_step(&self, read: &Read) -> Option<usize> {
        let r = read.input - self.inputs;
        let (_, variable) = self.places[r]?;
        let at = self.meanings[r].index.iter().position(|v| v.id == variable)?;
        // Entries and variables of the result pair up.
        (read.index.len() == self.meanings[r].index.len()).then_some(at)
    }

    /// What a read says is there before the first step, over the axes of the result.
    fn first_of(&self, read: &Read, r: usize) -> Option<Expr> {
        let at = self.entry_of_step(read)?;
        let mut pairs = vec![];
        for (i, (e, v)) in read.index.iter().zip(&self.meanings[r].index).enumerate() {
            if i != at {
                if matches!(e, Elem::Splice(_)) != v.segment {
                    return None;
                }
                pairs.push((e.expr().clone(), OF_STATE + v.id));
            }
        }
        fn over(e: &Expr, pairs: &[(Expr, usize)]) -> Expr {
            match pairs.iter().find(|(own, _)| own == e) {
                Some((_, variable)) => Expr { kind: ExprKind::Index(*variable), span: e.span },
                None => e.map(&mut |e| over(e, pairs)),
            }
        }
        Some(over(read.otherwise.as_deref()?, &pairs))
    }

    /// The variables of a result's axes but that of the steps.
    fn index_of_state(&self, r: usize) -> Vec<IndexVar> {
        let step = self.places[r].map(|p| p.1);
        let index = self.meanings[r].index.iter().filter(|v| Some(v.id) != step);
        index.map(|v| IndexVar { id: OF_STATE + v.id, ..v.clone() }).collect()
    }

    /// The type of a result at one step.
    pub fn slice_type(&self, r: usize, app: &Application) -> Option<Type> {
        Some(without(&app.types[r], self.places[r]?.0))
    }

    /// The results that have the axis of the steps, and which axis that is.
    pub fn stepwise(&self) -> Vec<(usize, usize)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(r, p)| Some((r, p.as_ref()?.0))).collect()
    }

    /// True if a result that is computed after all steps reads another one as a whole.
    pub fn is_read_after(&self, r: usize) -> bool {
        let after = self.meanings.iter().zip(&self.places).filter(|(_, p)| p.is_none());
        after.into_iter().any(|(m, _)| {
            m.value.any(
                &mut |e| matches!(&e.kind, ExprKind::Read(read) if read.input == self.inputs + r),
            )
        })
    }

    /// The states before the first step.
    pub fn first(
        &self,
        builder: &mut Builder<'_>,
        app: &Application,
        args: &[Value],
    ) -> Option<Vec<(usize, Value)>> {
        let mut out = vec![];
        for (&r, first) in &self.states {
            let sources = After {
                step: self,
                args,
                made: &HashMap::new(),
                last: &HashMap::new(),
                env: &app.env,
            };
            let mut run = WholeTensors::new(builder, &app.env, sources);
            let ty = self.slice_type(r, app)?;
            out.push((r, run.equation(first, &self.index_of_state(r), &ty)?));
        }
        Some(out)
    }

    /// One step as a program. `outer` has the arguments, `names` what they are called.
    pub fn body(
        &self,
        library: &Library,
        app: &Application,
        args: &[Value],
        names: &[String],
        base: &str,
        outer: &Builder<'_>,
    ) -> Option<StepBody> {
        let mut builder = Builder::new(library);
        let mut states = BTreeMap::new();
        for &r in self.states.keys() {
            let name = format!("{base}/state{r}");
            states.insert(r, builder.input(&name, self.slice_type(r, app)?));
        }
        let types: Vec<Type> = args.iter().map(|&a| outer.ty(a).clone()).collect();
        let mut within = Within {
            step: self,
            variable: 0,
            widths: HashMap::new(),
            states,
            now: BTreeMap::new(),
            types: &types,
            names,
            base,
            slices: BTreeMap::new(),
            captured: BTreeMap::new(),
            count: None,
        };
        for (r, m) in self.meanings.iter().enumerate() {
            let Some((_, variable)) = self.places[r] else { continue };
            within.variable = variable;
            within.widths = segments(m, &app.env, app.types[r].rank())?;
            let index: Vec<IndexVar> =
                m.index.iter().filter(|v| v.id != variable).cloned().collect();
            let ty = self.slice_type(r, app)?;
            let mut run = WholeTensors::new(&mut builder, &app.env, within);
            let value = run.equation(&m.value, &index, &ty)?;
            within = run.sources;
            within.now.insert(r, value);
        }
        let mut outputs = vec![];
        for r in self.states.keys() {
            outputs.push((format!("{base}/next{r}"), *within.now.get(r)?));
        }
        for (r, v) in &within.now {
            outputs.push((format!("{base}/made{r}"), *v));
        }
        let sequences = within.slices.keys().copied().collect();
        let captured = within.captured.keys().copied().collect();
        let counts = within.count.is_some();
        Some(StepBody { program: builder.finish(outputs), sequences, captured, counts })
    }

    /// All results: those of the steps, and those that are computed after them.
    pub fn after(
        &self,
        builder: &mut Builder<'_>,
        app: &Application,
        args: &[Value],
        made: &HashMap<usize, Value>,
        last: &HashMap<usize, Value>,
    ) -> Option<Vec<Value>> {
        let mut out = vec![];
        for (r, m) in self.meanings.iter().enumerate() {
            if self.places[r].is_some() {
                // What nothing reads stands for itself: it is pruned.
                out.push(made.get(&r).or(last.get(&r)).or(args.first()).copied()?);
                continue;
            }
            let sources = After { step: self, args, made, last, env: &app.env };
            let mut run = WholeTensors::new(builder, &app.env, sources);
            out.push(run.equation(&m.value, &m.index, &app.types[r])?);
        }
        Some(out)
    }
}

/// How many axes the segments of a meaning have, by variable.
fn segments(m: &Meaning, env: &Env, rank: usize) -> Option<HashMap<usize, usize>> {
    let own = widths(&m.index, env, rank)?;
    let mut out: HashMap<usize, usize> = m.index.iter().map(|v| v.id).zip(own).collect();
    m.value.walk(&mut |e| {
        if let ExprKind::Reduce(r) = &e.kind {
            for v in &r.over {
                out.insert(
                    v.id,
                    if v.segment { env.seg(&v.name).map_or(0, <[_]>::len) } else { 1 },
                );
            }
        }
    });
    Some(out)
}

/// What a step reads.
struct Within<'s, 'c> {
    step: &'s Step<'c>,
    /// The variable of the steps.
    variable: usize,
    widths: HashMap<usize, usize>,
    states: BTreeMap<usize, Value>,
    now: BTreeMap<usize, Value>,
    types: &'s [Type],
    names: &'s [String],
    base: &'s str,
    /// By parameter and axis.
    slices: BTreeMap<(usize, usize), Value>,
    captured: BTreeMap<usize, Value>,
    count: Option<Value>,
}

impl Within<'_, '_> {
    /// The entry of an index that is the step, and the axis that it belongs to.
    fn entry_of_step(&self, read: &Read) -> Option<(usize, usize)> {
        let mut axis = 0;
        for (i, e) in read.index.iter().enumerate() {
            match e {
                Elem::One(e) if e.kind == ExprKind::Index(self.variable) => return Some((i, axis)),
                Elem::One(_) => axis += 1,
                Elem::Splice(e) => match e.kind {
                    ExprKind::Index(v) => axis += self.widths.get(&v)?,
                    _ => return None,
                },
            }
        }
        None
    }
}

impl Sources for Within<'_, '_> {
    fn tensor(&mut self, read: &Read, builder: &mut Builder<'_>) -> Option<Source> {
        let rest = |at: usize| {
            let all = read.index.iter().enumerate();
            all.filter(|(i, _)| *i != at).map(|(_, e)| e.clone()).collect::<Vec<_>>()
        };
        if let Some(r) = read.input.checked_sub(self.step.inputs) {
            let from = match self.step.back(read, self.variable)? {
                0 => &self.now,
                _ => &self.states,
            };
            let index = rest(self.step.entry_of_step(read)?);
            return Some(Source { tensor: *from.get(&r)?, index, bounded: Bounded::Within });
        }
        let k = read.input;
        let ty = self.types.get(k)?;
        if let Some((at, axis)) = self.entry_of_step(read)
            && ty.shape.get(axis) == Some(&self.step.length)
        {
            let name = format!("{}/slice{k:04}_{axis:02}", self.base);
            let slice = self.slices.entry((k, axis));
            let tensor = *slice.or_insert_with(|| builder.input(&name, without(ty, axis)));
            return Some(Source { tensor, index: rest(at), bounded: Bounded::AsRead });
        }
        let whole = self.captured.entry(k);
        let tensor = *whole.or_insert_with(|| builder.input(&self.names[k], ty.clone()));
        Some(Source { tensor, index: read.index.clone(), bounded: Bounded::AsRead })
    }

    fn fixed(&mut self, variable: usize, builder: &mut Builder<'_>) -> Option<Value> {
        if variable != self.variable {
            return None;
        }
        let name = format!("{}/slice_count", self.base);
        let ty = || Type::new(DType::I64, vec![]);
        Some(*self.count.get_or_insert_with(|| builder.input(&name, ty())))
    }
}

/// What is read before the first step and after the last one.
struct After<'s, 'c> {
    step: &'s Step<'c>,
    args: &'s [Value],
    made: &'s HashMap<usize, Value>,
    last: &'s HashMap<usize, Value>,
    env: &'s Env,
}

impl Sources for After<'_, '_> {
    fn tensor(&mut self, read: &Read, _: &mut Builder<'_>) -> Option<Source> {
        let Some(r) = read.input.checked_sub(self.step.inputs) else {
            let tensor = *self.args.get(read.input)?;
            return Some(Source { tensor, index: read.index.clone(), bounded: Bounded::AsRead });
        };
        if let Some(at) = self.step.entry_of_step(read)
            && let Ok(place) = eval(read.index[at].expr(), self.env)
        {
            let end = match self.step.backwards {
                false => &self.step.length - &Extent::from(1),
                true => Extent::from(0),
            };
            let first = read.otherwise.as_ref().and_then(|_| self.step.first_of(read, r));
            if matches!(&place, Attr::Int(e) if *e == end)
                && first.is_none_or(|f| self.step.states.get(&r) == Some(&f))
                && let Some(&tensor) = self.last.get(&r)
            {
                let all = read.index.iter().enumerate();
                let index = all.filter(|(i, _)| *i != at).map(|(_, e)| e.clone()).collect();
                return Some(Source { tensor, index, bounded: Bounded::Within });
            }
        }
        let tensor = *self.made.get(&r)?;
        Some(Source { tensor, index: read.index.clone(), bounded: Bounded::AsRead })
    }

    fn fixed(&mut self, _: usize, _: &mut Builder<'_>) -> Option<Value> {
        None
    }
}
