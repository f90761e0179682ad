//! Products of matrices by cuBLASLt, opened at run time and never linked.
//!
//! Signatures, attributes and their sizes are those of `cublasLt.h` of version 13.0.2, which are the same since 12.0. The library
//! counts matrices by columns: what it is asked for is the transpose of the product, of the transposed factors in turn.

use super::library::{self, Destroy, Failure, Handle, Owned};
use super::search;
use crate::driver::Address;
use crate::matrix_product::{Activation, Matrix, MatrixProduct};
use libloading::Library;
use mlc_dsl::ir::DType;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// Names the library file to open, or the folder that it lies in, in place of a search.
pub const VARIABLE: &str = "MLC_CUBLASLT";

type Set = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> c_int;

/// An algorithm, as the library describes it to itself.
pub type Algorithm = [u64; 8];

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Heuristic {
    pub algorithm: Algorithm,
    pub workspace: usize,
    pub state: c_int,
    pub waves: f32,
    pub reserved: [c_int; 4],
}

/// The library's functions.
pub struct CublasLtFunctions {
    pub create: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub destroy: Destroy,
    pub version: unsafe extern "C" fn() -> usize,
    pub describe: unsafe extern "C" fn(c_int) -> *const c_char,
    pub product_create: unsafe extern "C" fn(*mut Handle, c_int, c_int) -> c_int,
    pub product_destroy: Destroy,
    pub product_set: Set,
    pub layout_create: unsafe extern "C" fn(*mut Handle, c_int, u64, u64, i64) -> c_int,
    pub layout_destroy: Destroy,
    pub layout_set: Set,
    pub preference_create: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub preference_destroy: Destroy,
    pub preference_set: Set,
    /// Of the library, the product, the layouts of both factors, of what is added and of the result, the preference, and how many are wanted.
    pub heuristic: unsafe extern "C" fn(
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        c_int,
        *mut Heuristic,
        *mut c_int,
    ) -> c_int,
    pub multiply: unsafe extern "C" fn(
        Handle,
        Handle,
        *const c_void,
        *const c_void,
        Handle,
        *const c_void,
        Handle,
        *const c_void,
        *const c_void,
        Handle,
        *mut c_void,
        Handle,
        *const Algorithm,
        *mut c_void,
        usize,
        Handle,
    ) -> c_int,
}

impl CublasLtFunctions {
    fn of(library: &Library) -> Result<CublasLtFunctions, libloading::Error> {
        // SAFETY: the types are those of cublasLt.h; its enumerations are 32-bit numbers here, its handles pointers.
        unsafe {
            Ok(CublasLtFunctions {
                create: *library.get(b"cublasLtCreate\0")?,
                destroy: *library.get(b"cublasLtDestroy\0")?,
                version: *library.get(b"cublasLtGetVersion\0")?,
                describe: *library.get(b"cublasLtGetStatusString\0")?,
                product_create: *library.get(b"cublasLtMatmulDescCreate\0")?,
                product_destroy: *library.get(b"cublasLtMatmulDescDestroy\0")?,
                product_set: *library.get(b"cublasLtMatmulDescSetAttribute\0")?,
                layout_create: *library.get(b"cublasLtMatrixLayoutCreate\0")?,
                layout_destroy: *library.get(b"cublasLtMatrixLayoutDestroy\0")?,
                layout_set: *library.get(b"cublasLtMatrixLayoutSetAttribute\0")?,
                preference_create: *library.get(b"cublasLtMatmulPreferenceCreate\0")?,
                preference_destroy: *library.get(b"cublasLtMatmulPreferenceDestroy\0")?,
                preference_set: *library.get(b"cublasLtMatmulPreferenceSetAttribute\0")?,
                heuristic: *library.get(b"cublasLtMatmulAlgoGetHeuristic\0")?,
                multiply: *library.get(b"cublasLtMatmul\0")?,
            })
        }
    }

    /// The functions of the library on this machine, which is never closed; or why there is none.
    pub fn open() -> Result<CublasLtFunctions, String> {
        let driver = library::cuda_version().map(|v| v.0);
        let found = search::open("libcublasLt.so", &[13, 12], VARIABLE, driver)?;
        let table = CublasLtFunctions::of(&found)
            .map_err(|e| format!("libcublasLt.so lacks a function: {e}"))?;
        std::mem::forget(found);
        Ok(table)
    }

