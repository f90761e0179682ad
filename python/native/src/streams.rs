//! Streams of runs: bindings, which hold what stays from run to run.

use crate::arrays::{Taking, given, taken};
use crate::errors::{raised, refused};
use crate::handles::{Held, held, hold};
use crate::module::Named;
use crate::numpy::NumPyArray;
use crate::outputs::Place;
use crate::sessions::{inputs, named};
use mlc_rewrite::{Binding, Error, ErrorKind, Session};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

pub const FUNCTIONS: &[Named] = &[
    (c"session_appended", appended),
    (c"stream_of", of),
    (c"stream_clone", clone),
    (c"stream_feed_back", feed_back),
    (c"stream_feed_back_appended", feed_back_appended),
    (c"stream_limit", limit),
    (c"stream_set", set),
    (c"stream_get", get),
    (c"stream_shape", shape),
    (c"stream_reset", reset),
    (c"stream_run", run),
];

/// A binding and the session that it is one of.
pub struct Stream {
    /// Goes before its session.
    binding: Mutex<Binding<'static>>,
    session: Arc<Session>,
}

impl Held for Stream {
    const NAME: &CStr = c"mlc_rewrite.stream";
}

/// A binding of a session that outlives it.
fn lasting(session: &Arc<Session>, binding: Binding<'_>) -> Stream {
    // SAFETY: only the lifetime changes. The session lies where it is as long as the stream holds it, and the binding is dropped first.
    let binding = unsafe { std::mem::transmute::<Binding<'_>, Binding<'static>>(binding) };
    Stream { binding: Mutex::new(binding), session: session.clone() }
}

fn stream(args: &Bound<'_, PyTuple>) -> PyResult<Arc<Stream>> {
    held::<Stream>(&args.get_item(0)?)
}

fn none<'py>(py: Python<'py>, done: Result<(), Error>) -> PyResult<Bound<'py, PyAny>> {
    done.map_err(|e| raised(py, &e))?;
    Ok(py.None().into_bound(py))
}

impl Stream {
    /// Does something with the binding, which no run uses meanwhile.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Binding<'static>) -> R + Send,
    ) -> PyResult<R> {
        let mut held = match self.binding.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let message = "another thread uses this stream";
                let help = "give each thread a stream of its own: `session.bind()`, or a copy";
                return Err(refused(py, ErrorKind::Setting, None, message, help));
            }
        };
        let binding = &mut *held;
        Ok(py.detach(move || f(binding)))
    }
}

/// `(session) -> list` of pairs: an output that is an input and more after it, and that input.
fn appended<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let session = held::<Session>(&args.get_item(0)?)?;
    Ok(session.appended().into_pyobject(args.py())?.into_any())
}

/// `(session) -> stream`
fn of<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let session = held::<Session>(&args.get_item(0)?)?;
    hold(args.py(), lasting(&session, session.bind()))
}

/// `(stream) -> stream` that goes on from the same state.
fn clone<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let stream = stream(args)?;
    let binding = stream.binding.lock().unwrap_or_else(PoisonError::into_inner).clone();
    hold(args.py(), lasting(&stream.session, binding))
}

/// `(stream, output, input) -> None`
fn feed_back<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (_, output, input): (Bound<'_, PyAny>, String, String) = args.extract()?;
    let done = stream(args)?.with(args.py(), |b| b.feed_back(&output, &input))?;
    none(args.py(), done)
}

/// `(stream) -> list` of the pairs that are fed back now.
fn feed_back_appended<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let pairs = stream(args)?.with(args.py(), Binding::feed_back_appended)?;
    Ok(pairs.into_pyobject(args.py())?.into_any())
}

/// `(stream, input, extent) -> None`
fn limit<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (_, input, extent): (Bound<'_, PyAny>, String, usize) = args.extract()?;
    let done = stream(args)?.with(args.py(), |b| b.limit(&input, extent))?;
    none(args.py(), done)
}

/// `(stream, input, array) -> None`
fn set<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (_, input, array): (Bound<'_, PyAny>, String, Bound<'_, PyAny>) = args.extract()?;
    let stream = stream(args)?;
    let info = stream.session.inputs().iter().find(|i| i.name() == input);
    let array =
        taken(&array, &format!("input `{input}`"), info.map(|i| i.dtype()), Taking::Copied)?;
    let done = stream.with(args.py(), |b| b.set(&input, array))?;
    none(args.py(), done)
}

/// `(stream, input) -> array or None`
fn get<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let py = args.py();
    let (_, input): (Bound<'_, PyAny>, String) = args.extract()?;
    let found = stream(args)?.with(py, |b| b.get(&input))?;
    match found.map_err(|e| raised(py, &e))? {
        Some(array) => given(py, &array),
        None => Ok(py.None().into_bound(py)),
    }
}

/// `(stream, input) -> extents or None`
fn shape<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let py = args.py();
    let (_, input): (Bound<'_, PyAny>, String) = args.extract()?;
    let found = stream(args)?.with(py, |b| b.shape(&input).map(|s| s.map(<[usize]>::to_vec)))?;
    Ok(found.map_err(|e| raised(py, &e))?.into_pyobject(py)?.into_any())
}

/// `(stream) -> None`
fn reset<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    stream(args)?.with(args.py(), Binding::reset)?;
    none(args.py(), Ok(()))
}

/// `(stream, feed, places) -> dict` of the outputs that are neither fed back nor written to `places`.
fn run<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let py = args.py();
    let (_, feed, into): (Bound<'_, PyAny>, Bound<'_, PyDict>, Bound<'_, PyDict>) =
        args.extract()?;
    let stream = stream(args)?;
    // What a stream is given is what it may hand on to its next run.
    let inputs = inputs(&stream.session, &feed, Taking::Copied)?;
    let mut places = Vec::with_capacity(into.len());
    for (name, array) in into.iter() {
        let name: String = name.extract()?;
        let place = NumPyArray::of(&array)?.and_then(|a| Place::of(&a));
        let place = place.ok_or_else(|| unwritable(py, &name))?;
        places.push((name, place));
    }
    overlapping(py, &places)?;
    let done = stream.with(py, |b| {
        // SAFETY: the arguments keep the arrays, no two of which share memory; that nobody else writes to them is said to the caller.
        let lent = places.iter_mut().map(|(n, p)| Ok((&*n, unsafe { p.lent() }?)));
        let lent = lent.collect::<Result<Vec<_>, Error>>()?;
        b.run_into(inputs, lent)
    })?;
    named(py, &done.map_err(|e| raised(py, &e))?)
}

fn unwritable(py: Python<'_>, name: &str) -> PyErr {
    let place = format!("output `{name}`");
    let message = format!("what is given for {place} cannot be written to");
    let help =
        "give an array of NumPy of the output's type that is writeable, contiguous and aligned";
    refused(py, ErrorKind::Output, Some(&place), &message, help)
}

fn overlapping(py: Python<'_>, places: &[(String, Place)]) -> PyResult<()> {
    for (i, (name, place)) in places.iter().enumerate() {
        if places[..i].iter().any(|(_, other)| place.overlaps(other)) {
            let at = format!("output `{name}`");
            let message = format!("the array for {at} shares its memory with another");
            let help = "give each output memory of its own";
            return Err(refused(py, ErrorKind::Output, Some(&at), &message, help));
        }
    }
    Ok(())
}
