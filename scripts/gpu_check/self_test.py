"""Tests of the parts of `scripts/gpu-check` that need no device: `scripts/gpu-check --self-test`."""

import array
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import math
import pathlib
import struct
import sys
import tempfile
import threading
import time
import unittest
import zipfile
from types import SimpleNamespace
from unittest import mock

import arrays
import checks
import machine
import micro
import onnx_writer
import report
import timing
from steps import FAILED, LEFT, NOT_RUN, PASSED, CommandFailed, Outcome, OutOfTime, State, Step, batches, perform, run


class Folder(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)


class Clock:
    """Time that passes when a step says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Steps(Folder):
    def performed(self, steps, seconds, lacks=None, key="k"):
        clock = self.clock = Clock()
        context = SimpleNamespace(missing=lambda needs: next((lacks[n] for n in needs if n in (lacks or {})), ""))
        state = State(self.folder / "state.json", key)
        perform(steps, context, state, seconds, lambda _: None, clock)
        return {n: o.status for n, o in state.outcomes.items()}, state

    def together(self, steps, jobs):
        """What comes of steps, so many at once, in time that passes."""
        state = State(self.folder / "state.json", "k")
        perform(steps, SimpleNamespace(missing=lambda needs: ""), state, 100, lambda _: None, jobs=jobs)
        return {n: o.status for n, o in state.outcomes.items()}

    def taking(self, name, seconds, status=PASSED, needs=()):
        def work(_, left):
            self.did.append(name)
            if seconds > left:
                self.clock.now += left
                raise OutOfTime
            self.clock.now += seconds
            return Outcome(status, "done")

        return Step(name, "g", work, needs, 5)

    def test_what_does_not_fit_is_left_and_done_in_the_next_call(self):
        self.did = []
        steps = [self.taking("a", 60), self.taking("b", 60, FAILED), self.taking("c", 60)]
        self.assertEqual(self.performed(steps, 100)[0], {"a": PASSED, "b": LEFT, "c": LEFT})
        self.assertEqual(self.did, ["a", "b"])
        self.assertEqual(self.performed(steps, 124)[0], {"a": PASSED, "b": FAILED, "c": PASSED})
        self.assertEqual(self.did, ["a", "b", "b", "c"])
        # What failed is not tried again, unless the programs changed.
        self.assertEqual(self.performed(steps, 124)[0]["b"], FAILED)
        self.assertEqual(self.did, ["a", "b", "b", "c"])
        again, state = self.performed(steps, 1000, key="other")
        self.assertEqual((again["c"], len(self.did)), (PASSED, 7))
        self.assertIn("differ", state.note)

    def test_steps_without_times_run_beside_each_other(self):
        meeting = threading.Barrier(2, timeout=20)

        def meets(_, left):
            meeting.wait()
            return Outcome(PASSED, "done")

        found = self.together([Step(name, "g", meets, is_timed=False) for name in ("a", "b")], 2)
        self.assertEqual(found, {"a": PASSED, "b": PASSED})

    def test_steps_with_times_prepare_beside_each_other_and_are_timed_alone(self):
        prepare, did = threading.Barrier(3, timeout=20), []

        def timed(context, left):
            prepare.wait()
            with context.turns.alone(left):
                did.append("begin")
                time.sleep(0.05)
                did.append("end")
            return Outcome(PASSED, "done")

        def ends(_, left):
            prepare.wait()
            time.sleep(0.1)
            did.append("ended")
            return Outcome(NOT_RUN, "cannot be timed")

        steps = [Step("a", "g", timed), Step("b", "g", ends), Step("c", "g", timed)]
        self.together(steps, 3)
        self.assertEqual(did, ["ended", "begin", "end", "begin", "end"])

    def test_steps_that_take_no_times_are_done_while_others_prepare(self):
        meeting, did = threading.Barrier(2, timeout=20), []

        def timed(context, left):
            meeting.wait()
            with context.turns.alone(left):
                did.append("timed")
            return Outcome(PASSED, "done")

        def plain(_, left):
            meeting.wait()
            time.sleep(0.1)
            did.append("plain")
            return Outcome(PASSED, "done")

        steps = [Step("a", "g", timed, rank=1), Step("b", "g", timed, rank=2)]
        steps += [Step(name, "g", plain, is_timed=False, rank=3) for name in ("c", "d")]
        self.together(steps, 2)
        self.assertEqual(did, ["plain", "timed"] * 2)

    def test_batches_keep_the_order_of_ranks(self):
        names = lambda steps, most: [[s.name for s in batch] for batch in batches(steps, most)]
        steps = [Step(f"t{rank}{n}", "g", None, rank=rank) for rank in (1, 2) for n in range(3)]
        steps += [Step(f"o{rank}", "g", None, is_timed=False, rank=rank) for rank in (0, 2, 3, 4, 4)]
        one = ["o0", "t10", "t11", "t12", "t20", "t21", "t22"]
        self.assertEqual(names(steps, 1), [*([n] for n in one), ["o2", "o3", "o4", "o4"]])
        four = [["o0", "o2", "t10", "t11"], ["o3", "o4", "t12"], ["o4", "t20", "t21", "t22"]]
        self.assertEqual(names(steps, 4), four)
        self.assertEqual(names(steps[:6], 2), [["t10", "t11"], ["t12"], ["t20", "t21"], ["t22"]])
        self.assertEqual(names([], 4), [])

    def test_what_never_ends_fails(self):
        self.did = []
        for status in (LEFT, LEFT, FAILED, FAILED):
            self.assertEqual(self.performed([self.taking("a", 60)], 50)[0], {"a": status})
        self.assertEqual(self.did, ["a"] * 3)

    def test_what_is_missing_is_named_and_looked_for_again(self):
        self.did = []
        steps = [self.taking("a", 1, needs=("device",)), self.taking("b", 1)]
        found, state = self.performed(steps, 50, {"device": "no device: none"})
        self.assertEqual((found, state.outcomes["a"].line), ({"a": NOT_RUN, "b": PASSED}, "no device: none"))
        self.assertEqual(self.performed(steps, 50)[0], {"a": PASSED, "b": PASSED})

    def test_a_state_that_cannot_be_read_is_told(self):
        (self.folder / "state.json").write_text("{")
        self.assertIn("cannot be read", State(self.folder / "state.json", "k").note)

    def test_commands_end_in_time_and_their_errors_are_told(self):
        self.assertEqual(run(["sh", "-c", "echo $WORD"], 10, {"WORD": "a"}), "a\n")
        with self.assertRaises(OutOfTime):
            run(["sh", "-c", "sleep 60 & sleep 60"], 0.2)
        with self.assertRaises(CommandFailed) as raised:
            run(["sh", "-c", "echo x; echo 'error: no such file' >&2; echo help >&2; exit 2"], 10)
        self.assertEqual(str(raised.exception), "exit code 2: error: no such file")


class Arrays(Folder):
    def archive(self, **members):
        path = self.folder / "a.npz"
        with zipfile.ZipFile(path, "w") as out:
            for name, (descr, shape, raw) in members.items():
                head = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
                head += b" " * (-(len(head) + 11) % 64) + b"\n"
                out.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + raw)
        return arrays.read(path)

    def test_archives_are_read(self):
        found = self.archive(
            x=("<f4", (2, 1), struct.pack("<2f", 0.5, -2)), h=("<f2", (1,), struct.pack("<e", 1.5)), b=("<V2", (2,), b"\x80\x3f\x00\xc0"), n=("<i8", (), struct.pack("<q", -7))
        )
        self.assertEqual({n: (s, list(v)) for n, (s, v) in found.items()}, {"x": ((2, 1), [0.5, -2]), "h": ((1,), [1.5]), "b": ((2,), [1, -2]), "n": ((), [-7])})
        with self.assertRaisesRegex(ValueError, "cannot be read"):
            self.archive(x=("<c8", (1,), bytes(8)))

    def test_differences_are_relative_to_the_largest_element(self):
        def of(*values):
            return {"x": ((len(values),), array.array("d", values))}

        inf, nan = math.inf, math.nan
        for wanted, got, difference in [
            (of(1, 2), of(1, 2), 0),
            (of(1, 2), of(1.5, 2), 0.25),
            (of(inf, nan, 4), of(inf, nan, 3), 0.25),
            (of(inf), of(1), inf),
            (of(0), of(1), inf),
            (of(1), of(1, 1), inf),
            (of(1), {}, inf),
        ]:
            self.assertEqual(arrays.difference(wanted, got), difference, (wanted, got))


class Machine(Folder):
    def test_a_folder_of_nvrtc_yields_the_newest_library(self):
        for name in ("libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc.so.13.0.88"):
            (self.folder / name).touch()
        self.assertEqual([p.name for p in machine.of_stem("libnvrtc", self.folder)], ["libnvrtc.so.13", "libnvrtc.so.12"])

    def test_libraries_beside_it_are_those_of_its_major_version(self):
        lib = self.folder / "nvidia/cu13/lib"
        lib.mkdir(parents=True)
        for name in ("libcublasLt.so.12", "libcublasLt.so.13"):
            (lib / name).touch()
        with mock.patch.object(sys, "path", [str(self.folder)]):
            self.assertIn(lib, machine.packages())
            self.assertEqual(machine.beside("libcublasLt", "/a/libnvrtc.so.13"), str(lib / "libcublasLt.so.13"))
            self.assertIsNone(machine.beside("libcublasLt", "/a/libnvrtc.so.11"))
            self.assertIsNone(machine.cudnn())
            (lib / "libcudnn.so.9").touch()
            self.assertEqual(machine.cudnn(), str(lib / "libcudnn.so.9"))

    def test_what_is_not_there_is_told(self):
        with self.assertRaisesRegex(machine.Missing, "no NVRTC: .* is no file"):
            machine.nvrtc(str(self.folder), self.folder)
        (self.folder / "libnvrtc.so.13").write_text("no library")
        with self.assertRaisesRegex(machine.Missing, "cannot be opened"):
            machine.nvrtc(str(self.folder), self.folder)


class Files(unittest.TestCase):
    def test_numbers_are_encoded(self):
        self.assertEqual(onnx_writer.varint(300), b"\xac\x02")
        self.assertEqual(len(onnx_writer.number(3, -1)), 11)
        self.assertEqual(onnx_writer.encoded([1.0], "bf16"), b"\x80\x3f")
        self.assertEqual(onnx_writer.encoded([1.0], "f16"), b"\x00\x3c")

    def test_every_micro_case_is_a_model(self):
        self.assertEqual(len({n for n, *_ in micro.names()}), 36)
        made = micro.grouped_attention(1, "bf16")
        self.assertEqual(made, micro.grouped_attention(1, "bf16"))
        try:
            import onnx
        except ImportError:
            self.skipTest("the Python package onnx is not installed")
        for name, make, b, t in micro.names():
            if b == 1:
                model = onnx.load_from_string(make(b, t))
                onnx.checker.check_model(model, full_check=True)


# A tool that answers as the real one does, and writes what it was asked for into the file that ASKED names.
TOOL = r"""#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
off = os.environ.get("MLC_CUDA_LIBRARIES") == "off"
with open(os.environ["ASKED"], "a") as out:
    out.write(" ".join([w.rsplit("/", 1)[-1] for w in words] + (["off"] if off else [])) + "\n")
