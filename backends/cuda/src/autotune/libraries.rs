//! Autotuning of library calls: parts of a run go to a library or to generated code, whichever is faster on this device.
//!
//! Every algorithm runs once on the same inputs; one whose result differs is rejected. The others are timed, and the device keeps the
//! choice, so that later sessions compute the same values the same way. A library that fails is never replaced silently: every choice
//! and every failure is a note of the session.

use super::comparison::{self, Comparison, TestInputs};
use super::library_candidate::{LibraryCandidate, LibraryKind, LibraryOp};
use crate::bound_launch::BoundLaunch;
use crate::buffers::{Memory, OwnedLibraryOp};
use crate::driver::{Address, Library};
use crate::launch::Argument;
use crate::session::LaunchedPlan;
use mlc_backends::BackendError;
use mlc_backends::device::DriverError;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the workspace that a session's library calls use in turn: for products, and for convolutions, some of which transpose their
/// operands.
const WORKSPACE: u64 = 32 << 20;
const WORKSPACE_OF_CONVOLUTIONS: u64 = 128 << 20;
/// Algorithms of a library that are tried.
const WAYS: usize = 4;

/// Names of the choice of generated code: in notes, and in the record that a device keeps.
const CODE: &str = "generated code";
const KEPT_CODE: &str = "code";

/// A library call that replaces launches.
pub struct LibraryChoice {
    /// The launches that it replaces.
    pub launches: Range<usize>,
    product: OwnedLibraryOp,
    epilogue: Option<BoundLaunch>,
    /// The operation, and the function that it replaces, for a note.
    what: LibraryOp,
    function: String,
    /// The number of the candidate, and that of the library's algorithm.
    way: (usize, usize),
    is_used: AtomicBool,
    /// The permuted copy of an argument.
    _copy: Option<Memory>,
}

/// A step of a run.
pub enum RunStep<'a> {
    /// A launch, and its number.
    Launch(usize, &'a BoundLaunch),
    /// A library call.
    Library(&'a LibraryChoice),
}

impl<'a> RunStep<'a> {
    /// The launch, if it is one.
    pub fn call(&self) -> Option<&'a BoundLaunch> {
        match self {
            RunStep::Launch(_, call) => Some(call),
            RunStep::Library(_) => None,
        }
    }
}

/// The library calls of a session.
#[derive(Default)]
pub struct LibraryChoices {
    all: Vec<LibraryChoice>,
    /// The libraries' names and versions.
    libraries: BTreeMap<LibraryKind, String>,
    notes: Mutex<Vec<String>>,
    /// Choices so far: equal operations are computed in one way.
    decided: HashMap<Vec<LibraryOp>, Option<(usize, usize)>>,
    _workspace: Option<Memory>,
}

/// Rejected calls: why, for a note, and whether the library failed.
type RejectedWays = Vec<(LibraryOp, String, bool)>;

impl LibraryChoice {
    /// Prepares an algorithm of a library; `None` if it has no more.
    fn new(
        plan: &LaunchedPlan,
        alternative: &LibraryCandidate,
        workspace: &Memory,
        way: (usize, usize),
    ) -> Result<Option<LibraryChoice>, BackendError> {
        // Launches without blocks are no calls.
        let calls =
            |until: usize| plan.launches.each[..until].iter().filter(|l| l.has_blocks()).count();
        let Range { start, end } = alternative.launches;
        let epilogue = alternative
            .epilogue
            .as_ref()
            .map(|l| BoundLaunch::new(l, &plan.buffers))
            .transpose()?;
        let address = |a: &Argument| plan.buffers.address(a.place, a.bytes);
        let operands: Option<Vec<Address>> = alternative.arguments.iter().map(address).collect();
        let mut operands = operands.ok_or_else(|| crate::buffers::misplaced("an alternative"))?;
        let copy = copied(plan, alternative, &mut operands)?;
        let (driver, work) = (&plan.driver, &alternative.work);
        let beside = (workspace.address, workspace.bytes);
        let Some(prepared) = driver.prepare(work, &operands, beside, way.1)? else {
            return Ok(None);
        };
        Ok(Some(LibraryChoice {
            launches: calls(start)..calls(end),
            product: OwnedLibraryOp::new(driver, prepared),
            epilogue,
            what: work.clone(),
            function: plan.launches.each[start].function.clone(),
            way,
            is_used: AtomicBool::new(true),
            _copy: copy,
        }))
    }

