"""Life in a process of others: threads, forks, interrupts, memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

import mlc_rewrite as mlc

IMAGE = np.zeros((1, 3, 224, 224), np.float32)


def logits(path: str) -> float:
    session = mlc.Session(path, threads=2, check=False)
    return float(session.run(None, {"input": IMAGE})[0].sum())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_goes_on_with_a_session(squeezenet: Path) -> None:
    session = mlc.Session(squeezenet, threads=2, check=False)
    expected = session.run(None, {"input": IMAGE})[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            same = all(np.array_equal(session.run(None, {"input": IMAGE})[0], expected) for _ in range(3))
            # The child has workers of its own.
            threads = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 2
            os._exit(0 if same and (threads > 1 or os.cpu_count() == 1) else 1)
        except BaseException:
            os._exit(2)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        pytest.fail("the child hangs")
    np.testing.assert_array_equal(session.run(None, {"input": IMAGE})[0], expected)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_multiprocessing(method: str, squeezenet: Path) -> None:
    expected = logits(str(squeezenet))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(logits, [str(squeezenet)] * 2) == [expected] * 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_an_interrupt_ends_an_optimisation() -> None:
    # A model whose exploration takes long.
    code = """
        import os, signal, threading, time
        import mlc_rewrite as mlc
        terms = " + ".join(f"(x @ w{i}) * {i + 1}" for i in range(24))
        inputs = ", ".join(f"w{i}: f32[64, 64]" for i in range(24))
        model = mlc.Model(text=f"def model(x: f32[8, 64], {inputs}) -> y: f32[8, 64]\\n  = {terms}\\n")
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            while True:
                mlc.optimize(model, check=False, effort=10**9, nodes=10**6, rounds=1000, time_limit=60)
        except KeyboardInterrupt:
            print(time.monotonic() - began)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 3, "it ends soon, and not with the optimisation"
    assert "panick" not in done.stderr


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says how much memory is resident")
def test_runs_leak_nothing() -> None:
    session = mlc.Session(mlc.Model(text="def model(x: f32[n, 64]) -> y: f32[n, 64]\n  = exp(x)\n"), threads=1)
    stream = session.bind()
    x = np.zeros((16, 64), np.float32)

    def runs(count: int) -> None:
        for _ in range(count):
            session.run(None, {"x": x})
            session(x=x[:, ::-1])
            stream(x=x)
            try:
                session.run(None, {"x": x[0]})
            except mlc.InputError:
                pass

    runs(500)
    gc.collect()
    tracemalloc.start()
    before, pages = tracemalloc.get_traced_memory()[0], resident()
    runs(10_000 // 4)
    gc.collect()
    grown, more = tracemalloc.get_traced_memory()[0] - before, resident() - pages
    tracemalloc.stop()
    assert grown < 64 << 10
    assert more < 8 << 20


def test_sessions_end_with_their_last_reference() -> None:
    model = mlc.Model(text="def model(x: f32[n, 64]) -> y: f32[n, 64]\n  = exp(x)\n")
    x = np.zeros((1 << 12, 64), np.float32)

    def sessions(count: int) -> None:
        for _ in range(count):
            mlc.Session(model, check=False, threads=1).run(None, {"x": x})
        gc.collect()

    sessions(20)
    before = resident() if sys.platform == "linux" else 0
    sessions(40)
    assert (resident() if sys.platform == "linux" else 0) - before < 16 << 20


def test_optimisations_run_side_by_side(redundant: mlc.Model) -> None:
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(mlc.optimize(redundant, threads=1)[0].text)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 4 and len(set(texts)) == 1


#: Optimises a model as a user's script would, whose progress is told at once.
WATCHED = """
import sys
import mlc_rewrite as mlc
from mlc_rewrite import _progress
_progress.PATIENCE = 0.0
mlc.optimize(sys.argv[1], check=False)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_is_told_what_a_long_call_is_at(squeezenet: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", WATCHED, str(squeezenet)], stderr=follower)
    os.close(follower)
    told = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            # Nobody has the other end open any more.
            break
        if not part:
            break
        told += part
    os.close(leader)
    assert process.wait() == 0
    assert b"explor" in told
    assert told.endswith(b"\r\x1b[K"), "the line is gone in the end"


def test_nobody_else_is_told(squeezenet: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED, str(squeezenet)], capture_output=True, check=True)
    assert done.stdout == done.stderr == b""


def test_a_notebook_shows_one_output_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlc_rewrite import _progress

    shown: list[str] = []
    line = _progress.Line(shown.append)
    line.at("read", None)
    assert shown == [], "a short call says nothing"
    monkeypatch.setattr(_progress, "PATIENCE", 0.0)
    monkeypatch.setattr(_progress, "_APART", 0.0)
    line = _progress.Line(shown.append)
    line.at("read", None)
    line.at("read", None)
    line.at("explore", 0.5)
    line.end()
    assert shown == ["read", "explore 50 %", ""]


def test_the_logger_is_told_what_the_command_says(squeezenet: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="mlc_rewrite"):
        _, report = mlc.optimize(squeezenet, check=False)
    assert [r.getMessage() for r in caplog.records] == str(report).splitlines()
    caplog.clear()
    mlc.optimize(squeezenet, check=False)
    assert not caplog.records, "who does not ask is not told"
