"""How fast single products and convolutions run here and in other runtimes on this machine's processor, in parts of its peak:
`kernels.py [--cubes] [MODELS...]`.

--cubes times products of 64³ to 4096³; of models, every product and convolution with weights is timed once per shape. Each is a model of one node with
random weights that runs in turns here, in oneDNN (through PyTorch; its own log says that it is oneDNN), in ONNX Runtime and in OpenVINO. Convolutions here
and in oneDNN have channels last in inputs and results, as they have inside of models, and channels first in the others, whose own layouts are
others; with --channels-first all have these. Prints Markdown: of each the median in milliseconds and, in parentheses, the part of the peak in percent,
and the speed over that of the best of the others, with quartiles of turns that follow each other. The peak is that of fused multiply-adds in
registers, which the program of benches/peers measures. Needs the packages `onnx`, `onnxruntime` and `openvino` here or in the Python of MLC_PYTHON, and
`torch` in the one of `--python onednn=PATH`.
"""

import json
import math
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
import turns
from onnx import TensorProto, helper, numpy_helper

PEERS = ["onednn", "onnxruntime", "openvino"]
CUBES = [64, 128, 256, 512, 1024, 2048, 4096]
# What a turn takes at least, about, and how many operations are done in that time by a thread.
TURN = 0.005 * 50e9
# The least part of the others' speed that is worth no further work.
GOOD = 0.95
KEPT = ("group", "pads", "strides", "dilations", "kernel_shape", "auto_pad")


def extents(value):
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


def is_plane(op, x):
    return op == "Conv" and len(x) == 4


def single(op, x, w, attributes, is_last):
    """A model of one node with an input of extents `x` and weights of extents `w`; between transposes if channels come last outside."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(w).astype(np.float32) / math.sqrt(math.prod(w[1:] if op == "Conv" else w[:-1]))
    inner = ("x", "y") if not is_last else ("a", "b")
    nodes = [helper.make_node(op, [inner[0], "w"], [inner[1]], **attributes)]
    if is_last:
        nodes = [helper.make_node("Transpose", ["x"], ["a"], perm=[0, 3, 1, 2]), *nodes, helper.make_node("Transpose", ["b"], ["y"], perm=[0, 2, 3, 1])]
    given = [x[0], *x[2:], x[1]] if is_last else x
    graph = helper.make_graph(
        nodes,
        "single",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def shapes(path):
    """The products and convolutions with weights of a model: operator, extents of input and weights, attributes; and how many."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False), data_prop=True)
    graph = model.graph
    known = {v.name: extents(v) for v in [*graph.value_info, *graph.input, *graph.output]}
    weights = {t.name: list(t.dims) for t in graph.initializer}
    found = {}
    for n in graph.node:
        if n.op_type not in ("Conv", "MatMul", "Gemm") or len(n.input) < 2:
            continue
        x, w = known.get(n.input[0]), weights.get(n.input[1])
        if not x or not w or not all(x):
            continue
        attributes = {a.name: helper.get_attribute_value(a) for a in n.attribute}
        if n.op_type == "Gemm":
            if attributes.get("transA"):
                continue
            w = w[::-1] if attributes.get("transB") else w
        op = "Conv" if n.op_type == "Conv" else "MatMul"
        kept = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items() if k in KEPT and op == "Conv"}
        if op == "MatMul" and len(w) != 2:
            continue
        key = json.dumps([op, x, w, kept], sort_keys=True)
        found[key] = found.get(key, 0) + 1
    return list(found.items())


def label(op, x, w, attributes):
    if op == "MatMul":
        return f"{'×'.join(map(str, x))} · {w[0]}×{w[1]}"
    words = [f"{'×'.join(map(str, x[1:]))} by {w[0]}×{'×'.join(map(str, w[2:]))}"]
    if attributes.get("group", 1) > 1:
        words.append(f"groups {attributes['group']}")
    if any(s > 1 for s in attributes.get("strides", [])):
        words.append(f"stride {attributes['strides'][0]}")
    if any(d > 1 for d in attributes.get("dilations", [])):
        words.append(f"dilation {attributes['dilations'][0]}")
    return ", ".join(words)


class Peers:
    """Processes of the other runtimes, which load one shape after the other."""

    def __init__(self, given, threads):
        self.given, self.threads, self.running = given, threads, {}

    def ready(self, name, model, inputs):
        peer = self.running.get(name)
        if peer and peer.process.poll() is None:
            peer.load(model, inputs)
        else:
            bridge = [pathlib.Path(__file__).with_name("onednn.py")]
            peer = self.running[name] = turns.Peer(self.given, name, model, inputs, self.threads, bridge)
            peer.ready()
        return peer

    def end(self):
        for peer in self.running.values():
            peer.end()