if words[0] == "fuzz":
    print(json.dumps({"cases": 7, "agreed": 6, "seconds": 1.0}))
elif words[0] == "conformance":
    cases = [("a", "passed", ""), ("b", "refused", "the cuda backend does not support the element type str")]
    if "wrong" in words[1]:
        cases += [("c", "failed", "element 0: expected 1, found 2"), ("d", "refused", "no such file")]
    count = [c[1] for c in cases].count
    cases = [dict(zip(("case", "result", "reason"), c)) for c in cases]
    print(json.dumps({"passed": count("passed"), "failed": count("failed"), "refused": count("refused"), "skipped": 2, "cases": cases}))
    print("a note {", file=sys.stderr)
    sys.exit(1)
elif words[0] == "inspect":
    print(json.dumps({"flops": 1e3}))
elif words[0] == "bench":
    quarters = {"p50": 1, "p90": 1, "p99": 1}
    found = {"least_seconds": 2.0 if off else 1.0, "least_seconds_unoptimized": 3.0, "percentiles": quarters, "percentiles_unoptimized": quarters}
    found |= {"ratio": 0.3, "runs": 9, "launches": 2, "launches_unoptimized": 3, "same_plan": False, "clock": "device"}
    found["notes"] = [] if off else ["cuBLASLt 1, 1 µs against 2 µs: p", "generated code, 1 µs against 2 µs: 2 x f32[8, 4x4] * [16, 3x3] to 2x2", "convolutions run as generated code: no reason"]
    if os.environ.get("MLC_CUDA_WGMMA") != "off":
        found["notes"].append("`f` by warpgroups, 1 µs against 2 µs")
    if os.environ.get("MLC_CUDA_MERGED") == "off":
        found["least_seconds"] = 4.0
    else:
        found["notes"].append("7 launches as one")
    found["kernels"] = [{"kernel": "k", "computes": "matmul", "measured": 0.5, "predicted": 0.4, "bytes": 8.0}]
    if "--against" in words:
        found["against"] = {"version": "1", "clock": "device", "ratio": 0.5, "ratio_quartiles": [0.4, 0.6], "least_seconds": 2.0, "own_least_seconds": 1.0, "runs": 3}
    print(json.dumps(found))
