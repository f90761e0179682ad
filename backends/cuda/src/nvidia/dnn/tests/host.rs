//! A library that keeps account of what it gives away, may fail any call, and computes on the host what it is described as cudnn_graph.h
//! says: from the descriptions alone, so that a wrong one gives a wrong result.

use super::super::*;
use mlc_dsl::ir::Tensor;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// An attribute: its type, how many values, and their bytes.
pub type Attribute = (i32, i64, Vec<u8>);

/// What a handle stands for.
#[derive(Clone, Debug)]
pub enum Thing {
    Library,
    /// Its kind, whether it is finished, and what was set.
    Description(i32, bool, BTreeMap<i32, Attribute>),
}

#[derive(Default)]
pub struct State {
    pub things: BTreeMap<usize, Thing>,
    pub next: usize,
    pub calls: Vec<&'static str>,
    pub fails: Option<usize>,
    pub stream: usize,
    /// The engine of every plan that was executed.
    pub executed: Vec<i64>,
}

thread_local! {
    pub static STATE: RefCell<State> = RefCell::default();
}

/// The number of an engine's attribute that only this library knows.
const OWN: i32 = -1;
/// Engines: their notes, the bytes that they need, and whether they support anything. Those of the second list are asked for if none of the
/// first one does.
const ENGINES: [(&[i32], i64, bool); 8] = [
    (&[1], 0, true),
    (&[0], 16, true),
    (&[], 1 << 20, true),
    (&[9], 16, false),
    (&[], 16, true),
    (&[4], 0, true),
    (&[9], 64, true),
    (&[0, 5], 0, true),
];
const FALLBACK: (&[i32], i64, bool) = (&[9], 0, true);
/// The engines that are precise and fit into the workspace, of all, and of 32 bits.
pub const PRECISE: [i64; 3] = [1, 4, 6];
pub const REAL: [i64; 2] = [4, 6];

/// Counts a call; its code.
fn called(name: &'static str) -> c_int {
    STATE.with_borrow_mut(|s| {
        s.calls.push(name);
        if s.fails == Some(s.calls.len() - 1) { 3000 } else { 0 }
    })
}

fn made(name: &'static str, to: *mut Handle, thing: Thing) -> c_int {
    let code = called(name);
    if code == 0 {
        STATE.with_borrow_mut(|s| {
            s.next += 1;
            s.things.insert(s.next, thing);
            // SAFETY: the caller's pointer is valid.
            unsafe { *to = ptr::without_provenance_mut(s.next) };
        });
    }
    code
}

fn thing(at: usize) -> Thing {
    STATE.with_borrow(|s| s.things.get(&at).expect("is not given back").clone())
}

/// What was set of a description of a kind that is finished.
fn finished(at: usize, kinds: &[i32]) -> BTreeMap<i32, Attribute> {
    let Thing::Description(kind, true, all) = thing(at) else { panic!("{at} is not finished") };
    assert!(kinds.contains(&kind), "{kind} is not of {kinds:?}");
    all
}

unsafe extern "C" fn destroy(handle: Handle) -> c_int {
    let found = STATE.with_borrow_mut(|s| s.things.remove(&handle.addr()));
    assert!(found.is_some(), "given back twice");
    0
}

unsafe extern "C" fn create(to: *mut Handle) -> c_int {
    made("create", to, Thing::Library)
}

unsafe extern "C" fn set_stream(of: Handle, stream: Handle) -> c_int {
    assert!(matches!(thing(of.addr()), Thing::Library));
    STATE.with_borrow_mut(|s| s.stream = stream.addr());
    called("stream")
}

unsafe extern "C" fn version() -> usize {
    92_800
}

unsafe extern "C" fn runtime() -> usize {
    13_000
}

unsafe extern "C" fn describe(code: c_int) -> *const c_char {
    if code == 3000 { c"not supported".as_ptr() } else { ptr::null() }
}