def measured(given, peers, key, threads, folder):
    op, x, w, attributes = json.loads(key)
    is_last = is_plane(op, x) and not given.channels_first
    files = {}
    for last in {is_last, False}:
        model = single(op, x, w, attributes, last)
        path = files[last] = (folder / f"{'last' if last else 'first'}.onnx", folder / f"{'last' if last else 'first'}.npz")
        onnx.save(model, path[0])
        np.savez(path[1], x=np.random.default_rng(1).standard_normal(extents(model.graph.input[0])).astype(np.float32))
        work = 2 * math.prod(extents(model.graph.output[0])) * (w[0] if op == "MatMul" else math.prod(w[1:]))
    absent, runs = {}, {}
    own = turns.Own(given, files[is_last][0], threads, ["--no-check"], files[is_last][1])
    try:
        own.ready()
        runs["here"] = lambda n: own.seconds("optimised", n)
        for name in given.against:
            try:
                peer = peers.ready(name, *files[is_last and name == "onednn"])
                runs[name] = lambda n, peer=peer: peer.seconds("run", n)
            except turns.Absent as e:
                absent[name] = str(e)
        count = max(1, min(1000, int(TURN * threads / work)))
        times, fallen = turns.race(runs, given.seconds, count)
        versions = {name: peers.running[name].version for name in times if name in peers.running}
        return {"work": work, "times": times, "versions": versions, "absent": {**absent, **fallen}}
    except turns.Absent as e:
        return {"work": work, "times": {}, "versions": {}, "absent": {**absent, "here": str(e)}}
    finally:
        own.end()


def table(title, cases, threads, peak, result):
    """Prints the shapes, and yields the speed of each over the best of the others."""
    print(f"\n### {title}, {turns.plural(threads)}\n")
    turns.head(["shape", "nodes", "here, ms (%)", *(f"{p}, ms (%)" for p in result.against), "speed over the best"])
    speeds, absent, versions = {}, {}, {}
    for key, count in cases:
        case = label(*json.loads(key))
        r = result(key)
        times, versions = r["times"], {**versions, **{n: v.split()[0] for n, v in r["versions"].items()}}
        for who, why in r["absent"].items():
            absent.setdefault((who, why), []).append(case)
        part = lambda t: f" ({100 * r['work'] / t / peak:.0f})" if peak else ""
        cells = [f"{turns.median(times[n]) * 1e3:.3f}{part(turns.median(times[n]))}" if n in times else "" for n in ["here", *result.against]]
        peers = [n for n in result.against if n in times]
        speed = ""
        if "here" in times and peers:
            best = min(peers, key=lambda n: turns.median(times[n]))
            speeds[case] = turns.ratio(times[best], times["here"])[0]
            speed = turns.ratio_cell(times[best], times["here"])
        turns.row([case, count, *cells, speed])
    summary(speeds)
    print(f"\nVersions: {', '.join(f'{n} {v}' for n, v in versions.items())}.")
    for (who, why), names in absent.items():
        print(f"\n- {who} does not run {'; '.join(names)}: {why}")
    return {(title, case): s for case, s in speeds.items()}


def summary(speeds):
    if speeds:
        worst = sorted(speeds.items(), key=lambda item: item[1])[:5]
        name = lambda case: case if isinstance(case, str) else f"{case[0]}: {case[1]}"
        good = sum(s >= GOOD for s in speeds.values())
        print(f"\n{good} of {len(speeds)} shapes have at least {GOOD} of the speed of the best of the others; geometric mean {turns.mean(speeds.values()):.3f}.", end=" ")
        print(f"The worst: {'; '.join(f'{name(c)} {s:.2f}' for c, s in worst)}.", flush=True)


def peak_of(given, kept, threads):
    """Operations in a second; none if there is no program that measures it."""
    known = kept.get("peak", str(threads))
    if not known and given.crate.exists():
        done = subprocess.run([given.crate, "peak", str(threads)], capture_output=True, text=True, check=True)
        known = kept.put(float(done.stdout), "peak", str(threads))
    return known


class Results:
    """What is kept of a shape, or what is measured now."""

    def __init__(self, given, kept, threads, folder):
        self.given, self.kept, self.threads, self.folder = given, kept, threads, folder
        self.against, self.peers, self.now = given.against, Peers(given, threads), set()

    def __call__(self, key):
        place = ("shapes", key + (", channels first" if self.given.channels_first else ""), str(self.threads))
        # A shape that several models have is timed once.
        old = self.kept.all.get(place[0], {}).get(place[1], {}).get(place[2]) if key in self.now else self.kept.get(*place)
        if old and {*self.against} <= {*old["times"], *old["absent"]}:
            return old
        self.now.add(key)
        return self.kept.put(measured(self.given, self.peers, key, self.threads, self.folder), *place)


def main():
    parser = turns.arguments(__doc__, 0.5, of="of the turns of a shape at one number of threads")
    parser.add_argument("--cubes", action="store_true", help="products of 64³ to 4096³")
    parser.add_argument("--channels-first", action="store_true", help="in all convolutions")
    parser.add_argument("--against", type=lambda s: s.split(","), default=PEERS, help=f"runtimes, {','.join(PEERS)} by default")
    given = turns.parsed(parser)
    groups = [("Cubes", [(json.dumps(["MatMul", [n, n], [n, n], {}]), 1) for n in CUBES])] if given.cubes else []
    groups += [(name, shapes(model)) for name, model, _ in turns.models(given.models)]
    if not groups:
        parser.error("give models, or --cubes")
    kept = turns.Kept(given.json, given.again)
    with tempfile.TemporaryDirectory() as folder:
        for threads in given.threads:
            peak = peak_of(given, kept, threads)
            if peak:
                print(f"\nThe peak of {turns.plural(threads)}: {peak / 1e9:.0f} GFLOP/s.")
            results, all_speeds = Results(given, kept, threads, pathlib.Path(folder)), {}
            try:
                for title, cases in groups:
                    all_speeds |= table(title, cases, threads, peak, results)
            finally:
                results.peers.end()
            if len(groups) > 1:
                print(f"\n### All, {turns.plural(threads)}")
                summary(all_speeds)


main()
