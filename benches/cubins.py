#!/usr/bin/env python3
"""Compile the CUDA code of models to cubins, write the first part of docs/benchmarks/cuda.md. No device is needed.

    python3 -m venv VENV && VENV/bin/pip install nvidia-cuda-nvrtc==13.0.88
    cargo build --release
    VENV/bin/python benches/cubins.py MODEL.onnx [...]

Inputs of unknown extents have those of `inputs.npz` beside the model. For each architecture: functions, seconds of NVRTC, the most registers of a thread, and the functions whose registers are
spilled to memory, with the bytes stored. Exit code 1 if something does not compile.
"""
import ctypes, json, pathlib, re, subprocess, sys, tempfile, time, zipfile
import nvidia

TOOL = pathlib.Path(__file__).parent.parent / "target/release/mlc-rewrite"
ARCHITECTURES = ["sm_80", "sm_90a", "sm_120"]
FOLDER = next(p for root in nvidia.__path__ for p in pathlib.Path(root).glob("*/lib") if list(p.glob("libnvrtc.so.*")))
ctypes.CDLL(str(next(FOLDER.glob("libnvrtc-builtins.so.*"))), mode=ctypes.RTLD_GLOBAL)
NVRTC = ctypes.CDLL(str(next(FOLDER.glob("libnvrtc.so.*"))))


def compiled(source, architecture):
    program = ctypes.c_void_p()
    NVRTC.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "--ptxas-options=-v"]
    options = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    start = time.time()
    code = NVRTC.nvrtcCompileProgram(program, len(options), options)
    seconds, size = time.time() - start, ctypes.c_size_t()
    NVRTC.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    NVRTC.nvrtcGetProgramLog(program, log)
    NVRTC.nvrtcDestroyProgram(ctypes.byref(program))
    if code:
        sys.exit(f"{architecture}: {log.value.decode()}")
    return seconds, log.value.decode()


def shapes(model):
    """Options that give inputs the extents of the first set in `inputs.npz` beside the model; they are in the headers of its members."""
    arrays = model.parent / "inputs.npz"
    if not arrays.exists():
        return []
    options = []
    with zipfile.ZipFile(arrays) as archive:
        for member in archive.namelist():
            name, header = member.removesuffix(".npy"), archive.open(member).read(256).decode("latin-1")
            extents = re.search(r"'shape': \(([\d, ]*)\)", header)[1].replace(" ", "").rstrip(",")
            if name.startswith("0/") and extents:
                options.append(f"--shape={name[2:]}={extents}")
    return options


def source(model):
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [TOOL, "show", "--cuda", "-q", model, "--json", report.name]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if "unknown extents" in done.stderr:
            done = subprocess.run([str(c) for c in command + shapes(model)], capture_output=True, text=True)
        if done.returncode:
            return None, done.stderr.strip().splitlines()[0]
        report = json.load(open(report.name))
        return report, None


def main(models):
    print("# Generated CUDA code\n")
    print("`benches/cubins.py MODELS` with NVRTC 13.0: nothing here ran on a device; times of kernels are not measured yet.\n")
    print("| model | launches | architecture | functions | NVRTC, s | registers at most | spilled: function, bytes |")
    print("|---|---|---|---|---|---|---|")
    for model in map(pathlib.Path, models):
        name = model.parent.name if model.stem == "model" else model.stem
        report, refused = source(model)
        if refused:
            print(f"| {name} | – | – | – | – | – | {refused} |")
            continue
        for architecture in ARCHITECTURES:
            seconds, log = compiled(report["cuda"], architecture)
            parts = re.findall(r"Function properties for (\w+)\n.*?(\d+) bytes spill stores.*?Used (\d+) registers", log, re.S)
            kernels = [(f, int(s), int(r)) for f, s, r in parts if f.startswith("kernel_")]
            spilled = ", ".join(f"`{f}` {s}" for f, s, _ in kernels if s) or "none"
            most = max(r for *_, r in kernels)
            row = [name, len(report["launches"]), architecture, len(kernels), f"{seconds:.1f}", most, spilled]
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