unsafe extern "C" fn explain(to: *mut c_char, size: usize) {
    let text = c"by this one".to_bytes_with_nul();
    assert!(text.len() <= size);
    // SAFETY: the caller's pointer leads to so many bytes.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len()) };
}

unsafe extern "C" fn make(kind: c_int, to: *mut Handle) -> c_int {
    made("make", to, Thing::Description(kind, false, BTreeMap::new()))
}

/// What may be set: kind, attribute, type, bytes of a value, and whether it must be.
const KNOWN: [(i32, i32, i32, usize, bool); 36] = [
    (0, 0, 14, 4, true),
    (0, 1, 1, 4, true),
    (0, 2, 10, 4, false),
    (1, 100, 1, 4, true),
    (1, 101, 7, 4, true),
    (1, 102, 3, 8, true),
    (1, 103, 3, 8, true),
    (1, 104, 3, 8, true),
    (1, 105, 3, 8, true),
    (1, 106, 3, 8, true),
    (4, 200, 8, 4, true),
    (4, 201, 15, 8, true),
    (5, 400, 0, 8, true),
    (5, 401, 15, 8, true),
    (10, 700, 4, 4, true),
    (10, 701, 4, 4, true),
    (10, 702, 15, 8, true),
    (10, 703, 15, 8, true),
    (10, 704, 15, 8, true),
    (10, 705, 15, 8, true),
    (13, 750, 15, 8, true),
    (13, 751, 15, 8, true),
    (13, 752, 15, 8, false),
    (13, 753, 15, 8, true),
    (15, 800, 0, 8, true),
    (15, 801, 15, 8, true),
    (16, 1000, 3, 8, true),
    (16, 1001, 6, 8, true),
    (16, 1003, 6, 8, true),
    (17, 900, 3, 8, true),
    (17, 901, 1, 4, true),
    (17, 902, 3, 8, true),
    (17, 903, 3, 8, true),
    (17, 906, 3, 8, true),
    (17, 907, 2, 1, false),
    (2, OWN, 3, 8, true),
];

unsafe extern "C" fn set(of: Handle, at: c_int, ty: c_int, n: i64, from: *const c_void) -> c_int {
    let code = called("set");
    let Thing::Description(kind, false, _) = thing(of.addr()) else { panic!("is finished") };
    let known = KNOWN.iter().find(|k| (k.0, k.1) == (kind, at));
    let known = known.unwrap_or_else(|| panic!("{kind} has no attribute {at}"));
    assert_eq!(known.2, ty, "the type of attribute {at}");
    // SAFETY: the caller's pointer leads to so many values of that type.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), known.3 * n as usize) };
    match ty {
        15 => numbers(bytes).for_each(|h| {
            let Thing::Description(_, is_finished, _) = thing(h as usize) else { panic!("none") };
            // Configurations come from the library, and are not finished by whom they are for.
            assert!(is_finished, "attribute {at} is not finished");
        }),
        0 => assert!(numbers(bytes).all(|h| matches!(thing(h as usize), Thing::Library))),
        _ => {}
    }
    STATE.with_borrow_mut(|s| {
        let Some(Thing::Description(.., all)) = s.things.get_mut(&of.addr()) else { panic!() };
        all.insert(at, (ty, n, bytes.to_vec()));
    });
    code
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = i64> + '_ {
    bytes.chunks_exact(8).map(|n| i64::from_le_bytes(n.try_into().expect("8 bytes")))
}

fn all(of: &BTreeMap<i32, Attribute>, at: i32) -> Vec<i64> {
    let (_, n, bytes) = of.get(&at).unwrap_or_else(|| panic!("{at} is not set"));
    match bytes.len() / *n as usize {
        8 => numbers(bytes).collect(),
        4 => {
            let four = |n: &[u8]| i32::from_le_bytes(n.try_into().expect("4 bytes"));
            bytes.chunks_exact(4).map(|n| i64::from(four(n))).collect()
        }
        _ => bytes.iter().map(|b| i64::from(*b)).collect(),
    }
}

