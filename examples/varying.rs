//! Runs a model at extents that vary: `cargo run --release --example varying -- MODEL.onnx THREADS [--as-read] [--bind | --callers N]`, then a line for
//! each run such as `input_ids=1,7 attention_mask=1,7`. Answers each by a line: seconds, the bytes of memory that the process has, the sum of
//! all numbers of the outputs.
//!
//! With `--bind`, outputs that are an input and more after it, as those of a cache are, stay where they are and are the next run's inputs: what
//! a line says of these counts in the first one only, and they are not in the sum. With `--callers`, so many threads run a line over and over
//! for two seconds; the answer begins with the seconds of a run, all threads together.

use mlc_rewrite::ndarray::{ArrayD, IxDyn};
use mlc_rewrite::{AnyArray, Binding, DType, Device, Error, Model, Optimizer, Outputs, Session};
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// An array that any runtime can be given: ones of integers and truth values, sixteenths of real numbers.
pub fn filled(dtype: DType, shape: &[usize]) -> AnyArray {
    let shape = IxDyn(shape);
    match dtype {
        DType::I64 => ArrayD::<i64>::ones(shape).into(),
        DType::I32 => ArrayD::<i32>::ones(shape).into(),
        DType::Bool => ArrayD::from_elem(shape, true).into(),
        _ => {
            let mut at = 0u16;
            let next = || {
                at = (at + 1) % 17;
                (f32::from(at) - 8.0) / 16.0
            };
            ArrayD::<f32>::from_shape_simple_fn(shape, next).into()
        }
    }
}

/// The inputs that a line asks for: `NAME=EXTENTS` each.
///
/// # Errors
/// The model has no input of a name, or an extent is no number; says which.
pub fn asked(session: &Session, line: &str) -> Result<Vec<(String, AnyArray)>, String> {
    let one = |word: &str| {
        let wrong = || format!("`{word}` is not NAME=EXTENTS of an input");
        let (name, extents) = word.split_once('=').ok_or_else(wrong)?;
        let input = session.inputs().iter().find(|i| i.name() == name).ok_or_else(wrong)?;
        let extents = extents.split(',').filter(|n| !n.is_empty()).map(str::parse);
        let shape: Vec<usize> = extents.collect::<Result<_, _>>().map_err(|_| wrong())?;
        Ok((name.to_string(), filled(input.dtype(), &shape)))
    };
    line.split_whitespace().map(one).collect()
}

/// Runs once; the seconds and the sum of the outputs.
///
/// # Errors
/// The inputs do not fit the model, or a run fails.
pub fn run(session: &Session, inputs: &[(String, AnyArray)]) -> Result<(f64, f64), Error> {
    let start = Instant::now();
    let outputs = session.run(inputs.iter().map(|(name, array)| (name, array)))?;
    Ok((start.elapsed().as_secs_f64(), sum(&outputs)))
}

/// The sum of all numbers of outputs.
fn sum(outputs: &Outputs) -> f64 {
    let floats = outputs.iter().filter_map(|(name, _)| outputs.array::<f32>(name).ok());
    floats.map(|a| a.iter().map(|v| f64::from(*v)).sum::<f64>()).sum()
}

/// One run of a stream; inputs that are `fed` back are taken in the first one.
///
/// # Errors
/// The inputs do not fit the model, or a run fails.
pub fn step(
    stream: &mut Binding<'_>,
    fed: &[String],
    mut inputs: Vec<(String, AnyArray)>,
) -> Result<(f64, f64), Error> {
    let mut given = vec![];
    for (name, array) in inputs.drain(..) {
        if !fed.contains(&name) || stream.shape(&name)?.is_none() {
            given.push((name, array));
        }
    }
    let start = Instant::now();
    let outputs = stream.run(given)?;
    Ok((start.elapsed().as_secs_f64(), sum(&outputs)))
}

/// Runs from several threads for two seconds; seconds of a run, all together, and the sum of the outputs.
///
/// # Errors
/// The inputs do not fit the model, or a run fails.
pub fn at_once(
    session: &Session,
    inputs: &[(String, AnyArray)],
    callers: usize,
) -> Result<(f64, f64), Error> {
    let (_, sum) = run(session, inputs)?;
    let start = Instant::now();
    let caller = || {
        let mut runs = 0;
        while start.elapsed() < Duration::from_secs(2) {
            run(session, inputs)?;
            runs += 1;
        }
        Ok(runs)
    };
    let runs = std::thread::scope(|scope| {
        let all: Vec<_> = (0..callers).map(|_| scope.spawn(caller)).collect();
        let joined = all.into_iter().map(|t| t.join().expect("a caller does not panic"));
        joined.sum::<Result<usize, Error>>()
    })?;
    Ok((start.elapsed().as_secs_f64() / runs as f64, sum))
}

/// Bytes of memory of this process; none where the system does not say.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split_whitespace().nth(1).and_then(|n| n.parse().ok()).map_or(0, |n: u64| n * 4096)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, threads, more @ ..] = args.as_slice() else {
        return Err("give MODEL.onnx, THREADS and perhaps --as-read, --bind or --callers N".into());
    };
    let threads = threads.parse()?;
    let has = |flag: &str| more.iter().position(|m| m == flag);
    let model = Model::read(path)?;
    let session = match has("--as-read") {
        Some(_) => model.session_on(&Device::cpu().threads(threads))?,
        None => Optimizer::new().threads(threads).optimize(&model)?.session()?,
    };
    let callers = has("--callers").and_then(|i| more.get(i + 1)).map(|n| n.parse()).transpose()?;
    let mut stream = session.bind();
    let fed = if has("--bind").is_some() { stream.feed_back_appended() } else { vec![] };
    let fed: Vec<String> = fed.into_iter().map(|(_, input)| input).collect();
    println!("ready {}", resident());
    for line in std::io::stdin().lock().lines() {
        let inputs = asked(&session, &line?)?;
        let (seconds, sum) = match callers {
            Some(callers) => at_once(&session, &inputs, callers)?,
            None if fed.is_empty() => run(&session, &inputs)?,
            None => step(&mut stream, &fed, inputs)?,
        };
        println!("{seconds} {} {sum}", resident());
        std::io::stdout().flush()?;
    }
    Ok(())
}
