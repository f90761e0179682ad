#!/usr/bin/env python3
"""Runs at extents that vary from one to the next, beside ONNX Runtime and OpenVINO: first runs at each extent, the same again, and memory.

    python3 benches/varying.py MODEL.onnx INPUT=AXES... --symbol n=1..128 [--count 24] [--threads 1] [--grow] [--peers onnxruntime,openvino]
                               [--feed present=past | --callers 4]

AXES are numbers, symbols, or sums and products of them such as `past+1` and `32*h`. Every symbol is drawn anew for each run, or grows from its first number by one
with `--grow`, as the length of a cache does. Every runtime has a process of its own, which is given the same arrays: ones of integers and truth values,
sixteenths of real numbers. Prints seconds of all first runs and of all second ones, bytes of memory before and after, each also as a part of the best
peer's, and how far the sums of the outputs differ. Our side is the example `varying`, built with `--release`.

With `--feed present=past` every output whose name begins with `present` is the next run's input whose name begins with `past` instead, without a copy:
by a binding here, by `io_binding` in ONNX Runtime; such inputs are given once, and there are no second runs. With every run is made by so many threads, over and over for two seconds, and its time is that of a run, all threads together.
"""
import argparse
import math
import pathlib
import random
import re
import sys
import time

from turns import PAUSE, Absent, Process

ROOT = pathlib.Path(__file__).resolve().parents[1]
OURS = ROOT / "target/release/examples/varying"


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def filled(numpy, kind, shape):
    """The array that the example makes, too."""
    if "float" not in kind:
        return numpy.ones(shape, "bool" if "bool" in kind else "int32" if "32" in kind else "int64")
    count = int(numpy.prod(shape))
    return (((numpy.arange(1, count + 1) % 17).astype("float32") - 8) / 16).reshape(shape)


class Fed:
    """Runs of ONNX Runtime whose outputs are the next inputs, where they lie."""

    def __init__(self, session, feed):
        before, after = feed.split("=")
        self.session, self.state = session, {}
        outputs = [o.name for o in session.get_outputs()]
        self.pairs = {o: after + o[len(before):] for o in outputs if o.startswith(before)}
        self.others = [o for o in outputs if o not in self.pairs]

    def __call__(self, arrays):
        import onnxruntime

        binding = self.session.io_binding()
        fed = set(self.pairs.values())
        for name, array in arrays.items():
            if name not in fed:
                binding.bind_cpu_input(name, array)
            elif name not in self.state:
                self.state[name] = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        for name, value in self.state.items():
            binding.bind_ortvalue_input(name, value)
        names = [*self.pairs, *self.others]
        for name in names:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        got = dict(zip(names, binding.get_outputs()))
        self.state = {i: got[o] for o, i in self.pairs.items()}
        return [got[o].numpy() for o in self.others]


