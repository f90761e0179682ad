//! A CUDA device that a C++ compiler and this machine's processor stand in for.

use mlc_cuda::{
    Activation, Address, Code, Convolution, ConvolutionTensor, Driver, DriverError, Invocation,
    Library, LibraryKind, LibraryOp, Matrix, MatrixProduct, Module, Prepared, Stream,
};
use mlc_cuda_emulator::{Effort, EmulatorError, Region, Unit};
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::library::{Callable, DTypePattern};
use std::collections::HashMap;
use std::sync::Mutex;

/// True for an operator for which no code can be generated: one of texts, or one that decodes files of images.
pub fn has_no_code(operator: &Callable) -> bool {
    let inputs = operator.inputs.iter().map(|i| &i.ty.dtype);
    let mut types = inputs.chain(operator.outputs.iter().map(|o| &o.1.dtype));
    types.any(|t| matches!(t, DTypePattern::Fixed(DType::Str)))
        || ["image_pixels", "image_size"].contains(&&*operator.name)
}

/// The emulator behind the interface of a device. Memory that is not in use is never read or written.
#[derive(Default)]
pub struct Emulated {
    effort: Effort,
    /// What it has a library for, which is always faster, and the fastest one for what comes last here.
    has_library: Vec<LibraryKind>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By address; of 16 bytes, so that every access of 16 bytes is aligned.
    memory: HashMap<u64, Vec<u128>>,
    units: Vec<Option<Unit>>,
    /// The functions that were ever loaded, in order: their names and texts.
    loaded: Vec<(String, String)>,
    products: HashMap<u64, (LibraryOp, Vec<Address>)>,
    multiplications: usize,
    prepared: u64,
    together: usize,
    /// Whether libraries have 0 where a rectified element is NaN.
    loses_nan: bool,
}

fn failed(call: &'static str, reason: impl ToString) -> DriverError {
    DriverError::Call { call, reason: reason.to_string() }
}

impl Emulated {
    /// A device for long runs: its compiler optimises.
    pub fn for_long_runs() -> Emulated {
        Emulated { effort: Effort::High, ..Emulated::default() }
    }

    /// A device with libraries, which compute what is described as it is described.
    pub fn with_library(of: &[LibraryKind]) -> Emulated {
        Emulated { has_library: of.to_vec(), ..Emulated::default() }
    }

    /// A device with libraries whose rectified elements are 0 where they are NaN.
    pub fn with_library_that_loses_nan(of: &[LibraryKind]) -> Emulated {
        let device = Emulated::with_library(of);
        device.with(|s| s.loses_nan = true);
        device
    }

    /// How often libraries have computed something.
    pub fn multiplications(&self) -> usize {
        self.with(|s| s.multiplications)
    }

    /// How many launches had blocks that wait for each other.
    pub fn together(&self) -> usize {
        self.with(|s| s.together)
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// The functions that were loaded since this was asked for: their names and texts.
    pub fn loaded(&self) -> Vec<(String, String)> {
        self.with(|s| std::mem::take(&mut s.loaded))
    }

    /// How many allocations, modules and products are left.
    pub fn left(&self) -> usize {
        self.with(|s| s.memory.len() + s.units.iter().flatten().count() + s.products.len())
    }
}

impl State {
    /// The memory at an address, if so many bytes are allocated there.
    fn at(&mut self, at: Address, bytes: u64) -> Result<*mut u8, DriverError> {
        let inside = |(base, of): (&u64, &Vec<u128>)| {
            *base <= at.0 && at.0 + bytes <= base + 16 * of.len() as u64
        };
        match self.memory.iter().any(inside) {
            true => Ok(at.0 as *mut u8),
            false => Err(failed("memory", format!("{bytes} bytes at {at:?} are not allocated"))),
        }
    }
}

impl State {
    /// The elements of a matrix of a product, of which so many lines have so many elements.
    fn matrices(
        &mut self,
        m: &Matrix,
        [lines, length]: [u64; 2],
        count: u64,
        at: Address,
    ) -> Result<Vec<f64>, DriverError> {
        let elements = (count - 1) * m.apart + (lines - 1) * m.line + length;
        self.elements(m.dtype, elements, at)
    }

