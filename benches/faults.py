#!/usr/bin/env python3
"""Inject faults while `mlc-rewrite optimize` writes, load what is there afterwards in ONNX Runtime, write a table.

    python3 -m venv VENV && VENV/bin/pip install numpy onnx onnxruntime
    cargo build --release
    VENV/bin/python benches/faults.py [--times 25] [--tool PATH]

A model with weights inside, and one with a data file beside it, are optimised in place and through a symbolic link. Each
fault is injected so many times: the process is killed at different calls of the system (with strace, where it is there) and at
different moments, the disk is full at different bytes (a tmpfs of its own, where user namespaces allow one), the size of files is
limited, standard output is closed or full. After each, the model must load, be the old one or the new one, and give the
values of the old one; no error may be a panic. Exit code 1 if one did not. Linux only.
"""
import argparse, collections, os, pathlib, resource, shutil, signal, subprocess, sys, tempfile, time

import numpy as np, onnx, onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[1]
QUICK = ["--no-check", "--rounds", "3", "--no-sharing", "-q"]


def build(path, external):
    """Products with weights, and additions of zero that an optimiser removes."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for i in range(8):
        w = (random.standard_normal((256, 256)) / 16).astype(np.float32)
        weights += [numpy_helper.from_array(w, f"w{i}"), numpy_helper.from_array(np.zeros(256, np.float32), f"z{i}")]
        nodes += [
            helper.make_node("MatMul", [last, f"w{i}"], [f"a{i}"]),
            helper.make_node("Add", [f"a{i}", f"z{i}"], [f"b{i}"]),
            helper.make_node("Relu", [f"b{i}"], [f"c{i}"]),
        ]
        last = f"c{i}"
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 256])
    nodes[-1].output[0] = "y"
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    extra = dict(save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024) if external else {}
    onnx.save_model(model, path, **extra)


def values(path, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options).run(None, inputs)[0]


class Case:
    """One folder with a model that is optimised in place."""

    def __init__(self, base, external, link):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=base))
        self.model = self.folder / "m.onnx"
        build(self.model, external)
        self.named = self.folder / "link.onnx" if link else self.model
        if link:
            self.named.symlink_to("m.onnx")
        self.inputs = {"x": np.random.default_rng(1).standard_normal((4, 256)).astype(np.float32)}
        self.right = values(self.model, self.inputs)
        self.old = len(onnx.load(self.model, load_external_data=False).graph.node)

    def command(self, tool, external):
        more = ["--external-data", "always"] if external else []
        return [tool, "optimize", str(self.named), "-o", str(self.named), *QUICK, *more]

    def verdict(self):
        got = values(self.model, self.inputs)
        error = np.abs(got - self.right).max() / np.abs(self.right).max()
        if not error < 1e-5 or self.named != self.model and not self.named.is_symlink():
            return "WRONG"
        return "old" if len(onnx.load(self.model, load_external_data=False).graph.node) == self.old else "new"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=25)
    parser.add_argument("--tool", default=str(ROOT / "target/release/mlc-rewrite"))
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp())
    rows, bad = collections.OrderedDict(), []

    def record(fault, way, case, done):
        try:
            found = case.verdict()
        except Exception as e:
            found = "UNLOADABLE"
            print(e, file=sys.stderr)
        said = done.stderr.decode(errors="replace")
        if found.isupper() or "panicked" in said or done.returncode in (101, 134, -signal.SIGABRT, -signal.SIGSEGV):
            bad.append((fault, way, found, done.returncode, said))
        row = rows.setdefault((fault, way), collections.Counter())
        row[found] += 1
        row[f"exit {done.returncode}"] += 1
        shutil.rmtree(case.folder)

    ways = [("weights inside", False, False), ("data file beside", True, False), ("through a symbolic link", False, True)]
    for way, external, link in ways:
        case = Case(work, external, link)
        began = time.time()
        run = lambda c, **more: subprocess.run(c.command(args.tool, external), capture_output=True, **more)
        done = run(case)
        took = time.time() - began
        assert done.returncode == 0, done.stderr
        record("none", way, case, done)
        if shutil.which("strace"):
            # The last calls of the system are those of writing.
            trace = "write,pwrite64,openat,fsync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,fchmod"
            case = Case(work, external, link)
            counted = subprocess.run(
                ["strace", "-f", "-qq", "-e", f"trace={trace}", *case.command(args.tool, external)], capture_output=True
            )
            calls = [l.split("(")[0].split()[-1] for l in counted.stderr.decode(errors="replace").splitlines() if "(" in l]
            shutil.rmtree(case.folder)
            totals = collections.Counter(calls)
            points = [(name, k) for name, n in totals.items() for k in range(max(1, n - 12), n + 1)]
            for i in range(args.times * 2):
                name, k = points[i % len(points)]
                case = Case(work, external, link)
                inject = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject={name}:signal=KILL:when={k}"]
                done = subprocess.run([*inject, *case.command(args.tool, external)], capture_output=True)
                record("killed at a call of the system", way, case, done)
        for i in range(args.times):
            case = Case(work, external, link)
            process = subprocess.Popen(case.command(args.tool, external), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                out = process.communicate(timeout=took * (0.5 + 0.6 * i / args.times))
            except subprocess.TimeoutExpired:
                process.kill()
                out = process.communicate()
            record("killed at a moment", way, case, subprocess.CompletedProcess([], process.returncode, *out))
        for i in range(args.times):
            case = Case(work, external, link)
            limit = int(2.2e6 * i / args.times) + 100
            done = run(case, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
            record("file-size limit", way, case, done)
        for i in range(args.times):
            case = Case(work, external, link)
            size = case.model.stat().st_size + sum(f.stat().st_size for f in case.folder.glob("*.data"))
            full = size + int(2.2e6 * i / args.times) + 8192
            # The namespace ends with the shell, and its file system with it: what is left is copied out before.
            script = (
                f'mount -t tmpfs -o size={full} none "$1/t" && cp -a "$1"/*.onnx* "$1/t" && cd "$1/t" && shift && "$@"; '
                'code=$?; rm -f ../*.onnx*; cp -a . ..; exit $code'
            )
            (case.folder / "t").mkdir()
            command = [a.replace(str(case.folder) + "/", "") for a in case.command(args.tool, external)]
            done = subprocess.run(
                ["unshare", "-rm", "sh", "-c", script, "sh", str(case.folder), *command], capture_output=True
            )
            if b"mount" in done.stderr or b"unshare" in done.stderr:
                print("no file system of its own here:", done.stderr.decode(), file=sys.stderr)
                break
            record("full disk", way, case, done)
        for i in range(args.times):
            for fault in ("closed standard output", "full standard output"):
                case = Case(work, external, link)
                command = [a for a in case.command(args.tool, external) if a != "-q"]
                if "closed" in fault:
                    reader, writer = os.pipe()
                    os.close(reader)
                else:
                    writer = os.open("/dev/full", 1)
                done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
                os.close(writer)
                record(fault, way, case, done)
    print("| fault | in place | injected | old model whole | new model whole | exit codes |\n|---|---|--:|--:|--:|---|")
    for (fault, way), row in rows.items():
        codes = ", ".join(f"{k[5:]} ({v})" for k, v in sorted(row.items()) if k.startswith("exit"))
        n = sum(v for k, v in row.items() if not k.startswith("exit"))
        print(f"| {fault} | {way} | {n} | {row['old']} | {row['new']} | {codes} |")
    for b in bad:
        print("WRONG:", *b, file=sys.stderr)
    sys.exit(1 if bad else 0)


main()