fn one(of: &BTreeMap<i32, Attribute>, at: i32) -> i64 {
    let found = all(of, at);
    assert_eq!(found.len(), 1, "attribute {at}");
    found[0]
}

unsafe extern "C" fn finish(of: Handle) -> c_int {
    let code = called("finish");
    let Thing::Description(kind, false, set) = thing(of.addr()) else { panic!("is finished") };
    for known in KNOWN.iter().filter(|k| k.0 == kind && k.4) {
        assert!(set.contains_key(&known.1), "{kind} lacks {}", known.1);
    }
    match kind {
        1 => {
            let along = one(&set, 106) as usize;
            assert!((102..106).all(|at| all(&set, at).len() == along));
            assert_eq!((one(&set, 100), one(&set, 101)), (0, 1));
        }
        17 => {
            assert_eq!(all(&set, 902).len(), all(&set, 903).len());
            assert!(all(&set, 902).into_iter().chain(all(&set, 903)).all(|n| n > 0));
        }
        5 => {
            let engine = one(&finished(one(&set, 401) as usize, &[3]), OWN);
            if engine >= 0 && !ENGINES[engine as usize].2 {
                return 3000;
            }
        }
        _ => {}
    }
    if code == 0 {
        STATE.with_borrow_mut(|s| {
            let Some(Thing::Description(_, done, _)) = s.things.get_mut(&of.addr()) else {
                panic!()
            };
            *done = true;
        });
    }
    code
}

/// Makes a description finished, of this engine.
fn fill(at: usize, kind: i32, graph: i64, engine: i64) {
    let eight = |n: i64| (3, 1, n.to_le_bytes().to_vec());
    STATE.with_borrow_mut(|s| {
        let Some(Thing::Description(own, done, all)) = s.things.get_mut(&at) else { panic!() };
        assert_eq!((*own, *done), (kind, false));
        *done = true;
        all.insert(OWN, eight(engine));
        all.insert(OWN - 1, eight(graph));
    });
}

unsafe extern "C" fn get(
    of: Handle,
    at: c_int,
    ty: c_int,
    room: i64,
    count: *mut i64,
    to: *mut c_void,
) -> c_int {
    let code = called("get");
    if code != 0 {
        return code;
    }
    // SAFETY: both pointers are the caller's, and the second one leads to as many values as there is room for.
    let put = |n: usize| unsafe { *count = n as i64 };
    let handles = || unsafe { std::slice::from_raw_parts(to.cast::<usize>(), room as usize) };
    match (at, ty) {
        (202, 15) => {
            let set = finished(of.addr(), &[4]);
            let first = one(&set, 200) == 3;
            let is_none = STATE.with_borrow(|s| s.stream == usize::MAX);
            let listed: Vec<i64> = match (first, is_none) {
                (true, false) => (0..ENGINES.len() as i64).collect(),
                (true, true) => vec![0, 2],
                (false, _) => vec![-1],
            };
            for (handle, engine) in handles().iter().zip(&listed) {
                fill(*handle, 3, one(&set, 201), *engine);
            }
            put(listed.len());
        }
        (300, 15) => {
            let set = finished(of.addr(), &[3]);
            fill(handles()[0], 2, one(&set, OWN - 1), one(&set, OWN));
            put(1);
        }
        (1303, 11) => {
            let engine = one(&finished(of.addr(), &[2]), OWN);
            let notes = if engine < 0 { FALLBACK.0 } else { ENGINES[engine as usize].0 };
            assert!(notes.len() <= room as usize);
            // SAFETY: as above.
            unsafe { ptr::copy_nonoverlapping(notes.as_ptr(), to.cast(), notes.len()) };
            put(notes.len());
        }
        (402, 3) => {
            let set = finished(of.addr(), &[5]);
            let engine = one(&finished(one(&set, 401) as usize, &[3]), OWN);
            let bytes = if engine < 0 { FALLBACK.1 } else { ENGINES[engine as usize].1 };
            // SAFETY: as above.
            unsafe { *to.cast::<i64>() = bytes };
            put(1);
        }
        _ => panic!("attribute {at} of type {ty} is asked for"),
    }
    0
}