    fn elements(&mut self, dtype: DType, count: u64, at: Address) -> Result<Vec<f64>, DriverError> {
        let bytes = count as usize * dtype.size();
        let from = self.at(at, bytes as u64)?;
        // SAFETY: `at` found so many bytes there, and the lock keeps them.
        let bytes = unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec();
        let tensor = Tensor::new(dtype, vec![count as usize], bytes.into());
        Ok(tensor.map_err(|e| failed("multiply", e))?.to_f64())
    }

    fn multiply(&mut self, p: &MatrixProduct, at: &[Address]) -> Result<(), DriverError> {
        let sides = |m: &Matrix, [rows, columns]: [u64; 2]| {
            if m.by_column { [columns, rows] } else { [rows, columns] }
        };
        let [of_left, of_right] =
            [sides(&p.left, [p.rows, p.depth]), sides(&p.right, [p.depth, p.columns])];
        let x = self.matrices(&p.left, of_left, p.count, at[0])?;
        let y = self.matrices(&p.right, of_right, p.count, at[1])?;
        let mut rest = at[2..].iter();
        let mut next = || *rest.next().expect("is given");
        let of_result = [p.rows, p.columns];
        let added = p.is_added.then(&mut next);
        let added = added.map(|at| self.matrices(&p.result, of_result, p.count, at)).transpose()?;
        let bias = p.bias.map(|d| (d, next()));
        let bias = bias.map(|(d, at)| self.elements(d, p.columns, at)).transpose()?;
        let place = |m: &Matrix, batch: u64, i: u64, j: u64| {
            let (line, within) = if m.by_column { (j, i) } else { (i, j) };
            (batch * m.apart + line * m.line + within) as usize
        };
        let (size, loses_nan) = (p.result.dtype.size(), self.loses_nan);
        for (batch, i) in (0..p.count).flat_map(|b| (0..p.rows).map(move |i| (b, i))) {
            let one = |j: u64| {
                let factors = (0..p.depth)
                    .map(|k| x[place(&p.left, batch, i, k)] * y[place(&p.right, batch, k, j)]);
                let added = added.as_ref().map_or(0.0, |a| a[place(&p.result, batch, i, j)]);
                let bias = bias.as_ref().map_or(0.0, |b| b[j as usize]);
                let sum = factors.sum::<f64>() + added + bias;
                match p.activation {
                    Some(Activation::Relu) if loses_nan => sum.max(0.0),
                    activation => activated(activation, sum),
                }
            };
            let row: Vec<f64> = (0..p.columns).map(one).collect();
            let row = Tensor::from_f64(p.result.dtype, vec![row.len()], &row);
            let first = place(&p.result, batch, i, 0) as u64 * size as u64;
            let to = self.at(at[at.len() - 1].after(first), row.bytes().len() as u64)?;
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(row.bytes().as_ptr(), to, row.bytes().len()) };
        }
        self.multiplications += 1;
        Ok(())
    }
}

/// What follows a product.
fn activated(activation: Option<Activation>, x: f64) -> f64 {
    match activation {
        None => x,
        Some(Activation::Relu) => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Some(Activation::GeluTanh) => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            x / 2.0 * (1.0 + inner.tanh())
        }
    }
}

impl State {
    /// The elements of a tensor of a convolution, and where one is by its place along axes: images, channels, three axes of windows.
    fn part(
        &mut self,
        c: &Convolution,
        part: ConvolutionTensor,
        at: Address,
    ) -> Result<(Vec<f64>, [u64; 5]), DriverError> {
        let elements = self.elements(c.dtype, c.extents(part).iter().product(), at)?;
        Ok((elements, five(&c.strides(part), 0)))
    }

