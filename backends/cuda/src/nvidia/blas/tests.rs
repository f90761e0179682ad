//! A library that keeps account of what it gives away, may fail any call, and multiplies on the host as cublasLt.h says.

use super::*;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// What a handle stands for.
#[derive(Clone, Debug, PartialEq)]
enum Thing {
    Library,
    Product(c_int, BTreeMap<c_int, Vec<u8>>),
    Layout(c_int, u64, u64, i64, BTreeMap<c_int, Vec<u8>>),
    Preference(BTreeMap<c_int, Vec<u8>>),
}

#[derive(Default)]
struct State {
    things: BTreeMap<usize, Thing>,
    next: usize,
    calls: Vec<&'static str>,
    fails: Option<usize>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// Counts a call; its code.
fn called(name: &'static str) -> c_int {
    STATE.with_borrow_mut(|s| {
        s.calls.push(name);
        if s.fails == Some(s.calls.len() - 1) { 13 } else { 0 }
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

fn thing(handle: Handle) -> Thing {
    STATE.with_borrow(|s| s.things.get(&handle.addr()).expect("is not given back").clone())
}

unsafe extern "C" fn destroy(handle: Handle) -> c_int {
    let found = STATE.with_borrow_mut(|s| s.things.remove(&handle.addr()));
    assert!(found.is_some(), "given back twice");
    0
}

unsafe extern "C" fn create(to: *mut Handle) -> c_int {
    made("create", to, Thing::Library)
}

unsafe extern "C" fn version() -> usize {
    130_002
}

unsafe extern "C" fn describe(code: c_int) -> *const c_char {
    if code == 13 { c"refused".as_ptr() } else { ptr::null() }
}

unsafe extern "C" fn product_create(to: *mut Handle, compute: c_int, scale: c_int) -> c_int {
    assert!([68, 77].contains(&compute) && scale == 0);
    made("product", to, Thing::Product(compute, BTreeMap::new()))
}

unsafe extern "C" fn layout_create(to: *mut Handle, t: c_int, m: u64, n: u64, ld: i64) -> c_int {
    assert!(ld >= m as i64, "columns overlap");
    made("layout", to, Thing::Layout(t, m, n, ld, BTreeMap::new()))
}

unsafe extern "C" fn preference_create(to: *mut Handle) -> c_int {
    made("preference", to, Thing::Preference(BTreeMap::new()))
}

unsafe extern "C" fn set_any(of: Handle, attribute: c_int, from: *const c_void, n: usize) -> c_int {
    let code = called("set");
    // SAFETY: the caller's pointer leads to so many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), n) }.to_vec();
    STATE.with_borrow_mut(|s| {
        let sizes = match s.things.get_mut(&of.addr()).expect("is not given back") {
            Thing::Product(_, all) => (all, [(3, 4), (4, 4), (7, 4), (8, 8)].to_vec()),
            Thing::Layout(.., all) => (all, [(5, 4), (6, 8)].to_vec()),
            Thing::Preference(all) => (all, [(1, 8), (5, 4), (6, 4), (7, 4), (8, 4)].to_vec()),
            Thing::Library => panic!("has no attributes"),
        };
        assert!(sizes.1.contains(&(attribute, n)), "attribute {attribute} of {n} bytes");
        sizes.0.insert(attribute, bytes);
    });
    code
}

unsafe extern "C" fn heuristic(
    library: Handle,
    product: Handle,
    a: Handle,
    b: Handle,
    c: Handle,
    d: Handle,
    preference: Handle,
    wanted: c_int,
    found: *mut Heuristic,
    count: *mut c_int,
) -> c_int {
    assert!(matches!(thing(library), Thing::Library) && wanted == 4 && c == d);
    assert!(matches!(thing(product), Thing::Product(..)));
    assert!([a, b, d].iter().all(|h| matches!(thing(*h), Thing::Layout(..))));
    let Thing::Preference(all) = thing(preference) else { panic!("no preference") };
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), [1, 5, 6, 7, 8]);
    // SAFETY: the first pointer leads to as many results as wanted, and both are the caller's.
    unsafe {
        for (i, state) in [0, 15, 0].into_iter().enumerate() {
            (*found.add(i)).algorithm = [7 + i as u64; 8];
            (*found.add(i)).state = state;
        }
        *count = 3;
    }
    called("heuristic")
}

/// A number of 4 or 8 bytes among attributes.
fn number(all: &BTreeMap<c_int, Vec<u8>>, attribute: c_int) -> i64 {
    match all.get(&attribute).map(Vec::as_slice) {
        Some(&[a, b, c, d]) => i64::from(i32::from_le_bytes([a, b, c, d])),
        Some(eight) => i64::from_le_bytes(eight.try_into().expect("4 or 8 bytes")),
        None => 0,
    }
}

/// Elements of a matrix in the library's order, with `f32` of the host behind the address.
struct View {
    at: *mut f32,
    rows: u64,
    columns: u64,
    ld: i64,
    apart: i64,
    count: i64,
}

fn view(of: Handle, at: *mut f32) -> View {
    let Thing::Layout(0, rows, columns, ld, all) = thing(of) else { panic!("no layout of f32") };
    let count = number(&all, 5).max(1);
    View { at, rows, columns, ld, apart: number(&all, 6), count }
}

impl View {
    fn place(&self, batch: i64, i: u64, j: u64) -> *mut f32 {
        assert!(i < self.rows && j < self.columns, "outside of a matrix");
        // SAFETY: the test gives memory as large as its layouts say.
        unsafe { self.at.offset((batch * self.apart + j as i64 * self.ld + i as i64) as isize) }
    }
}

unsafe extern "C" fn multiply(
    _library: Handle,
    product: Handle,
    alpha: *const c_void,
    a: *const c_void,
    of_a: Handle,
    b: *const c_void,
    of_b: Handle,
    beta: *const c_void,
    c: *const c_void,
    of_c: Handle,
    d: *mut c_void,
    of_d: Handle,
    algorithm: *const Algorithm,
    workspace: *mut c_void,
    bytes: usize,
    stream: Handle,
) -> c_int {
    assert!(of_c == of_d);
    assert_eq!((workspace.addr(), bytes, stream.addr()), (4096, 64, 5));
    // SAFETY: all pointers are the caller's, and lead to the host.
    let (alpha, beta, algorithm) =
        unsafe { (*alpha.cast::<f32>(), *beta.cast::<f32>(), *algorithm) };
    assert!(alpha == 1.0 && [[7; 8], [9; 8]].contains(&algorithm));
    assert!(beta == if c == d.cast_const() { 0.0 } else { 1.0 });
    let code = called("multiply");
    let Thing::Product(_, all) = thing(product) else { panic!("no product") };
    let [a, b] = [(of_a, a), (of_b, b)]
        .map(|(of, at)| view(of, ptr::with_exposed_provenance_mut(at.addr())));
    let [c, d] = [c.addr(), d.addr()].map(|at| view(of_d, ptr::with_exposed_provenance_mut(at)));
    let [turned_a, turned_b] = [3, 4].map(|attribute| number(&all, attribute) == 1);
    let depth = if turned_a { a.rows } else { a.columns };
    assert!(a.count == d.count && b.count == d.count);
    let bias = ptr::with_exposed_provenance::<f32>(number(&all, 8) as usize);
    for batch in 0..d.count {
        for (i, j) in (0..d.rows).flat_map(|i| (0..d.columns).map(move |j| (i, j))) {
            let mut sum = 0.0;
            for k in 0..depth {
                let (ai, aj) = if turned_a { (k, i) } else { (i, k) };
                let (bi, bj) = if turned_b { (j, k) } else { (k, j) };
                // SAFETY: as `place` says.
                sum += unsafe { *a.place(batch, ai, aj) * *b.place(batch, bi, bj) };
            }
            if beta != 0.0 {
                // SAFETY: as `place` says.
                sum += beta * unsafe { *c.place(batch, i, j) };
            }
            let epilogue = number(&all, 7);
            if epilogue & 4 != 0 {
                // SAFETY: the vector has an element for each of the library's rows.
                sum += unsafe { *bias.add(i as usize) };
            }
            sum = match epilogue & !4 {
                0 => sum,
                2 => sum.max(0.0),
                32 => gelu_tanh(sum),
                other => panic!("epilogue {other}"),
            };
            // SAFETY: as `place` says.
            unsafe { *d.place(batch, i, j) = sum };
        }
    }
    code
}

fn table() -> CublasLtFunctions {
    CublasLtFunctions {
        create,
        destroy,
        version,
        describe,
        product_create,
        product_destroy: destroy,
        product_set: set_any,
        layout_create,
        layout_destroy: destroy,
        layout_set: set_any,
        preference_create,
        preference_destroy: destroy,
        preference_set: set_any,
        heuristic,
        multiply,
    }
}

fn gelu_tanh(x: f32) -> f32 {
    0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh())
}

/// Factors by rows or by columns with gaps behind their lines, and between the products.
fn example(case: u32) -> MatrixProduct {
    let bit = |n: u32| case >> n & 1 == 1;
    let (left, right, count) = (bit(0), bit(1), if bit(2) { 2 } else { 1 });
    let (rows, columns, depth) = (3, 5, 4);
    let matrix = |by_column: bool, [m, n]: [u64; 2], gap: u64| {
        let (length, lines) = if by_column { (m, n) } else { (n, m) };
        let line = length + gap;
        Matrix {
            dtype: DType::F32,
            line,
            by_column,
            apart: if count > 1 { line * lines + 2 } else { 0 },
        }
    };
    MatrixProduct {
        count,
        rows,
        columns,
        depth,
        left: matrix(left, [rows, depth], 1),
        right: matrix(right, [depth, columns], 0),
        result: matrix(false, [rows, columns], 2),
        is_added: bit(4),
        bias: bit(3).then_some(DType::F32),
        activation: [None, Some(Activation::Relu), Some(Activation::GeluTanh)]
            [(case >> 5) as usize % 3],
        in_tf32: bit(5),
    }
}

fn place(m: &Matrix, batch: u64, i: u64, j: u64) -> usize {
    let (line, at) = if m.by_column { (j, i) } else { (i, j) };
    (batch * m.apart + line * m.line + at) as usize
}

/// How many examples there are.
const CASES: u32 = 3 << 5;

/// The result of a product by the library's n-th algorithm, of factors, a bias and a tensor that is added.
fn by_library(
    p: &MatrixProduct,
    [x, y, z, w]: [&[f32]; 4],
    way: usize,
) -> Result<Vec<f32>, Failure> {
    let mut out = vec![f32::NAN; 200];
    let of = |v: &[f32]| Address(v.as_ptr().expose_provenance() as u64);
    let bias = p.bias.map(|_| of(z));
    let to = Address(out.as_mut_ptr().expose_provenance() as u64);
    let added = p.is_added.then(|| of(w));
    let at: Vec<Address> =
        [of(x), of(y)].into_iter().chain(added).chain(bias).chain([to]).collect();
    let blas = Blas::new(table())?;
    assert_eq!(blas.name(), "cuBLASLt 130002");
    let ready = blas.prepare(p, &at, (Address(4096), 64), way)?.expect("is there");
    let Thing::Product(compute, _) = thing(ready.product.handle) else { panic!("no product") };
    assert_eq!(compute, if p.in_tf32 { 77 } else { 68 });
    assert!(blas.prepare(p, &at, (Address(4096), 64), 2)?.is_none(), "the second one is refused");
    blas.multiply(&ready, ptr::without_provenance_mut(5))?;
    Ok(out)
}

#[test]
fn what_the_library_is_asked_for_is_the_product() {
    let numbers =
        |first: u32| (0..200).map(|i| ((i * 7 + first) % 11) as f32 - 5.0).collect::<Vec<_>>();
    let [x, y, z, w] = [1, 2, 3, 4].map(numbers);
    for case in 0..CASES {
        let p = example(case);
        let out = by_library(&p, [&x, &y, &z, &w], case as usize % 2).expect("works");
        for (batch, i, j) in (0..p.count)
            .flat_map(|b| (0..p.rows).flat_map(move |i| (0..p.columns).map(move |j| (b, i, j))))
        {
            let factors = (0..p.depth)
                .map(|k| x[place(&p.left, batch, i, k)] * y[place(&p.right, batch, k, j)]);
            let at = place(&p.result, batch, i, j);
            let added = if p.is_added { w[at] } else { 0.0 };
            let bias = p.bias.map_or(0.0, |_| z[j as usize]);
            let sum = factors.sum::<f32>() + added + bias;
            let expected = match p.activation {
                None => sum,
                Some(Activation::Relu) => sum.max(0.0),
                Some(Activation::GeluTanh) => gelu_tanh(sum),
            };
            assert_eq!(out[at], expected, "{p}: {batch}, {i}, {j}");
        }
        assert!(STATE.with_borrow(|s| s.things.is_empty()), "all is given back");
    }
}

#[test]
fn a_call_that_fails_leaves_nothing_behind() {
    let p = example(0b11111);
    let v = vec![0.0; 200];
    by_library(&p, [&v; 4], 0).expect("works");
    let count = STATE.with_borrow(|s| s.calls.len());
    assert!(count > 15, "{count}");
    for at in 0..count {
        STATE.with_borrow_mut(|s| *s = State { fails: Some(at), ..State::default() });
        let failed = by_library(&p, [&v; 4], 0).expect_err("fails");
        assert_eq!(failed.reason, "refused");
        assert!(STATE.with_borrow(|s| s.things.is_empty()), "call {at}: all is given back");
    }
}

/// Descriptions need no device: the library itself, if there is one, takes them.
#[test]
fn a_real_library_takes_every_attribute() {
    let real = match CublasLtFunctions::open() {
        Ok(real) => real,
        Err(why) => return println!("skipped: {why}"),
    };
    for case in 0..CASES {
        let p = example(case);
        drop(described(&real, &p, p.bias.map(|_| Address(256))).expect("is taken"));
        for (m, shape) in [
            (&p.left, [p.rows, p.depth]),
            (&p.right, [p.depth, p.columns]),
            (&p.result, [p.rows, p.columns]),
        ] {
            drop(layout(&real, m, shape, p.count).expect("is taken"));
        }
    }
    drop(preference(&real, 1 << 20).expect("is taken"));
    assert_eq!(size_of::<Heuristic>(), 96);
}