/// A tensor of a description, with the numbers in it.
struct View {
    extents: Vec<i64>,
    strides: Vec<i64>,
    at: Vec<f64>,
}

impl View {
    fn place(&self, index: &[i64]) -> usize {
        let inside = index.iter().zip(&self.extents).all(|(i, n)| (0..*n).contains(i));
        assert!(inside, "{index:?} is outside of {:?}", self.extents);
        index.iter().zip(&self.strides).map(|(i, s)| i * s).sum::<i64>() as usize
    }

    /// All indices.
    fn each(&self) -> Vec<Vec<i64>> {
        let mut all = vec![vec![]];
        for &n in &self.extents {
            let more = |i: &Vec<i64>| (0..n).map(|j| [&i[..], &[j]].concat()).collect::<Vec<_>>();
            all = all.iter().flat_map(more).collect();
        }
        all
    }

    /// An element, where an axis of one element stands for any number.
    fn spread(&self, index: &[i64]) -> f64 {
        let own = index.iter().zip(&self.extents).map(|(i, n)| if *n == 1 { 0 } else { *i });
        self.at[self.place(&own.collect::<Vec<_>>())]
    }
}

const TYPES: [(i64, DType); 3] = [(0, DType::F32), (2, DType::F16), (9, DType::BF16)];

/// The tensors of a graph by their names.
struct Tensors {
    pointers: BTreeMap<i64, i64>,
    between: BTreeMap<i64, Vec<f64>>,
}

impl Tensors {
    /// Type, name, and the tensor without its numbers.
    fn shape(&self, of: i64) -> (DType, i64, View, bool) {
        let set = finished(of as usize, &[17]);
        let dtype = TYPES.iter().find(|t| t.0 == one(&set, 901)).expect("a type").1;
        assert!(one(&set, 900) == 16);
        let view = View { extents: all(&set, 902), strides: all(&set, 903), at: vec![] };
        (dtype, one(&set, 906), view, one(&set, 907) == 1)
    }

    fn read(&self, of: i64) -> View {
        let (dtype, name, mut view, is_between) = self.shape(of);
        view.at = match is_between {
            true => self.between[&name].clone(),
            false => {
                let far = view.extents.iter().zip(&view.strides).map(|(n, s)| (n - 1) * s);
                let count = far.sum::<i64>() as usize + 1;
                let at = ptr::with_exposed_provenance::<u8>(self.pointers[&name] as usize);
                // SAFETY: the test gives memory as large as its tensors say.
                let bytes = unsafe { std::slice::from_raw_parts(at, count * dtype.size()) };
                Tensor::new(dtype, vec![count], bytes.to_vec().into()).expect("bytes").to_f64()
            }
        };
        view
    }

    fn write(&mut self, of: i64, value: &dyn Fn(&[i64]) -> f64) {
        let (dtype, name, mut view, is_between) = self.shape(of);
        let far = view.extents.iter().zip(&view.strides).map(|(n, s)| (n - 1) * s);
        view.at = vec![0.0; far.sum::<i64>() as usize + 1];
        for index in view.each() {
            let at = view.place(&index);
            view.at[at] = value(&index);
        }
        if is_between {
            assert_eq!(dtype, DType::F32);
            return drop(self.between.insert(name, view.at));
        }
        let to = ptr::with_exposed_provenance_mut::<u8>(self.pointers[&name] as usize);
        for index in view.each() {
            let at = view.place(&index);
            let one = Tensor::from_f64(dtype, vec![1], &view.at[at..=at]);
            // SAFETY: as above.
            unsafe {
                ptr::copy_nonoverlapping(
                    one.bytes().as_ptr(),
                    to.add(at * dtype.size()),
                    dtype.size(),
                );
            }
        }
    }

