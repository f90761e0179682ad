//! The runtimes: each loads a model for given inputs, and is then run as often as one likes.

use anyhow::{Result, anyhow, bail};
use mlc_dsl::ir::{DType, Tensor};
use rten_tensor::{AsView, Layout};
use std::path::Path;
use std::sync::Arc;
use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::prelude::*;

/// Inputs with the names of the model's; `None` for what is not given.
pub type Inputs<'a> = &'a [(String, Option<Tensor>)];

/// Runs the model; how outputs, in the order of the model's, are read is left to whoever wants them.
pub type Loaded = Box<dyn FnMut() -> Result<Outputs>>;

/// Reads the outputs of a run.
pub type Outputs = Box<dyn FnOnce() -> Result<Vec<Tensor>>>;

/// Loads a model to be run on so many threads.
pub type Load = fn(&Path, Inputs<'_>, usize) -> Result<Loaded>;

/// A runtime by its name.
pub struct Runtime {
    pub name: &'static str,
    pub version: &'static str,
    pub load: Load,
}

/// Every runtime; versions are those of the manifest.
pub const ALL: [Runtime; 2] = [
    Runtime { name: "tract", version: "0.23", load: tract },
    Runtime { name: "rten", version: "0.27", load: rten },
];

/// `$m!(rust type, variant of DType)` for the numbers whose bytes both sides store alike.
macro_rules! numbers {
    ($m:ident) => {
        $m!(f16, F16);
        $m!(f32, F32);
        $m!(f64, F64);
        $m!(i8, I8);
        $m!(i16, I16);
        $m!(i32, I32);
        $m!(i64, I64);
        $m!(u8, U8);
        $m!(u16, U16);
        $m!(u32, U32);
        $m!(u64, U64);
        $m!(bool, Bool);
    };
}

fn to_tract(t: &Tensor) -> Result<tract_onnx::prelude::Tensor> {
    macro_rules! convert {
        ($rust:ty, $dtype:ident) => {
            if t.dtype() == DType::$dtype {
                let (dt, shape) = (<$rust>::datum_type(), t.shape());
                return Ok(unsafe {
                    tract_onnx::prelude::Tensor::from_raw_dt(dt, shape, t.bytes())?
                });
            }
        };
    }
    numbers!(convert);
    if t.dtype() == DType::Str {
        let texts: Vec<String> = (0..t.len()).map(|i| t.get_str(i).to_string()).collect();
        return Ok(tract_ndarray::ArrayD::from_shape_vec(t.shape(), texts)?.into());
    }
    bail!("elements of type {}", t.dtype())
}

fn of_tract(t: &tract_onnx::prelude::Tensor) -> Result<Tensor> {
    let dt = t.datum_type();
    macro_rules! convert {
        ($rust:ty, $dtype:ident) => {
            if dt == <$rust>::datum_type() {
                let bytes = t.as_bytes().to_vec();
                return Ok(Tensor::new(DType::$dtype, t.shape().to_vec(), bytes.into())?);
            }
        };
    }
    numbers!(convert);
    if dt == String::datum_type() {
        let view = t.to_plain_array_view::<String>()?;
        return Ok(Tensor::from_strings(t.shape().to_vec(), view.iter())?);
    }
    if dt == TDim::datum_type() {
        return of_tract(&*t.cast_to::<i64>()?);
    }
    bail!("elements of type {dt:?}")
}

fn tract(path: &Path, inputs: Inputs<'_>, threads: usize) -> Result<Loaded> {
    set_default_executor(match threads {
        0 | 1 => Executor::SingleThread,
        more => Executor::multithread(more),
    });
    let mut model = tract_onnx::onnx().with_ignore_output_shapes(true).model_for_path(path)?;
    let mut given: TVec<TValue> = tvec!();
    let mut place = 0;
    for (name, t) in inputs {
        let Some(t) = t else { continue };
        let t = to_tract(t)?;
        // Inputs that have a value in the model are none of tract's.
        let Some(at) =
            (0..model.inputs.len()).find(|&i| model.node(model.inputs[i].node).name == *name)
        else {
            continue;
        };
        anyhow::ensure!(at == place, "the inputs are in another order");
        place += 1;
        model.set_input_fact(at, InferenceFact::dt_shape(t.datum_type(), t.shape()))?;
        given.push(t.into());
    }
    let ready = model.into_optimized()?.into_runnable()?;
    Ok(Box::new(move || {
        let outputs = ready.run(given.clone())?;
        Ok(Box::new(move || outputs.iter().map(|t| of_tract(t)).collect()))
    }))
}

fn to_rten(t: &Tensor) -> Result<rten::Value> {
    let shape = t.shape();
    let fail = |e| anyhow!("{e}");
    let all = || 0..t.len();
    match t.dtype() {
        DType::F32 | DType::F64 | DType::F16 | DType::BF16 => {
            let v: Vec<f32> = all().map(|i| t.get_f64(i) as f32).collect();
            rten::Value::from_shape(shape, v).map_err(|e| fail(e.to_string()))
        }
        DType::I32 | DType::I64 | DType::Bool => {
            let v: Vec<i32> = all()
                .map(|i| t.get_i64(i).clamp(i32::MIN.into(), i32::MAX.into()) as i32)
                .collect();
            rten::Value::from_shape(shape, v).map_err(|e| fail(e.to_string()))
        }
        DType::I8 => {
            let v: Vec<i8> = all().map(|i| t.get_i64(i) as i8).collect();
            rten::Value::from_shape(shape, v).map_err(|e| fail(e.to_string()))
        }
        DType::U8 => {
            let v: Vec<u8> = all().map(|i| t.get_i64(i) as u8).collect();
            rten::Value::from_shape(shape, v).map_err(|e| fail(e.to_string()))
        }
        other => bail!("elements of type {other}"),
    }
}

fn of_rten(v: rten::Value) -> Result<Tensor> {
    Ok(match v {
        rten::Value::FloatTensor(t) => Tensor::from_f32(t.shape().to_vec(), t.to_vec()),
        rten::Value::Int32Tensor(t) => {
            let v: Vec<i64> = t.to_vec().into_iter().map(i64::from).collect();
            Tensor::from_i64(DType::I32, t.shape().to_vec(), &v)
        }
        rten::Value::Int8Tensor(t) => {
            let v: Vec<i64> = t.to_vec().into_iter().map(i64::from).collect();
            Tensor::from_i64(DType::I8, t.shape().to_vec(), &v)
        }
        rten::Value::UInt8Tensor(t) => {
            let v: Vec<i64> = t.to_vec().into_iter().map(i64::from).collect();
            Tensor::from_i64(DType::U8, t.shape().to_vec(), &v)
        }
        _ => bail!("it is a sequence"),
    })
}

fn rten(path: &Path, inputs: Inputs<'_>, threads: usize) -> Result<Loaded> {
    let model = rten::ModelOptions::with_all_ops().prepack_weights(true).load_file(path)?;
    let mut given = vec![];
    for (name, t) in inputs {
        if let (Some(t), Some(id)) = (t, model.find_node(name)) {
            given.push((id, to_rten(t)?));
        }
    }
    let pool = Arc::new(rten::ThreadPool::with_num_threads(threads));
    let options = rten::RunOptions::default().with_thread_pool(Some(pool));
    Ok(Box::new(move || {
        let values = given.iter().map(|(id, v)| (*id, v.into())).collect();
        let outputs = model.run(values, model.output_ids(), Some(options.clone()))?;
        Ok(Box::new(move || outputs.into_iter().map(of_rten).collect()))
    }))
}
