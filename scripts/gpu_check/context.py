"""What a check works with: programs, models, a device, NVRTC, and which of them are not there."""

import hashlib
import importlib.util
import os
import pathlib
import subprocess
import sys

import halves
import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The order of steps, so that the first call has the figures that are asked for first: whether the device computes the micro set rightly,
# how fast a copy is and what memory bounds, how fast the micro set is; then all tests, all models, libraries, other runtimes.
FIRST, COPIES, MICRO, BROAD, MODELS, LIBRARIES, OTHERS = range(7)


class Context:
    """Found once in a call; `missing` says what a step lacks."""

    def __init__(self, arguments):
        self.folder = arguments.folder
        self.device = arguments.device
        self.seed = arguments.seed
        self.suite = arguments.suite
        self.tool = pathlib.Path(arguments.tool or ROOT / "target/release/mlc-rewrite")
        self.tests = arguments.tests or self.built_tests()
        self.lacks, self.known = {}, []
        if not os.access(self.tool, os.X_OK):
            self.lacks["tool"] = f"no program {self.tool}: name it with --tool"
        self.python = os.environ.get("MLC_PYTHON", sys.executable)
        try:
            found = machine.device(self.device)
            self.known.append(("device", "{name}, compute capability {capability}, {processors} multiprocessors, CUDA {cuda}".format(**found)))
        except machine.Missing as e:
            self.lacks["device"] = str(e)
        self.nvrtc, self.cublaslt, self.cudnn = None, os.environ.get("MLC_CUBLASLT"), os.environ.get("MLC_CUDNN")
        try:
            self.nvrtc, version = machine.nvrtc(arguments.nvrtc or os.environ.get("MLC_NVRTC"), ROOT)
            self.known.append(("NVRTC", f"{version}, {self.nvrtc}"))
            self.cublaslt = self.cublaslt or machine.beside("libcublasLt", self.nvrtc)
            elsewhere = "where the system has it, if anywhere"
            self.cudnn = self.cudnn or machine.cudnn()
            self.known += [("cuBLASLt", self.cublaslt or elsewhere), ("cuDNN", self.cudnn or elsewhere)]
        except machine.Missing as e:
            self.lacks["nvrtc"] = str(e)
        self.models = list(self.found_models(arguments.models, arguments.types))
        self.packages = {}

    @staticmethod
    def built_tests():
        """The newest test programs of each name below the folders of builds."""
        out = []
        for name in ("cuda_nvidia", "cuda"):
            files = [p for k in ("release", "debug") for p in ROOT.glob(f"target/{k}/deps/{name}-*") if not p.suffix and os.access(p, os.X_OK)]
            out += sorted(files, key=lambda p: p.stat().st_mtime)[-1:]
        return out

    def found_models(self, places, types):
        """Files of models with their names and element types; those of half the size are written when they are needed."""
        for place in places:
            files = [place] if place.is_file() else sorted(place.glob("**/*.onnx"))
            for path in files:
                name = path.parent.name if path.stem == "model" else path.stem
                for dtype in types:
                    if dtype == "f32":
                        yield name, path, dtype
                    else:
                        yield f"{name} {dtype}", (lambda c, p=path, t=dtype: halves.written(p, c.folder, t)), dtype

    def missing(self, needs):
        """Why a step cannot be run, or nothing."""
        for need in needs:
            if need in self.lacks:
                return self.lacks[need]
            if need.startswith("package ") and not self.has_package(need.removeprefix("package ")):
                return f"the Python package {need.removeprefix('package ')} is not installed"
        return ""

    def has_package(self, name):
        if name not in self.packages:
            if self.python == sys.executable:
                self.packages[name] = importlib.util.find_spec(name) is not None
            else:
                look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
                try:
                    self.packages[name] = subprocess.run([self.python, "-c", look], capture_output=True).returncode == 0
                except OSError:
                    self.packages[name] = False
        return self.packages[name]

    def environment(self, tests=False):
        """What commands are given besides this process's own environment."""
        out = {"MLC_PYTHON": self.python, "NO_COLOR": "1"}
        if self.nvrtc:
            out["MLC_NVRTC"] = self.nvrtc
        if self.cublaslt:
            out["MLC_CUBLASLT"] = self.cublaslt
        if self.cudnn:
            out["MLC_CUDNN"] = self.cudnn
        if tests:
            out["MLC_CUDA_DEVICE"] = str(self.device)
        return out

    def facts(self):
        """What the report says of the machine."""
        return self.known + [("missing", why) for why in self.lacks.values()]

    def key(self):
        """Changes with the programs that are checked."""
        digest = hashlib.sha256()
        for path in [self.tool, *self.tests]:
            digest.update(path.read_bytes() if path.is_file() else b"")
            digest.update(b"\0")
        digest.update(repr((self.device, self.seed)).encode())
        return digest.hexdigest()[:16]
