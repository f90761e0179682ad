//! Applies kernels for f32 to 16-bit floats: operands are widened, the result is rounded once.

use super::pointwise::convert::{narrow, widen};
use super::runtime::buffer::with_scratch;
use super::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, OperandSpec, TensorView};
use mlc_dsl::ir::DType;
use smallvec::SmallVec;

/// A kernel for f32 and which arguments and results are 16-bit floats.
struct WidenedKernel {
    inner: Box<dyn Kernel>,
    inputs: Vec<Option<DType>>,
    outputs: Vec<Option<DType>>,
}

fn half(dtype: DType) -> Option<DType> {
    dtype.is_half().then_some(dtype)
}

/// The kernel that `factory` prepares if 16-bit floats are taken for f32; `None` if there are none.
pub fn make(factory: KernelFactory, spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let inputs: Vec<Option<DType>> = spec.args.iter().map(|a| half(a.dtype)).collect();
    let outputs: Vec<Option<DType>> = spec.outputs.iter().map(|o| half(o.0)).collect();
    if inputs.iter().chain(&outputs).all(Option::is_none) {
        return None;
    }
    let wide = |d: DType| if half(d).is_some() { DType::F32 } else { d };
    let args: Vec<OperandSpec> = spec
        .args
        .iter()
        .map(|a| {
            let constant = a.constant.clone().filter(|_| half(a.dtype).is_none());
            OperandSpec { dtype: wide(a.dtype), layout: a.layout.clone(), constant }
        })
        .collect();
    let results: Vec<_> = spec.outputs.iter().map(|o| (wide(o.0), o.1.clone())).collect();
    let inner = factory(&KernelSpec { args: &args, outputs: &results, ..*spec })?;
    Some(Box::new(WidenedKernel { inner, inputs, outputs }))
}

impl Kernel for WidenedKernel {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let wide = |d: &Option<DType>, len: usize| if d.is_some() { len / 2 } else { 0 };
        let ins: SmallVec<[usize; 16]> =
            self.inputs.iter().zip(inputs).map(|(d, a)| wide(d, a.bytes.len())).collect();
        let outs: SmallVec<[usize; 16]> =
            self.outputs.iter().zip(&*outputs).map(|(d, o)| wide(d, o.len())).collect();
        let lens = [ins.iter().sum(), outs.iter().sum()];
        with_scratch::<f32, 2, _>(lens, |[read, written]| {
            let mut rest = read;
            let mut views: SmallVec<[TensorView<'_>; 16]> = SmallVec::new();
            for ((d, a), &n) in self.inputs.iter().zip(inputs).zip(&ins) {
                let (part, after) = rest.split_at_mut(n);
                rest = after;
                views.push(match d {
                    Some(d) => {
                        widen(*d, a.bytes, part);
                        let bytes: &[u8] = bytemuck::cast_slice(part);
                        TensorView { dtype: DType::F32, layout: a.layout, bytes }
                    }
                    None => *a,
                });
            }
            let mut rest = &mut *written;
            let mut targets: SmallVec<[&mut [u8]; 16]> = SmallVec::new();
            for ((d, o), &n) in self.outputs.iter().zip(outputs.iter_mut()).zip(&outs) {
                let (part, after) = std::mem::take(&mut rest).split_at_mut(n);
                rest = after;
                targets.push(if d.is_some() { bytemuck::cast_slice_mut(part) } else { o });
            }
            self.inner.run(
                &Context { threads: cx.threads, epilogue: None },
                &views,
                &mut targets,
            )?;
            drop(targets);
            let mut rest = &*written;
            for ((d, o), &n) in self.outputs.iter().zip(outputs).zip(&outs) {
                let (part, after) = rest.split_at(n);
                rest = after;
                if let Some(d) = d {
                    narrow(*d, part, o);
                }
            }
            Ok(())
        })
    }
}