def repeated(run, arrays, callers):
    """Seconds of a run, all threads together, and its outputs."""
    import threading

    outputs, counts, start = run(arrays), [0] * callers, time.perf_counter()

    def caller(i):
        while time.perf_counter() - start < 2:
            run(arrays)
            counts[i] += 1

    threads = [threading.Thread(target=caller, args=(i,)) for i in range(callers)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return (time.perf_counter() - start) / sum(counts), outputs


def peer(name, path, threads, feed, callers):
    """Answers lines as the example does, in another runtime."""
    import numpy

    if name == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        kinds = {i.name: i.type for i in session.get_inputs()}
        run = Fed(session, feed) if feed else lambda arrays: session.run(None, arrays)
    else:
        import openvino

        core = openvino.Core()
        session = core.compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
        kinds = {}
        for i in session.inputs:
            kind = i.get_element_type().get_type_name().replace("f32", "float").replace("boolean", "bool")
            kinds.update({n: kind for n in i.get_names()})
        request = session.create_infer_request()
        run = lambda arrays: list(request.infer(arrays).values())
    print("ready", resident(), flush=True)
    for line in sys.stdin:
        words = dict(word.split("=") for word in line.split())
        arrays = {n: filled(numpy, kinds[n], [int(d) for d in s.split(",") if d]) for n, s in words.items()}
        start = time.perf_counter()
        if callers:
            seconds, outputs = repeated(run, arrays, callers)
        else:
            outputs = run(arrays)
            seconds = time.perf_counter() - start
        total = sum(float(numpy.asarray(o, "float64").sum()) for o in outputs if getattr(o, "dtype", None) == numpy.float32)
        print(seconds, resident(), total, flush=True)


class Side(Process):
    """A process that runs the model at the extents that it is told."""

    def __init__(self, name, command, patience):
        super().__init__(command, patience)
        self.name = name
        self.before = self.after = int(self.line().split()[1])

    def run(self, line):
        time.sleep(PAUSE)
        self.tell(line)
        seconds, after, total = self.line().split()
        self.after = int(after)
        return float(seconds), float(total)


def extent(text, values):
    number = lambda t: values[t] if t in values else int(t)
    return sum(math.prod(map(number, term.split("*"))) for term in text.split("+"))


def drawn(args):
    """The line of every run."""
    ranges = {}
    for text in args.symbol:
        name, low, high = re.fullmatch(r"(\w+)=(\d+)\.\.(\d+)", text).groups()
        ranges[name] = (int(low), int(high))
    rng, lines = random.Random(args.seed), []
    for i in range(args.count):
        values = {n: min(low + i, high) if args.grow else rng.randint(low, high) for n, (low, high) in ranges.items()}
        shapes = (word.split("=") for word in args.inputs)
        lines.append(" ".join(f"{n}=" + ",".join(str(extent(a, values)) for a in axes.split(",") if a) for n, axes in shapes))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--symbol", action="append", default=[])
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--as-read", action="store_true")
    parser.add_argument("--feed", default="")
    parser.add_argument("--callers", type=int, default=0)
    parser.add_argument("--peers", default="onnxruntime,openvino")
    parser.add_argument("--ours", default=OURS)
    parser.add_argument("--patience", type=float, default=600)
    args = parser.parse_args()
    lines = drawn(args)
    flags = ["--as-read"] * args.as_read + ["--bind"] * bool(args.feed)
    flags += ["--callers", args.callers] if args.callers else []
    sides = [Side("mlc-rewrite", [args.ours, args.model, args.threads, *flags], args.patience)]
    for name in filter(None, args.peers.split(",")):
        sides.append(Side(name, [sys.executable, __file__, "--peer", name, args.model, args.threads, args.feed, args.callers], args.patience))
    rounds, sums = {s.name: [[], []] for s in sides}, {s.name: [] for s in sides}
    for again in range(1 if args.feed else 2):
        for line in lines:
            for side in sides:
                seconds, total = side.run(line)
                rounds[side.name][again].append(seconds)
                sums[side.name].append(total)
    best = {again: min((sum(rounds[s.name][again]) for s in sides[1:]), default=None) for again in range(2)}
    print("| runtime | first runs, s | longest, ms | second runs, s | first / best peer | second / best peer | MiB before | MiB after |")
    print("|---|---|---|---|---|---|---|---|")
    for side in sides:
        first, second = rounds[side.name]
        part = [f"{sum(r) / best[i]:.2f}" if best[i] else "" for i, r in enumerate((first, second))]
        print(f"| {side.name} | {sum(first):.3f} | {1e3 * max(first):.1f} | {sum(second):.3f} | {part[0]} | {part[1]} |"
              f" {side.before / 2**20:.0f} | {side.after / 2**20:.0f} |")
    for side in sides[1:]:
        off = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(sums[sides[0].name], sums[side.name]))
        print(f"sums of the outputs differ from {side.name}'s by {off:.1e} at most, as a part of them")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
    else:
        try:
            main()
        except Absent as e:
            raise SystemExit(str(e)) from None