    /// Its name in lists of functions.
    pub fn name(&self) -> &'static str {
        match self.what.kind() {
            LibraryKind::Products => "product by the library",
            LibraryKind::Convolutions => "convolution by the library",
        }
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// The launches that it replaces.
    pub fn own<'a>(&self, calls: &'a [BoundLaunch]) -> &'a [BoundLaunch] {
        &calls[self.launches.clone()]
    }

    /// Starts the library call and its epilogue.
    pub fn start(&self, plan: &LaunchedPlan) -> Result<(), DriverError> {
        plan.driver.multiply(plan.stream.stream, self.product.prepared)?;
        self.epilogue.as_ref().map_or(Ok(()), |call| plan.launch(call, false))
    }
}

/// Permutes an argument that a library reads in another order.
fn copied(
    plan: &LaunchedPlan,
    alternative: &LibraryCandidate,
    operands: &mut [Address],
) -> Result<Option<Memory>, BackendError> {
    let Some(copied) = &alternative.copied else { return Ok(None) };
    let lacking = || crate::buffers::misplaced("a copy");
    let argument = alternative.arguments.get(copied.argument).ok_or_else(lacking)?;
    let mut bytes = vec![0; argument.bytes as usize];
    let on = &plan.stream;
    plan.driver.download(on.stream, &mut [(operands[copied.argument], &mut bytes)])?;
    let bytes = copied.permute(&bytes, argument.dtype.size()).ok_or_else(lacking)?;
    let memory = Memory::new(&plan.driver, bytes.len() as u64)?;
    memory.fill(on, &bytes)?;
    operands[copied.argument] = memory.address;
    Ok(Some(memory))
}

/// Candidates for the same launches.
struct CandidateGroup<'a> {
    plan: &'a LaunchedPlan,
    all: Vec<&'a LibraryCandidate>,
}

impl CandidateGroup<'_> {
    fn works(&self) -> Vec<LibraryOp> {
        self.all.iter().map(|a| a.work.clone()).collect()
    }

    /// Starts the launches that candidates replace.
    fn start(&self, of: &LibraryChoice) -> Result<(), DriverError> {
        let plan = self.plan;
        of.own(plan.calls()).iter().try_for_each(|call| plan.launch(call, false))
    }

    /// Runs all calls on the same inputs, and keeps those whose results agree: NaN has to propagate, too, where an activation might
    /// lose it.
    fn agreeing(&self, ways: &mut Vec<LibraryChoice>) -> Result<RejectedWays, BackendError> {
        let mut others = self.agreeing_on(TestInputs::Small, ways)?;
        if !ways.is_empty() && self.all.iter().any(|a| a.work.is_activated()) {
            others.extend(self.agreeing_on(TestInputs::OneNan, ways)?);
        }
        Ok(others)
    }

    fn agreeing_on(
        &self,
        given: TestInputs,
        ways: &mut Vec<LibraryChoice>,
    ) -> Result<RejectedWays, BackendError> {
        let plan = self.plan;
        let launches = &plan.launches.each[self.all[0].launches.clone()];
        let Some(comparison) = Comparison::new(plan, launches, given)? else {
            ways.clear();
            return Ok(vec![]);
        };
        let Some(first) = ways.first() else { return Ok(vec![]) };
        self.start(first)?;
        let expected = comparison.read()?;
        let (mut agreeing, mut others) = (vec![], vec![]);
        for way in std::mem::take(ways) {
            comparison.clear()?;
            match way.start(plan) {
                Err(e) if !matches!(e, DriverError::Lost { .. } | DriverError::Kernel { .. }) => {
                    others.push((way.what.clone(), format!("does not compute it ({e})"), true));
                    continue;
                }
                done => done?,
            }
            match comparison.disagreement(&expected)? {
                Some(error) => {
                    others.push((way.what.clone(), format!("differs by {error:.1e}"), false));
                }
                None => agreeing.push(way),
            }
        }
        *ways = agreeing;
        Ok(others)
    }

    /// Times generated code and all calls; `None` without calls or a clock.
    fn timed(&self, ways: &[LibraryChoice]) -> Result<Option<Vec<f64>>, BackendError> {
        let Some(first) = ways.first() else { return Ok(None) };
        let times = comparison::times_recorded(self.plan, 1 + ways.len(), &|way| match way
            .checked_sub(1)
        {
            None => self.start(first),
            Some(way) => ways[way].start(self.plan),
        });
        Ok(times?)
    }
}

