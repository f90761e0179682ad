//! NVRTC and NVIDIA's driver, where there are any; without them the tests say that they are skipped.
#![cfg(feature = "driver")]

use mlc_backends::{BackendError, Executable};
use mlc_cuda::{
    Argument, Code, Driver, DriverError, Invocation, Launch, LaunchedPlan, Launches, Nvidia,
    PRELUDE, Place, Port, nvrtc,
};
use mlc_dsl::ir::{Consts, DType, Tensor};
use std::sync::Arc;

const DOUBLE: &str = "KERNEL(64) twice(GLOBAL(const float) x, GLOBAL(float) y) {\n  \
                      int i = blockIdx.x * 64 + threadIdx.x;\n  if (i < 100) y[i] = 2.0f * x[i];\n}\n";

/// Between the turns all blocks wait for each other: each reads what another one has written.
const TOGETHER: &str = "KERNEL(256) together(PLAIN(const float) x, PLAIN(float) between, PLAIN(float) y, PLAIN(unsigned) grid) {\n  \
                        int n = gridDim.x * 256, i = blockIdx.x * 256 + threadIdx.x;\n  \
                        for (int turn = 0; turn < 100; ++turn) {\n    \
                        between[i] = (turn == 0 ? x[i] : y[i]) + 1.0f;\n    wait_for_grid(grid);\n    \
                        y[n - 1 - i] = between[i];\n    wait_for_grid(grid);\n  }\n}\n";

fn double() -> Launches {
    let vector = |name: &str| Port { name: name.into(), dtype: DType::F32, shape: vec![100] };
    let argument = |place, written| Argument { place, bytes: 400, dtype: DType::F32, written };
    let launch = Launch {
        function: "twice".into(),
        source: DOUBLE.into(),
        grid: [2, 1, 1],
        block: 64,
        arguments: vec![argument(Place::Input(0), false), argument(Place::Output(0), true)],
        numbers: vec![],
        kernel: 0,
        fallback: None,
    };
    Launches {
        each: vec![launch],
        inputs: vec![vector("x")],
        outputs: vec![(vector("y"), Place::Output(0))],
        ..Launches::default()
    }
}

fn code<'a>(name: &'a str, text: &'a str) -> Code<'a> {
    let mut code = Code::default();
    code.add(name, text);
    code
}

#[test]
fn nvrtc_compiles_without_a_device() {
    let unit = format!("{}\n{TOGETHER}", double().unit());
    for arch in ["sm_80", "sm_90a", "sm_120"] {
        match nvrtc::compile(&unit, arch) {
            Err(DriverError::NoCompiler(why)) => return println!("skipped: {why}"),
            code => {
                let code = code.unwrap_or_else(|e| panic!("{arch}: {e}"));
                assert!(code.starts_with(b"\x7fELF"), "{arch}");
            }
        }
    }
    let ptx = nvrtc::compile(&unit, "compute_90").expect("PTX");
    assert!(String::from_utf8_lossy(&ptx).contains(".entry twice"));
    let wrong = format!("{PRELUDE}\nKERNEL(64) wrong() {{ undeclared = 1; }}\n");
    let e = nvrtc::compile(&wrong, "sm_90a").expect_err("is refused");
    assert!(e.to_string().contains("\"undeclared\" is undefined"), "{e}");
    assert!(matches!(nvrtc::compile("\0", "sm_90a"), Err(DriverError::Compile(_))));
    assert!(matches!(nvrtc::compile(&unit, "sm_1"), Err(DriverError::Compile(_))));
    assert_eq!(nvrtc::architecture(9, 0), Ok("sm_90a".into()));
    assert_eq!(nvrtc::architecture(8, 6), Ok("sm_86".into()));
    assert!(matches!(nvrtc::architecture(99, 0), Ok(a) if a.starts_with("compute_")));
    assert!(matches!(nvrtc::architecture(1, 0), Err(DriverError::NoCompiler(_))));
}