    fn done(&self, call: &'static str, code: c_int) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function takes any code and yields a static text.
        let text = unsafe { (self.describe)(code) };
        let reason = match text.is_null() {
            true => format!("error {code}"),
            // SAFETY: the text ends with a NUL and is never freed.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        Err(Failure { call, reason })
    }
}

// cublasLt.h, cublas_api.h, library_types.h.
const COMPUTE_32F: c_int = 68;
const COMPUTE_32F_FAST_TF32: c_int = 77;
const PRODUCT_TRANSPOSED: [c_int; 2] = [3, 4];
const PRODUCT_EPILOGUE: c_int = 7;
const PRODUCT_BIAS_POINTER: c_int = 8;
/// Flags: a bias, and activations.
const EPILOGUE_BIAS: u32 = 4;
const EPILOGUE_RELU: u32 = 2;
const EPILOGUE_GELU_TANH: u32 = 32;
/// Algorithms that are asked for at most.
const MOST: usize = 4;
const OPERATION_TRANSPOSE: i32 = 1;
const LAYOUT_COUNT: c_int = 5;
const LAYOUT_APART: c_int = 6;
const PREFERENCE_WORKSPACE: c_int = 1;
const PREFERENCE_ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
/// Bytes that all operands are aligned to.
const ALIGNED: u32 = 16;

/// `cudaDataType_t`.
fn type_of(dtype: DType) -> Option<c_int> {
    match dtype {
        DType::F32 => Some(0),
        DType::F16 => Some(2),
        DType::BF16 => Some(14),
        _ => None,
    }
}

/// Sets an attribute to a number.
fn set<T>(
    table: &CublasLtFunctions,
    (call, set): (&'static str, Set),
    of: &Owned,
    attribute: c_int,
    value: T,
) -> Result<(), Failure> {
    // SAFETY: the handle is valid, and the library reads as many bytes as said, which are initialised: T is a number.
    table
        .done(call, unsafe { set(of.handle, attribute, (&raw const value).cast(), size_of::<T>()) })
}

/// A product that is ready.
pub struct PreparedGemm {
    product: Owned,
    /// Of the factors as the library takes them, and of the result and what is added.
    layouts: [Owned; 3],
    algorithm: Algorithm,
    /// The factors, and the result.
    at: [Address; 3],
    added: Option<Address>,
    workspace: (Address, u64),
}

/// The library in a context.
pub struct Blas {
    library: Owned,
    table: CublasLtFunctions,
}

// SAFETY: a handle may be used by any thread, one at a time or several; so says the library's manual.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}
// SAFETY: the handles of a product are plain descriptions; whoever uses them has this value.
unsafe impl Send for PreparedGemm {}
// SAFETY: the library only reads them while it multiplies.
unsafe impl Sync for PreparedGemm {}

impl Blas {
    /// The library in the current context.
    pub fn new(table: CublasLtFunctions) -> Result<Blas, Failure> {
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        table.done("cublasLtCreate", unsafe { (table.create)(&mut handle) })?;
        let library = Owned { handle, destroy: table.destroy };
        Ok(Blas { library, table })
    }

    /// The library's name and version.
    pub fn name(&self) -> String {
        // SAFETY: the function takes nothing.
        format!("cuBLASLt {}", unsafe { (self.table.version)() })
    }

    /// Makes a product ready by the library's n-th algorithm, if it has so many, in the context that it was opened in.
    pub fn prepare(
        &self,
        p: &MatrixProduct,
        at: &[Address],
        workspace: (Address, u64),
        way: usize,
    ) -> Result<Option<PreparedGemm>, Failure> {
        let t = &self.table;
        let missing = || Failure { call: "prepare", reason: "operands are missing".into() };
        let mut operands = at.iter().copied();
        let mut next = || operands.next().ok_or_else(missing);
        let (left, right) = (next()?, next()?);
        let added = p.is_added.then(&mut next).transpose()?;
        let bias = p.bias.map(|_| next()).transpose()?;
        let result = next()?;
        let product = described(t, p, bias)?;
        // By columns the right factor is the left one, and rows are columns.
        let layouts = [
            layout(t, &p.right, [p.depth, p.columns], p.count)?,
            layout(t, &p.left, [p.rows, p.depth], p.count)?,
            layout(t, &p.result, [p.rows, p.columns], p.count)?,
        ];
        let all = self.algorithms(&product, &layouts, workspace.1)?;
        let Some(&algorithm) = all.get(way) else { return Ok(None) };
        let at = [right, left, result];
        Ok(Some(PreparedGemm { product, layouts, algorithm, at, added, workspace }))
    }

    /// The algorithms that the library thinks fastest, the best one first; one at least.
    fn algorithms(
        &self,
        product: &Owned,
        [a, b, d]: &[Owned; 3],
        workspace: u64,
    ) -> Result<Vec<Algorithm>, Failure> {
        let t = &self.table;
        let preference = preference(t, workspace)?;
        let (mut found, mut count) = ([Heuristic::default(); MOST], 0);
        let call = "cublasLtMatmulAlgoGetHeuristic";
        // SAFETY: all handles are valid, and both pointers for the call; the library writes as many results as said at most.
        t.done(call, unsafe {
            (t.heuristic)(
                self.library.handle,
                product.handle,
                a.handle,
                b.handle,
                d.handle,
                d.handle,
                preference.handle,
                MOST as c_int,
                found.as_mut_ptr(),
                &mut count,
            )
        })?;
        let found = &found[..usize::try_from(count).unwrap_or(0).min(MOST)];
        let Some(first) = found.first() else {
            return Err(Failure { call, reason: "there is no algorithm for it".into() });
        };
        t.done(call, first.state)?;
        Ok(found.iter().filter(|f| f.state == 0).map(|f| f.algorithm).collect())
    }

    /// Computes a product on a stream of the context.
    pub fn multiply(&self, ready: &PreparedGemm, stream: Handle) -> Result<(), Failure> {
        let (one, beta) = (1.0f32, if ready.added.is_some() { 1.0f32 } else { 0.0 });
        let [a, b, d] = ready.at.map(|at| at.0 as usize);
        let c = ptr::without_provenance(ready.added.map_or(d, |at| at.0 as usize));
        let [a, b] = [a, b].map(ptr::without_provenance::<c_void>);
        let d = ptr::without_provenance_mut::<c_void>(d);
        let beside = ptr::without_provenance_mut(ready.workspace.0.0 as usize);
        let [of_a, of_b, of_d] = &ready.layouts;
        // SAFETY: all handles are valid, the factors' and results' addresses are the device's, and as large as the layouts say;
        // the scales are read during the call, as pointers lead to the host unless said otherwise.
        self.table.done("cublasLtMatmul", unsafe {
            (self.table.multiply)(
                self.library.handle,
                ready.product.handle,
                (&raw const one).cast(),
                a,
                of_a.handle,
                b,
                of_b.handle,
                (&raw const beta).cast(),
                c,
                of_d.handle,
                d,
                of_d.handle,
                &ready.algorithm,
                beside,
                ready.workspace.1 as usize,
                stream,
            )
        })
    }
}

/// A description of what is multiplied, with the vector that is added and the activation.
fn described(
    t: &CublasLtFunctions,
    p: &MatrixProduct,
    bias: Option<Address>,
) -> Result<Owned, Failure> {
    let mut handle = ptr::null_mut();
    let scale = type_of(DType::F32).expect("is known");
    let compute = if p.in_tf32 { COMPUTE_32F_FAST_TF32 } else { COMPUTE_32F };
    // SAFETY: the pointer is valid for the call.
    let code = unsafe { (t.product_create)(&mut handle, compute, scale) };
    t.done("cublasLtMatmulDescCreate", code)?;
    let product = Owned { handle, destroy: t.product_destroy };
    let put = ("cublasLtMatmulDescSetAttribute", t.product_set);
    for (attribute, factor) in PRODUCT_TRANSPOSED.into_iter().zip([&p.right, &p.left]) {
        if factor.by_column {
            set(t, put, &product, attribute, OPERATION_TRANSPOSE)?;
        }
    }
    let activation = p.activation.map_or(0, |a| match a {
        Activation::Relu => EPILOGUE_RELU,
        Activation::GeluTanh => EPILOGUE_GELU_TANH,
    });
    let epilogue = activation | bias.map_or(0, |_| EPILOGUE_BIAS);
    if epilogue != 0 {
        set(t, put, &product, PRODUCT_EPILOGUE, epilogue)?;
    }
    if let Some(bias) = bias {
        set(t, put, &product, PRODUCT_BIAS_POINTER, bias.0)?;
    }
    Ok(product)
}

/// What is asked of an algorithm.
fn preference(t: &CublasLtFunctions, workspace: u64) -> Result<Owned, Failure> {
    let mut handle = ptr::null_mut();
    let call = "cublasLtMatmulPreferenceCreate";
    // SAFETY: the pointer is valid for the call.
    t.done(call, unsafe { (t.preference_create)(&mut handle) })?;
    let preference = Owned { handle, destroy: t.preference_destroy };
    let put = ("cublasLtMatmulPreferenceSetAttribute", t.preference_set);
    set(t, put, &preference, PREFERENCE_WORKSPACE, workspace)?;
    for attribute in PREFERENCE_ALIGNMENTS {
        set(t, put, &preference, attribute, ALIGNED)?;
    }
    Ok(preference)
}

/// The layout of a matrix: what lies side by side is one of the library's columns.
fn layout(
    t: &CublasLtFunctions,
    m: &Matrix,
    [rows, columns]: [u64; 2],
    count: u64,
) -> Result<Owned, Failure> {
    let (across, lines) = if m.by_column { (rows, columns) } else { (columns, rows) };
    let call = "cublasLtMatrixLayoutCreate";
    let other = || Failure { call, reason: format!("there is no type for {}", m.dtype) };
    let dtype = type_of(m.dtype).ok_or_else(other)?;
    let mut handle = ptr::null_mut();
    // SAFETY: the pointer is valid for the call.
    let code = unsafe { (t.layout_create)(&mut handle, dtype, across, lines, m.line as i64) };
    t.done(call, code)?;
    let layout = Owned { handle, destroy: t.layout_destroy };
    if count > 1 {
        let put = ("cublasLtMatrixLayoutSetAttribute", t.layout_set);
        set(t, put, &layout, LAYOUT_COUNT, count as i32)?;
        set(t, put, &layout, LAYOUT_APART, m.apart as i64)?;
    }
    Ok(layout)
}

#[cfg(test)]
mod tests;