/// The record of a choice that a device keeps, and its parser.
fn record_of(way: Option<(usize, usize)>) -> String {
    way.map_or(KEPT_CODE.into(), |(alternative, way)| format!("library {alternative} {way}"))
}

fn parse_record(kept: &str) -> Option<Option<(usize, usize)>> {
    if kept == KEPT_CODE {
        return Some(None);
    }
    let (alternative, way) = kept.strip_prefix("library ")?.split_once(' ')?;
    Some(Some((alternative.parse().ok()?, way.parse().ok()?)))
}

impl LibraryChoices {
    /// Chooses among the candidates of a plan whose launches are loaded.
    pub fn choose(plan: &LaunchedPlan) -> Result<LibraryChoices, BackendError> {
        let mut choices = LibraryChoices::default();
        let all = &plan.launches.library_candidates;
        for kind in [LibraryKind::Products, LibraryKind::Convolutions] {
            if !all.iter().any(|a| a.work.kind() == kind) {
                continue;
            }
            match plan.driver.library(kind) {
                Library::Off => {}
                Library::Absent(why) => {
                    choices.note(format!("{} run as generated code: {why}", kind.name()));
                }
                Library::Present(name) => drop(choices.libraries.insert(kind, name)),
            }
        }
        let bytes = match choices.libraries.last_key_value() {
            None => return Ok(choices),
            Some((LibraryKind::Convolutions, _)) => WORKSPACE_OF_CONVOLUTIONS,
            Some((LibraryKind::Products, _)) => WORKSPACE,
        };
        let workspace = match Memory::new(&plan.driver, bytes) {
            Ok(memory) => memory,
            Err(e @ DriverError::Memory { .. }) => {
                for kind in choices.libraries.keys() {
                    choices.note(format!("{} run as generated code: {e}", kind.name()));
                }
                return Ok(choices);
            }
            Err(e) => return Err(e.into()),
        };
        for group in all.chunk_by(|a, b| a.launches == b.launches) {
            let is_open = |a: &&LibraryCandidate| choices.libraries.contains_key(&a.work.kind());
            let group = CandidateGroup { plan, all: group.iter().filter(is_open).collect() };
            if !group.all.is_empty() {
                choices.decide(&group, &workspace)?;
            }
        }
        choices._workspace = (!choices.all.is_empty()).then_some(workspace);
        Ok(choices)
    }

    /// Notes that a library does not compute something, unless the context is lost.
    fn refused(&self, work: &LibraryOp, e: BackendError) -> Result<(), BackendError> {
        if let BackendError::Device(DriverError::Lost { .. }) = e {
            return Err(e);
        }
        let library = self.library(work);
        self.note(format!("{CODE}, for {library} does not compute {work}: {e}"));
        Ok(())
    }

    fn library(&self, of: &LibraryOp) -> &str {
        self.libraries.get(&of.kind()).map_or("", |name| name)
    }

    /// Adds the library call of a group, if one is chosen.
    fn decide(
        &mut self,
        group: &CandidateGroup<'_>,
        workspace: &Memory,
    ) -> Result<(), BackendError> {
        let works = group.works();
        let again = self.decided.get(&works).copied();
        let before = || group.plan.driver.chosen(&works).and_then(|kept| parse_record(&kept));
        let chosen = match again.or_else(before) {
            Some(chosen) => chosen,
            None => return self.time_group(group, workspace),
        };
        let (work, choice) = match chosen {
            None => (&works[0], None),
            Some(way) => {
                let Some(alternative) = group.all.get(way.0) else { return Ok(()) };
                match LibraryChoice::new(group.plan, alternative, workspace, way) {
                    Ok(None) => return Ok(()),
                    Ok(choice) => (&alternative.work, choice),
                    Err(e) => return self.refused(&alternative.work, e),
                }
            }
        };
        if again.is_none() {
            let who = if choice.is_some() { self.library(work) } else { CODE };
            self.note(format!("{who}, as chosen before: {work}"));
        }
        self.decided.insert(works, chosen);
        self.all.extend(choice);
        Ok(())
    }