#[test]
fn a_device_runs_launches_if_there_is_one() {
    let device = match Nvidia::new(0) {
        Err(DriverError::NoDevice(why)) => return println!("skipped: {why}"),
        device => Arc::new(device.expect("is usable")),
    };
    println!("{} {:?}", device.name(), device.capability());
    assert!(matches!(Nvidia::new(1000), Err(DriverError::NoDevice(_))));
    let large: Vec<u8> = (0..40 << 20).map(|i: u32| (i % 251) as u8).collect();
    let memory = device.allocate(large.len() as u64).expect("memory");
    let stream = device.stream().expect("a stream");
    device.upload(stream, memory, &large).expect("copied");
    device.clear(stream, memory.after(1 << 20), 3).expect("cleared");
    let (mut back, mut start) = (vec![1; large.len()], [1; 8]);
    let mut parts = [(memory, &mut back[..]), (memory, &mut start[..])];
    device.download(stream, &mut parts).expect("copied");
    assert!(back[..1 << 20] == large[..1 << 20] && back[1 << 20..][..3] == [0; 3]);
    assert!(back[(1 << 20) + 3..] == large[(1 << 20) + 3..] && start == large[..8]);
    let seconds = device.timed(stream, 2, &mut |_| device.clear(stream, memory, 1 << 20));
    let seconds = seconds.expect("is timed").expect("there are events");
    assert!(seconds.len() == 2 && seconds.iter().all(|s| *s >= 0.0 && *s < 1.0), "{seconds:?}");
    device.end(stream).expect("ended");
    assert!(device.wait(stream).is_err());
    device.free(memory).expect("freed");
    let room = device.room().expect("is told").expect("is known");
    assert!(room.free > 0 && room.free <= room.total);
    let refused = device.allocate(1 << 50);
    assert!(
        matches!(refused, Err(DriverError::Memory { bytes, room: Some(_) }) if bytes == 1 << 50)
    );
    let plan = match LaunchedPlan::new(double(), device.clone(), Consts::default()) {
        Err(BackendError::Device(DriverError::NoCompiler(why))) => {
            return println!("skipped: {why}");
        }
        plan => plan.expect("is ready"),
    };
    for start in 0..3 {
        let x: Vec<f32> = (start..start + 100).map(|i| i as f32).collect();
        let twice = Tensor::from_f32(vec![100], x.iter().map(|v| 2.0 * v).collect());
        let outputs = plan.run(&[Tensor::from_f32(vec![100], x)]).expect("runs");
        assert_eq!(outputs[0].bytes(), twice.bytes());
    }
    blocks_wait_for_each_other(&device);
}

/// As many blocks as launch bounds promise are on the device at once; more are refused, and the context goes on.
fn blocks_wait_for_each_other(device: &Nvidia) {
    let blocks = 2 * device.processors().expect("is told");
    let n = 256 * blocks as usize;
    let module = device.load(&code("together", TOGETHER)).expect("loads");
    let on = device.stream().expect("a stream");
    let memory: Vec<_> = [4 * n, 4 * n, 4 * n, 8]
        .map(|b| (device.allocate(b as u64).expect("memory"), b as u64))
        .into();
    let x: Vec<u8> = (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect();
    device.upload(on, memory[0].0, &x).expect("copied");
    device.clear(on, memory[3].0, 8).expect("cleared");
    let together = |blocks: u32| {
        let (function, grid) = ("together", [blocks, 1, 1]);
        let what = Invocation {
            module,
            function,
            grid,
            block: 256,
            shared: 0,
            arguments: &memory,
            numbers: &[],
        };
        device.launch_cooperative(on, &what)
    };
    // What they wait at is as it was before, so the second launch goes on with it.
    for _ in 0..2 {
        let done = together(blocks);
        done.expect("all blocks are on the device");
        let mut y = vec![0; 4 * n];
        device.download(on, &mut [(memory[2].0, &mut y)]).expect("copied");
        let value = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("four bytes"));
        assert!(y.chunks(4).map(value).enumerate().all(|(i, v)| v == i as f32 + 100.0));
    }
    let refused = together(1 << 20);
    assert!(matches!(refused, Err(DriverError::Call { .. })), "{refused:?}");
    device.wait(on).expect("the context is not lost");
    device.unload(module).expect("unloaded");
    device.end(on).expect("ended");
    memory.iter().for_each(|m| device.free(m.0).expect("freed"));
}

/// Set in the process whose context is to be lost.
const LOSES: &str = "MLC_CUDA_TEST_LOSES_CONTEXT";

/// Code that writes where nothing is allocated ends all sessions of the process, which goes on: a process of its own, since other
/// tests run beside this one.
#[test]
fn a_lost_context_is_the_last_one() {
    if let Err(DriverError::NoDevice(why)) = Nvidia::new(0) {
        return println!("skipped: {why}");
    }
    if std::env::var_os(LOSES).is_some() {
        return loses_the_context();
    }
    let own = std::env::current_exe().expect("is known");
    let mut child = std::process::Command::new(own);
    let child = child.args(["--exact", "a_lost_context_is_the_last_one", "--nocapture"]);
    assert!(child.env(LOSES, "1").status().expect("starts").success());
}