else:
    sys.exit(2)
"""


class Work(Folder):
    """What steps ask of the tool, and what they make of its answers."""

    def asked(self, make, group, packages=(), suite=None):
        tool = self.folder / "tool"
        tool.write_text(TOOL)
        tool.chmod(0o755)
        log = self.folder / "asked"
        model = self.folder / "m.onnx"
        model.touch()
        context = SimpleNamespace(tool=tool, device=0, seed=3, models=[("m", model, "f32")], folder=self.folder, suite=suite, environment=lambda tests=False: {"ASKED": str(log)})
        context.missing = lambda needs: next((f"no {n}" for n in needs if n.startswith("package ") and n.split()[1] not in packages), "")
        steps = [s for s in make(context) if s.group == group and (" m" in s.name or s.name == "fuzz" or s.group in ("products", "conformance"))]
        state = State(self.folder / "state.json", "k")
        perform(steps, context, state, 300, lambda _: None)
        return {n: (o.status, o.line) for n, o in state.outcomes.items()}, log.read_text().splitlines(), state.outcomes

    def test_fuzzing(self):
        found, asked, _ = self.asked(checks.fuzzing, "fuzzing")
        self.assertEqual(found, {"fuzz": (PASSED, "7 programs in 1 s, 6 runs agreed")})
        self.assertEqual(asked, ["fuzz --backend cuda --device 0 --time 60 --json - --seed 3"])

    def test_conformance(self):
        name = "ONNX's conformance suite"
        found, asked, _ = self.asked(checks.conformance, "conformance", suite="suite")
        told = "1 cases pass, 0 do not, 1 have what the backend refuses, 2 are left out"
        self.assertEqual(found, {name: (PASSED, told)})
        self.assertEqual(asked, ["conformance suite --backend cuda --device 0 --skip onnx_suite.toml --json - -q"])
        (self.folder / "state.json").unlink()
        found, _, _ = self.asked(checks.conformance, "conformance", suite="wrong")
        told = "1 cases pass, 2 do not, 1 have what the backend refuses, 2 are left out"
        self.assertEqual(found, {name: (FAILED, f"{told}; c: element 0: expected 1, found 2; d: no such file")})

    def test_products_in_every_way(self):
        found, asked, _ = self.asked(timing.products, "products")
        self.assertEqual(len(asked), 30)
        told = "0 TFLOP/s as chosen, 0 TFLOP/s as generated code, 0 TFLOP/s without warpgroups; `f` by warpgroups, 1 µs against 2 µs"
        self.assertEqual(found["product f16 512"], (PASSED, told))

    def test_benchmarks_with_and_without_libraries_and_beside_others(self):
        found, asked, outcomes = self.asked(timing.benchmarks, "timing", ("torch", "numpy"))
        common = "bench m.onnx --backend cuda --device 0 --no-check --seconds 0.5 --wait --json -"
        self.assertEqual(asked, [f"{common} --kernels", f"{common} off", common, f"{common} --against torch", f"{common} --against torch-reduce-overhead", f"{common} --against torch-compile"])
        self.assertEqual(found["bench m without libraries"], (PASSED, "2000.0000 ms, 1000.0000 ms with 1 of 2 products and convolutions by a library"))
        self.assertEqual(found["bench m one by one"], (PASSED, "4000.0000 ms, 1000.0000 ms as one launch"))
        self.assertEqual(found["bench m against torch-compile"][0], PASSED)
        self.assertEqual(found["bench m against jax"], (NOT_RUN, "no package jax"))
        told = "\n".join(report.timings(outcomes))
        self.assertIn("2000.0000 (1 of 2)", told)
        self.assertIn("| m | 2 x f32[8, 4x4] * [16, 3x3] to 2x2 | generated code | 1 | 2 |", told)
        self.assertIn("- m: 1000.0000 ms as one launch, 4000.0000 ms one by one.", told)

    def test_without_a_library_nothing_is_compared(self):
        absent = Outcome(PASSED, "", {"notes": ["products run as generated code: there is none"], "least_seconds": 1.0})
        context = SimpleNamespace(outcomes={"bench m": absent})
        outcome = timing.without_libraries("m", self.folder / "m.onnx")(context, 10)
        self.assertEqual((outcome.status, outcome.line), (NOT_RUN, "there is none"))


class Reports(Folder):
    def test_ranks_and_means(self):
        self.assertEqual(report.ranks([3, 1, 3, 2]), [2.5, 0, 2.5, 1])
        self.assertEqual(report.spearman([(1, 10), (2, 20), (3, 25)]), 1)
        self.assertEqual(report.spearman([(1, 3), (2, 2), (3, 1)]), -1)
        self.assertIsNone(report.spearman([(1, 1), (1, 2), (1, 3)]))
        self.assertAlmostEqual(report.mean([0.5, 2]), 1)

    def test_a_report_tells_figures_failures_and_what_was_not_run(self):
        alone = {"least_seconds": 2e-3, "ratio": 0.5, "launches": 7, "idle": 0.1, "dtype": "f32", "notes": [], "kernels": [["a", 1, 2, 1e12, "x"], ["b", 2, 3, 4e12, "y"], ["c", 3, 4, 6e12, "z"]]}
        beside = {"ratio": 0.8, "ratio_quartiles": [0.75, 1.0]}
        outcomes = {
            "test t": Outcome(FAILED, "exit code 1: it differs"),
            "bench m": Outcome(PASSED, "fast", alone),
            "bench m without libraries": Outcome(PASSED, "", {"least_seconds": 2.5e-3, "chosen": 2, "products": 3}),
            "bench m against torch": Outcome(PASSED, "", beside),
            "bench m against jax": Outcome(NOT_RUN, "the Python package jax is not installed"),
            "copy on the device": Outcome(PASSED, "", {"rates": {"64 MiB": 4e12}}),
            "bandwidth softmax 64 MiB": Outcome(PASSED, "", {"rate": 3e12, "size": "64 MiB"}),
            "fuzz": Outcome(LEFT, "3 s were left"),
        }
        groups = ["tests", "timing", "timing", "timing", "timing", "bandwidth", "bandwidth", "fuzzing"]
        steps = [Step(n, g, None) for n, g in zip(outcomes, groups)]
        context = SimpleNamespace(folder=self.folder, facts=lambda: [("device", "a card")])
        text = report.write(context, steps, outcomes, ["a note"])
        for part in [
            "- device: a card",
            "- a note",
            "5 passed, 1 failed, 1 not run, 1 left",
            "**failed**: exit code 1: it differs",
            "| m | 2.0000 | 0.50 | 7 | 10 % | 1.00 | 2.5000 (2 of 3) | 1.25 (1.00–1.33) | – | – | – |",
            "f32: geometric mean 1.25 over the best of the others, 1 models; below 0.9: none.",
            "3 kernels, rank correlation: 1.00",
            "| m | 1 × b | y | 2000000.0 | 1.50 | 2000 | 0.50 |",
            "| softmax | 64 MiB | 3000 | 0.75 (too slow) |",
            "- not run: the Python package jax is not installed: bench m against jax",
            "- left for the next call: 3 s were left: fuzz",
        ]:
            self.assertIn(part, text)
        self.assertEqual(json.loads((self.folder / "report.json").read_text())["steps"]["test t"]["status"], FAILED)

    def test_without_figures_it_says_so(self):
        self.assertEqual(report.timings({})[0], "Not yet measured.")
        self.assertEqual(report.bandwidths({})[0], "Not yet measured.")


# A test program of two tests, one of which takes a while.
TESTS = r"""#!/usr/bin/env python3
import sys, time
if "--list" in sys.argv:
    print("slow: test\nfast: test")