    fn convolve(&mut self, set: &BTreeMap<i32, Attribute>) {
        let c = finished(one(set, 702) as usize, &[1]);
        let [dilation, stride, after, before] = [102, 103, 104, 105].map(|at| all(&c, at));
        let (x, w) = (self.read(one(set, 704)), self.read(one(set, 703)));
        let scales = [700, 701].map(|at| f32::from_bits(one(set, at) as u32));
        assert_eq!(scales, [1.0, 0.0]);
        let (.., y, _) = self.shape(one(set, 705));
        let [inside, outside] = [w.extents[1], w.extents[0]];
        let groups = x.extents[1] / inside;
        assert_eq!(groups * inside, x.extents[1]);
        assert_eq!((y.extents[0], y.extents[1]), (x.extents[0], outside));
        for i in 0..stride.len() {
            let reach = dilation[i] * (w.extents[2 + i] - 1) + 1;
            let places = (x.extents[2 + i] + before[i] + after[i] - reach) / stride[i] + 1;
            assert_eq!(places, y.extents[2 + i], "places of windows");
        }
        let taps = View { extents: w.extents[2..].to_vec(), strides: vec![], at: vec![] }.each();
        let value = |y: &[i64]| {
            let mut sum = 0.0;
            let first = y[1] / (outside / groups) * inside;
            for (channel, tap) in (0..inside).flat_map(|c| taps.iter().map(move |t| (c, t))) {
                let along = (0..stride.len())
                    .map(|i| y[2 + i] * stride[i] + tap[i] * dilation[i] - before[i]);
                let at: Vec<i64> = [y[0], first + channel].into_iter().chain(along).collect();
                if at.iter().zip(&x.extents).all(|(i, n)| (0..*n).contains(i)) {
                    let of_w = [&[y[1], channel][..], tap].concat();
                    sum += x.at[x.place(&at)] * w.at[w.place(&of_w)];
                }
            }
            sum
        };
        self.write(one(set, 705), &value);
    }

    fn follow(&mut self, set: &BTreeMap<i32, Attribute>) {
        let what = finished(one(set, 750) as usize, &[0]);
        assert_eq!(one(&what, 1), 0, "computed in f32");
        let x = self.read(one(set, 751));
        let other = set.contains_key(&752).then(|| self.read(one(set, 752)));
        match (one(&what, 0), other) {
            (0, Some(b)) => self.write(one(set, 753), &|i| x.spread(i) + b.spread(i)),
            (100, None) => {
                assert_eq!(one(&what, 2), 1, "NaN stays");
                self.write(one(set, 753), &|i| x.spread(i).max(0.0));
            }
            (mode, _) => panic!("mode {mode}"),
        }
    }
}

unsafe extern "C" fn execute(library: Handle, plan: Handle, pack: Handle) -> c_int {
    assert!(matches!(thing(library.addr()), Thing::Library));
    assert_eq!(STATE.with_borrow(|s| s.stream), 5);
    let code = called("execute");
    let (plan, pack) = (finished(plan.addr(), &[5]), finished(pack.addr(), &[16]));
    assert_eq!(one(&plan, 400), library.addr() as i64);
    let configuration = finished(one(&plan, 401) as usize, &[3]);
    let graph = finished(one(&configuration, OWN - 1) as usize, &[15]);
    assert_eq!(one(&pack, 1003), 4096);
    let pointers = all(&pack, 1000).into_iter().zip(all(&pack, 1001)).collect();
    let mut tensors = Tensors { pointers, between: BTreeMap::new() };
    for operation in all(&graph, 801) {
        let Thing::Description(kind, true, set) = thing(operation as usize) else { panic!() };
        match kind {
            10 => tensors.convolve(&set),
            13 => tensors.follow(&set),
            other => panic!("{other} is no operation"),
        }
    }
    STATE.with_borrow_mut(|s| s.executed.push(one(&configuration, OWN)));
    code
}

pub fn table() -> CudnnFunctions {
    CudnnFunctions {
        create,
        destroy,
        set_stream,
        version,
        runtime,
        describe,
        explain,
        make,
        unmake: destroy,
        set,
        get,
        finish,
        execute,
    }
}