    fn convolve(&mut self, c: &Convolution, at: &[Address]) -> Result<(), DriverError> {
        let (x, of_x) = self.part(c, ConvolutionTensor::Image, at[0])?;
        let (w, of_w) = self.part(c, ConvolutionTensor::Weights, at[1])?;
        let mut rest = at[2..].iter();
        let mut next = || *rest.next().expect("is given");
        let z = c
            .is_added
            .then(&mut next)
            .map(|a| self.part(c, ConvolutionTensor::Result, a))
            .transpose()?;
        let b = c
            .has_bias
            .then(&mut next)
            .map(|a| self.part(c, ConvolutionTensor::Bias, a))
            .transpose()?;
        let to = next();
        let [places, taps, image] =
            [ConvolutionTensor::Result, ConvolutionTensor::Weights, ConvolutionTensor::Image]
                .map(|p| five(&c.extents(p), 1));
        let of_y = five(&c.strides(ConvolutionTensor::Result), 0);
        let along = |f: &dyn Fn(&mlc_cuda::WindowAxis) -> u64, other: u64| -> [u64; 3] {
            let all: Vec<u64> = c.windows.iter().map(f).collect();
            std::array::from_fn(|i| (i + all.len()).checked_sub(3).map_or(other, |i| all[i]))
        };
        let stride = along(&|w| w.stride, 1);
        let dilation = along(&|w| w.dilation, 1);
        let low = along(&|w| w.padding[0], 0);
        let [inside, outside] = c.channels;
        let place = |strides: &[u64; 5], index: [u64; 5]| {
            strides.iter().zip(index).map(|(s, i)| s * i).sum::<u64>() as usize
        };
        let mut y = vec![f64::NAN; places.iter().product::<u64>() as usize];
        for o in indices(places) {
            let mut sum = 0.0;
            for t in indices([1, inside, taps[2], taps[3], taps[4]]) {
                let from: [Option<u64>; 3] = std::array::from_fn(|i| {
                    let at = (o[2 + i] * stride[i] + t[2 + i] * dilation[i]).checked_sub(low[i]);
                    at.filter(|at| *at < image[2 + i])
                });
                if let [Some(d), Some(h), Some(v)] = from {
                    let of_image = [o[0], o[1] / outside * inside + t[1], d, h, v];
                    let of_weights = [o[1], t[1], t[2], t[3], t[4]];
                    sum += x[place(&of_x, of_image)] * w[place(&of_w, of_weights)];
                }
            }
            let at = place(&of_y, o);
            sum += z.as_ref().map_or(0.0, |(z, _)| z[at]);
            sum += b.as_ref().map_or(0.0, |(b, _)| b[o[1] as usize]);
            y[at] = if c.is_rectified && sum < 0.0 { 0.0 } else { sum };
        }
        let y = Tensor::from_f64(c.dtype, vec![y.len()], &y);
        let to = self.at(to, y.bytes().len() as u64)?;
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(y.bytes().as_ptr(), to, y.bytes().len()) };
        self.multiplications += 1;
        Ok(())
    }
}

/// Two numbers, then three, of which the first ones may be others.
fn five(all: &[u64], other: u64) -> [u64; 5] {
    std::array::from_fn(|i| match i {
        0 | 1 => all[i],
        _ => (i + all.len()).checked_sub(5).filter(|i| *i >= 2).map_or(other, |i| all[i]),
    })
}

fn indices(extents: [u64; 5]) -> impl Iterator<Item = [u64; 5]> {
    (0..extents.iter().product()).map(move |mut at: u64| {
        let mut index = [0; 5];
        for axis in (0..5).rev() {
            (index[axis], at) = (at % extents[axis], at / extents[axis]);
        }
        index
    })
}

impl Driver for Emulated {
    fn allocate(&self, bytes: u64) -> Result<Address, DriverError> {
        let memory = vec![u128::MAX; bytes as usize / 16 + 1];
        let address = memory.as_ptr() as u64;
        self.with(|s| s.memory.insert(address, memory));
        Ok(Address(address))
    }

    fn free(&self, address: Address) -> Result<(), DriverError> {
        let known = self.with(|s| s.memory.remove(&address.0));
        known.map(drop).ok_or_else(|| failed("free", "this is not allocated"))
    }

    /// Everything is done at once, so that all streams are one.
    fn stream(&self) -> Result<Stream, DriverError> {
        Ok(Stream(0))
    }

    fn end(&self, _: Stream) -> Result<(), DriverError> {
        Ok(())
    }

    fn wait(&self, _: Stream) -> Result<(), DriverError> {
        Ok(())
    }