else:
    time.sleep(1.1 if "slow" in sys.argv else 0)
    print("3 runs compared\n1 passed")
"""


class Calls(Folder):
    """Whole calls, with a tool and a test program that answer as the real ones do."""

    def setUp(self):
        super().setUp()
        for name, text in (("tool", TOOL), ("tests", TESTS)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        script = str(pathlib.Path(__file__).resolve().parents[1] / "gpu-check")
        loader = importlib.machinery.SourceFileLoader("gpu_check_script", script)
        self.script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(self.script)

    def call(self, *words, lacks=None):
        found = {"name": "a card", "capability": "9.0", "processors": 132, "cuda": "13.0", "memory": 1}
        device = mock.patch.object(machine, "device", side_effect=machine.Missing(lacks)) if lacks else mock.patch.object(machine, "device", return_value=found)
        nvrtc = mock.patch.object(machine, "nvrtc", return_value=("/lib/libnvrtc.so.13", "13.0"))
        places = ["--tool", self.folder / "tool", "--tests", self.folder / "tests", "--folder", self.folder / "out"]
        with device, nvrtc, mock.patch.dict("os.environ", {"ASKED": str(self.folder / "asked")}):
            code = self.script.main([str(w) for w in [*places, *words]])
        return code, (self.folder / "out/report.md").read_text()

    def test_calls_go_on_where_the_last_one_ended(self):
        words = ["--only", "tests", "--only", "fuzzing", "--jobs", "1", "--time", "5"]
        code, told = self.call(*words)
        self.assertEqual(code, 3)
        for part in ("- device: a card, compute capability 9.0", "- test slow: passed: 3 runs compared", "left for the next call"):
            self.assertIn(part, told)
        code, told = self.call(*words)
        self.assertEqual(code, 0)
        self.assertIn("3 steps: 3 passed", told)
        # Everything is settled, so nothing is asked for again.
        asked = (self.folder / "asked").read_text()
        self.assertEqual((self.call(*words)[0], (self.folder / "asked").read_text()), (0, asked))
        (self.folder / "tool").write_text(TOOL + "#")
        self.assertIn("the programs differ from those of earlier calls", self.call(*words)[1])

    def test_without_a_device_nothing_is_measured(self):
        code, told = self.call("--time", "5", lacks="no device: there is no driver")
        self.assertEqual((code, told.count("Not yet measured.")), (4, 2))
        self.assertIn("0 passed, 0 failed", told)
        self.assertIn("- missing: no device: there is no driver", told)


def main():
    """True is a failure to a shell."""
    with contextlib.redirect_stdout(io.StringIO()):
        result = unittest.TextTestRunner(verbosity=1).run(unittest.defaultTestLoader.loadTestsFromModule(__import__("self_test")))
    return 0 if result.wasSuccessful() else 1
