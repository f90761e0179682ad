"""The package as it is installed: what it exports, how long it takes to import, its types, its documentation, its command."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import inspect
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mlc_rewrite as mlc
from mlc_rewrite import _native


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="the dynamic symbols of ELF")
def test_nothing_is_exported_but_what_the_interpreter_asks_for() -> None:
    nm = shutil.which("nm")
    assert nm, "binutils are where programs are linked"
    listed = subprocess.run([nm, "-D", "--defined-only", str(_native.__file__)], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["PyInit__native"]


def test_importing_it_imports_nothing_heavy() -> None:
    done = python("-c", "import sys, mlc_rewrite; print([m for m in ('numpy', 'onnx', 'torch', 'json') if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_importing_it_takes_no_time() -> None:
    def fastest(modules: str) -> float:
        code = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
        return min(float(python("-c", code).stdout) for _ in range(7))

    # On a machine that is slow or busy what Python brings takes longer, too: a third of the whole where nothing else is at work.
    assert fastest("mlc_rewrite") < max(0.05, 4 * fastest("collections.abc, contextlib, re, typing"))


def test_types() -> None:
    package = Path(str(mlc.__file__)).parent
    assert (package / "py.typed").exists()
    config = Path(__file__).parents[1] / "pyproject.toml"
    done = python("-m", "mypy", "--strict", "--config-file", str(config), "-p", "mlc_rewrite")
    assert done.returncode == 0, done.stdout + done.stderr
    done = python("-m", "mypy.stubtest", "mlc_rewrite._native", "--mypy-config-file", str(config))
    assert done.returncode == 0, done.stdout + done.stderr


# Those whose documentation has examples; those of PyTorch are tested where it is installed.
NAMES = [m.name for m in pkgutil.iter_modules(mlc.__path__) if m.name not in ("_native", "__main__") and not m.name.lstrip("_").startswith("torch")]
MODULES = [f"mlc_rewrite.{name}" for name in NAMES]


@pytest.mark.parametrize("name", ["mlc_rewrite", *MODULES])
def test_examples_of_the_documentation(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_everything_public_is_documented() -> None:
    undocumented = []
    for name in mlc.__all__:
        value = getattr(mlc, name)
        if not callable(value):
            continue
        members = [(name, value)]
        if inspect.isclass(value):
            members += [(f"{name}.{m}", v) for m, v in vars(value).items() if not m.startswith("_") and (callable(v) or isinstance(v, property))]
        undocumented += [n for n, v in members if not inspect.getdoc(v)]
    assert not undocumented


def test_the_command() -> None:
    done = python("-m", "mlc_rewrite", "--version")
    assert done.returncode == 0 and done.stdout.startswith("mlc-rewrite "), done
    script = Path(sys.executable).with_name("mlc-rewrite")
    done = subprocess.run([script, "list", "targets"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "onnxruntime" in done.stdout
    done = python("-m", "mlc_rewrite", "optimize", "no.onnx", "-o", "out.onnx")
    assert done.returncode == 2 and "no.onnx: No such file" in done.stderr


def test_versions_agree() -> None:
    assert mlc.__version__ == importlib.metadata.version("mlc-rewrite")