    fn upload(&self, _: Stream, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        self.with(|s| {
            let to = s.at(to, bytes.len() as u64)?;
            // SAFETY: `at` found so many bytes there, and the lock keeps them.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            Ok(())
        })
    }

    fn download(&self, _: Stream, parts: &mut [(Address, &mut [u8])]) -> Result<(), DriverError> {
        self.with(|s| {
            for (from, into) in parts {
                let from = s.at(*from, into.len() as u64)?;
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
            }
            Ok(())
        })
    }

    fn clear(&self, on: Stream, at: Address, bytes: u64) -> Result<(), DriverError> {
        self.upload(on, at, &vec![0; bytes as usize])
    }

    fn load(&self, code: &Code<'_>) -> Result<Module, DriverError> {
        let unit = Unit::compile_with(&code.unit(), self.effort).map_err(|e| match e {
            EmulatorError::NoCompiler => DriverError::NoCompiler(e.to_string()),
            e => DriverError::Compile(e.to_string()),
        })?;
        self.with(|s| {
            s.units.push(Some(unit));
            let own = |(name, text): (&str, &str)| (name.to_string(), text.to_string());
            s.loaded.extend(code.functions().map(own));
            Ok(Module(s.units.len() as u64 - 1))
        })
    }

    fn unload(&self, module: Module) -> Result<(), DriverError> {
        let known = self.with(|s| s.units.get_mut(module.0 as usize).and_then(Option::take));
        known.map(drop).ok_or_else(|| failed("unload", "this is not loaded"))
    }

    fn launch(&self, _: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        let &Invocation { module, function, grid, block, arguments, numbers, .. } = what;
        self.with(|s| {
            let regions = arguments
                .iter()
                .map(|(a, bytes)| Ok(Region { pointer: s.at(*a, *bytes)?, bytes: *bytes as usize }))
                .collect::<Result<Vec<Region>, DriverError>>()?;
            let unit = s.units.get(module.0 as usize).and_then(Option::as_ref);
            let unit = unit.ok_or_else(|| failed("launch", "this is not loaded"))?;
            // SAFETY: every region is allocated, and the lock keeps it.
            let done = unsafe { unit.launch_with(function, grid, block, &regions, numbers) };
            done.map_err(|e| failed("launch", e))
        })
    }

    /// Barriers of the grid are the emulator's.
    fn launch_cooperative(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        self.with(|s| s.together += 1);
        self.launch(on, what)
    }

    fn library(&self, of: LibraryKind) -> Library {
        if self.has_library.contains(&of) {
            Library::Present(format!("{} on the host", of.name()))
        } else {
            Library::Off
        }
    }

    /// There is one way.
    fn prepare(
        &self,
        work: &LibraryOp,
        at: &[Address],
        _: (Address, u64),
        way: usize,
    ) -> Result<Option<Prepared>, DriverError> {
        if way > 0 {
            return Ok(None);
        }
        self.with(|s| {
            s.prepared += 1;
            let number = s.prepared;
            s.products.insert(number, (work.clone(), at.to_vec()));
            Ok(Some(Prepared(number)))
        })
    }

    fn multiply(&self, _: Stream, work: Prepared) -> Result<(), DriverError> {
        self.with(|s| {
            let known = s.products.get(&work.0).cloned();
            let (work, at) = known.ok_or_else(|| failed("multiply", "this is not prepared"))?;
            match work {
                LibraryOp::Product(product) => s.multiply(&product, &at),
                LibraryOp::Convolution(convolution) => s.convolve(&convolution, &at),
            }
        })
    }

    fn release(&self, work: Prepared) -> Result<(), DriverError> {
        let known = self.with(|s| s.products.remove(&work.0));
        known.map(drop).ok_or_else(|| failed("release", "this is not prepared"))
    }

    /// Every step is faster than those before, if there is a library. What is timed leaves nothing behind, and is not computed.
    fn timed(
        &self,
        _: Stream,
        steps: usize,
        _: &mut dyn FnMut(usize) -> Result<(), DriverError>,
    ) -> Result<Option<Vec<f64>>, DriverError> {
        let taken = |step: usize| (steps - step) as f64;
        Ok((!self.has_library.is_empty()).then(|| (0..steps).map(taken).collect()))
    }
}