fn loses_the_context() {
    let x = Tensor::from_f32(vec![100], vec![1.0; 100]);
    let mut wild = double();
    wild.each[0].source = DOUBLE.replace("if (i < 100) y[i]", "((float*)(long long)(16 + i))[0]");
    let device = Nvidia::shared(0).expect("a device");
    assert!(Arc::ptr_eq(&device, &Nvidia::shared(0).expect("a device")), "one context is shared");
    let other = LaunchedPlan::new(double(), device.clone(), Consts::default()).expect("is ready");
    assert!(other.run(std::slice::from_ref(&x)).is_ok());
    let plan = LaunchedPlan::new(wild, device, Consts::default()).expect("is ready");
    let e = plan.run(std::slice::from_ref(&x)).expect_err("the address is not allocated");
    assert!(matches!(e, BackendError::Device(DriverError::Kernel { .. })), "{e}");
    assert!(e.to_string().contains("`twice`"), "{e}");
    for plan in [&plan, &other] {
        assert!(plan.run(std::slice::from_ref(&x)).is_err(), "the context is lost");
    }
    drop((plan, other));
    assert!(matches!(Nvidia::shared(0), Err(DriverError::Lost { .. })), "there is no other");
}

#[test]
fn several_launches_are_recorded_if_there_is_a_device() {
    let device = match Nvidia::shared(0) {
        Err(DriverError::NoDevice(why)) => return println!("skipped: {why}"),
        device => device.expect("is usable"),
    };
    let mut launches = double();
    launches.arena = 512;
    let (mut first, mut second) = (launches.each[0].clone(), launches.each[0].clone());
    first.arguments[1].place = Place::Arena(0);
    second.arguments[0].place = Place::Arena(0);
    launches.each = vec![first, second];
    let plan = match LaunchedPlan::new(launches, device, Consts::default()) {
        Err(BackendError::Device(DriverError::NoCompiler(why))) => {
            return println!("skipped: {why}");
        }
        plan => plan.expect("is ready"),
    };
    for run in 0..5 {
        let x: Vec<f32> = (run..run + 100).map(|i| i as f32).collect();
        let four = Tensor::from_f32(vec![100], x.iter().map(|v| 4.0 * v).collect());
        let x = [Tensor::from_f32(vec![100], x)];
        assert_eq!(plan.run(&x).expect("runs")[0].bytes(), four.bytes(), "run {run}");
        let whole = plan.device_seconds(&x).expect("is timed").expect("there are events");
        let parts = plan.launch_seconds(&x).expect("is timed").expect("there are events");
        assert!(whole > 0.0 && parts.len() == 2 && parts.iter().all(|p| p.seconds > 0.0));
    }
}

/// The bits of small whole numbers of 16 bits, and the numbers.
fn halves(count: usize, by: usize) -> Vec<(u16, f32)> {
    let bits = [0xc000, 0xbc00, 0, 0x3c00, 0x4000];
    (0..count).map(|i| i * by / 7 % 5).map(|n| (bits[n], n as f32 - 2.0)).collect()
}

/// Matrices in shared memory are what their descriptors say, as the emulator reads them; nothing but a device can tell.
#[test]
fn warpgroups_multiply_if_there_is_a_device_that_has_them() {
    let device = match Nvidia::shared(0) {
        Err(DriverError::NoDevice(why)) => return println!("skipped: {why}"),
        device => device.expect("is usable"),
    };
    if !device.has_warpgroups() {
        return println!("skipped: compute capability {:?}, or no compiler", device.capability());
    }
    let (a, b) = (halves(64 * 64, 11), halves(128 * 64, 13));
    let module = device.load(&code("warpgroups", include_str!("warpgroups.cu")));
    let module = module.expect("loads");
    let on = device.stream().expect("a stream");
    let memory = [2 * a.len() as u64, 2 * b.len() as u64, 4 * 64 * 128];
    let memory = memory.map(|bytes| (device.allocate(bytes).expect("memory"), bytes));
    for (factor, at) in [&a, &b].into_iter().zip(&memory) {
        let bytes: Vec<u8> = factor.iter().flat_map(|n| n.0.to_le_bytes()).collect();
        device.upload(on, at.0, &bytes).expect("copied");
    }
    for function in ["product_00", "product_01", "product_10", "product_11"] {
        device.clear(on, memory[2].0, memory[2].1).expect("cleared");
        let (grid, shared) = ([1, 1, 1], 2 * 12288);
        let what = Invocation {
            module,
            function,
            grid,
            block: 128,
            shared,
            arguments: &memory,
            numbers: &[],
        };
        device.launch(on, &what).expect("starts");
        let mut d = vec![0; memory[2].1 as usize];
        device.download(on, &mut [(memory[2].0, &mut d)]).expect("copied");
        for (at, found) in d.chunks(4).enumerate() {
            let (row, column) = (at / 128, at % 128);
            let product = (0..64).map(|k| a[row * 64 + k].1 * b[column * 64 + k].1).sum::<f32>();
            let found = f32::from_le_bytes(found.try_into().expect("four bytes"));
            assert_eq!(found, product, "{function}, row {row}, column {column}");
        }
    }
    device.unload(module).expect("unloaded");
    device.end(on).expect("ended");
    memory.iter().for_each(|m| device.free(m.0).expect("freed"));
}