    /// All library calls that compute a group.
    fn ways(
        &self,
        group: &CandidateGroup<'_>,
        workspace: &Memory,
    ) -> Result<Vec<LibraryChoice>, BackendError> {
        let mut ways = vec![];
        for (number, alternative) in group.all.iter().enumerate() {
            for way in 0..WAYS {
                match LibraryChoice::new(group.plan, alternative, workspace, (number, way)) {
                    Ok(Some(choice)) => ways.push(choice),
                    Ok(None) => break,
                    Err(e) => {
                        self.refused(&alternative.work, e)?;
                        break;
                    }
                }
            }
        }
        Ok(ways)
    }

    /// Times a group, and adds the library call if it is fastest.
    fn time_group(
        &mut self,
        group: &CandidateGroup<'_>,
        workspace: &Memory,
    ) -> Result<(), BackendError> {
        let works = group.works();
        let mut ways = self.ways(group, workspace)?;
        if ways.is_empty() {
            return Ok(());
        }
        let measured = group.agreeing(&mut ways).and_then(|others| {
            let times = group.timed(&ways)?;
            Ok((others, times))
        });
        let (others, times) = match measured {
            Ok(measured) => measured,
            Err(e) => return self.refused(&works[0], e),
        };
        for (work, why, _) in &others {
            self.note(format!("{CODE}, for {} {why}: {work}", self.library(work)));
        }
        let micro = |seconds: f64| format!("{:.2} µs", seconds * 1e6);
        let chosen = match times {
            None if ways.is_empty() => {
                if others.iter().all(|o| o.2) {
                    return Ok(());
                }
                None
            }
            None => {
                self.note(format!("{CODE}, for the device has no clock: {}", ways[0].what));
                self.decided.insert(works, None);
                return Ok(());
            }
            Some(times) => {
                let own = times[0];
                let all = times[1..].iter().copied().enumerate();
                let best = all.min_by(|a, b| a.1.total_cmp(&b.1));
                let (place, by) = best.expect("there are ways");
                let way = ways.swap_remove(place);
                let (who, first, second) = match by < own {
                    true => (self.library(&way.what), by, own),
                    false => (CODE, own, by),
                };
                let (what, first, second) = (&way.what, micro(first), micro(second));
                self.note(format!("{who}, {first} against {second}: {what}"));
                (by < own).then_some(way)
            }
        };
        let way = chosen.as_ref().map(|c| c.way);
        group.plan.driver.choose(&works, &record_of(way));
        self.decided.insert(works, way);
        self.all.extend(chosen);
        Ok(())
    }

    /// Adds a note, unless it is there.
    fn note(&self, text: String) {
        let mut notes = self.notes.lock().unwrap_or_else(|e| e.into_inner());
        if !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// All notes so far.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// How many library calls a run has.
    pub fn in_use(&self) -> usize {
        self.all.iter().filter(|c| c.is_used()).count()
    }

    /// Falls back to the launches from here on.
    pub fn give_up(&self, choice: &LibraryChoice, why: &DriverError) {
        choice.is_used.store(false, Ordering::Relaxed);
        let (library, LibraryChoice { what, function, .. }) = (self.library(&choice.what), choice);
        self.note(format!(
            "{CODE} from here on, for {library} failed: {why}: {what} of `{function}`"
        ));
    }

    /// The steps of a run: launches, some of them replaced by library calls.
    pub fn steps<'a>(&'a self, calls: &'a [BoundLaunch]) -> Vec<RunStep<'a>> {
        let mut steps = vec![];
        let mut at = 0;
        while at < calls.len() {
            match self.all.iter().find(|c| c.is_used() && c.launches.start == at) {
                Some(choice) if choice.launches.end > at => {
                    steps.push(RunStep::Library(choice));
                    at = choice.launches.end;
                }
                _ => {
                    steps.push(RunStep::Launch(at, &calls[at]));
                    at += 1;
                }
            }
        }
        steps
    }
}
