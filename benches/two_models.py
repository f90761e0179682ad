"""Whether what other tools make of models is equal to them: `two_models.py FOLDER [MODEL]...`.

Every MODEL (an `.onnx` file, or a folder that has some) is given to each tool, the result lies in FOLDER, and
`mlc-rewrite explain MODEL RESULT` is asked. Prints a Markdown table: the answer, its seconds, what was found. Then, with
`--planted N`, one operator or one constant of a model is changed at random, seeded, N times, and the explanation has to
say that the models are not equal and name the node that was changed or one that reads it. Changes of which ONNX Runtime makes no model are drawn anew. Exit code 1 if a change was not found.
A tool that is not installed or fails on a model is told. Needs numpy, onnx and onnxruntime; onnxsim, onnxslim and
onnxscript if they are asked for.

Options: `--tools A,B` of `ort-basic`, `ort-extended`, `onnxsim`, `onnxslim`, `onnxscript`; `--planted N`, `--seed S`,
`--most MEGABYTES` of models that changes are planted into, `--seconds S` that an answer may take, `--tool FILE`,
`--give NAME='ARGUMENTS'` for a model that needs some, as `--give silero_vad='--value sr=16000'`; `--json FILE`.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import numpy_helper

TOOL = pathlib.Path(__file__).resolve().parents[1] / "target/release/mlc-rewrite"
TOOLS = ["ort-basic", "ort-extended", "onnxsim", "onnxslim", "onnxscript"]

# Operators of one result whose change alters numbers and no shapes.
SWAPPED = {
    "Add": "Sub", "Sub": "Add", "Mul": "Add", "Div": "Mul", "Relu": "Abs", "Sigmoid": "Tanh", "Tanh": "Sigmoid",
    "Sqrt": "Abs", "Exp": "Tanh", "Erf": "Tanh", "MaxPool": "AveragePool", "ReduceMean": "ReduceSum",
    "ReduceMax": "ReduceMin", "Softmax": "LogSoftmax", "Log": "Exp", "Neg": "Abs",
}


def offline(level):
    def written(source, to):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = str(to)
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])

    return written


def onnxsim(source, to):
    import onnxsim

    made, held = onnxsim.simplify(str(source))
    if not held:
        raise RuntimeError("onnxsim's own check failed")
    onnx.save(made, to)


def onnxslim(source, to):
    import onnxslim

    onnx.save(onnxslim.slim(str(source)), to)


def onnxscript(source, to):
    import onnxscript.optimizer

    onnx.save(onnxscript.optimizer.optimize(onnx.load(source)), to)


def with_tool(tool, source, to):
    """Writes what a tool makes of a model, in a process of its own; why not, if it does not."""
    if to.exists():
        return None
    to.parent.mkdir(parents=True, exist_ok=True)
    # What is written may go on reading the model's data files.
    for data in source.parent.glob("*.bin"):
        if not (to.parent / data.name).exists():
            shutil.copy(data, to.parent / data.name)
    command = [sys.executable, __file__, "--as", tool, str(source), str(to)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode == 0 and to.exists():
        return None
    to.unlink(missing_ok=True)
    lines = [line for line in (done.stderr or "").strip().splitlines() if line.strip()]
    return lines[-1][:120] if lines else f"exit code {done.returncode}"


def asked(args, a, b):
    """The report of `explain A B`, its exit code and its seconds."""
    begin = time.monotonic()
    given = [g.split("=", 1)[1].split() for g in args.give if g.split("=", 1)[0] == called(a)]
    command = [args.tool, "explain", str(a), str(b), "--json", "-", "-q", *sum(given, [])]
    limit = args.seconds
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, None, limit, "not ended in time"
    seconds = time.monotonic() - begin
    report = json.loads(done.stdout) if done.stdout.startswith("{") else None
    return report, done.returncode, seconds, done.stderr.strip().split("\n")[0][:160]


def models(paths):
    for path in map(pathlib.Path, paths):
        yield from sorted(path.rglob("*.onnx")) if path.is_dir() else [path]


def called(path):
    return path.parent.name if path.stem == "model" else path.stem


def told(report):
    if report["answer"] == "equal":
        return f"{len(report['laws'])} laws"
    regions = report["regions"]
    if not regions:
        return ""
    first = regions[0]
    return f"{len(regions)} regions; first at `{first['a']['value']}`: {first['difference']['words'] if first.get('difference') else 'agrees'}"


def held(args, out):
    print("| model | nodes | made by | answer | seconds | |\n|---|---|---|---|---|---|", flush=True)
    for source in models(args.models):
        nodes = len(onnx.load(source, load_external_data=False).graph.node)
        for tool in args.tools.split(","):
            to = args.folder / called(source) / f"{tool}.onnx"
            why = with_tool(tool, source, to)
            row = {"model": called(source), "nodes": nodes, "tool": tool}
            if why:
                row |= {"answer": "no file", "what": why}
            else:
                report, code, seconds, said = asked(args, source, to)
                row |= {"seconds": seconds, "code": code, "report": report}
                row |= {"answer": report["answer"], "what": told(report)} if report else {"answer": "refused", "what": said}
            out.append(row)
            seconds = f"{row['seconds']:.1f}" if "seconds" in row else ""
            print(f"| {row['model']} | {nodes} | {tool} | {row['answer']} | {seconds} | {row['what']} |", flush=True)


def changed(model, rng):
    """Changes one operator or constant of a model; the names of the nodes where that is."""
    graph = model.graph
    live = set(o.name for o in graph.output)
    for node in reversed(graph.node):
        if live & set(node.output):
            live |= set(node.input)
    nodes = [n for n in graph.node if live & set(n.output)]
    stored = {t.name: t for t in graph.initializer}
    for node in nodes:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                stored[node.output[0]] = attribute.t
    if rng.random() < 0.5:
        node = rng.choice([n for n in nodes if n.op_type in SWAPPED])
        before, node.op_type = node.op_type, SWAPPED[node.op_type]
        if node.op_type == "AveragePool":
            kept = [a for a in node.attribute if a.name not in ("storage_order", "dilations")]
            del node.attribute[:]
            node.attribute.extend(kept)
        return f"{before} became {node.op_type}", [node]
    floats = [n for n, t in stored.items() if t.data_type == onnx.TensorProto.FLOAT and n in live]
    name = rng.choice(sorted(floats))
    array = np.array(numpy_helper.to_array(stored[name]))
    at = rng.randrange(array.size)
    size = float(np.abs(array).max())
    array.reshape(-1)[at] += 0.5 * size if size else 0.5
    new = numpy_helper.from_array(array, name)
    stored[name].CopyFrom(new)
    return f"element {at} of `{name}` of {array.size} moved by half of the largest", [n for n in nodes if name in n.input]


def plant(small, rng, to):
    """Writes a model with a change that ONNX Runtime loads; the model, what was changed, and the nodes where that is."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    while True:
        source = rng.choice(small)
        model = onnx.load(source)
        what, nodes = changed(model, rng)
        onnx.save(model, to)
        try:
            ort.InferenceSession(str(to), options, providers=["CPUExecutionProvider"])
        except Exception:
            continue
        return source, what, nodes


def planted(args, out):
    rng = random.Random(args.seed)
    args.folder.mkdir(parents=True, exist_ok=True)
    small = [m for m in models(args.models) if m.stat().st_size + data(m) <= args.most * 1e6]
    print("\n| model | changed | answer | placed | seconds | first difference |\n|---|---|---|---|---|---|", flush=True)
    missed = 0
    for i in range(args.planted):
        to = args.folder / f"planted.{i}.onnx"
        source, what, nodes = plant(small, rng, to)
        report, code, seconds, said = asked(args, source, to)
        names = {n.name for n in nodes} | {o for n in nodes for o in n.output} - {""}
        regions = report["regions"] if report else []
        # A change beneath the rounding of what reads it is no difference of numbers: then its place is told, and that nothing shows it.
        found = bool(report) and report["answer"] != "equal"
        region = set(sum((r[side]["nodes"] for r in regions[:1] for side in "ab"), []))
        size = max([len(r[side]["nodes"]) for r in regions[:1] for side in "ab"], default=0)
        placed = found and bool(names & region)
        missed += not placed
        row = {"model": called(source), "changed": what, "nodes": sorted(names), "report": report}
        out.append(row | {"placed": placed, "seconds": seconds})
        answer = report["answer"] if report else f"refused: {said}"
        print(f"| {called(source)} | {what} | {answer} | {f'yes, among {size}' if placed else 'no'} | {seconds:.1f} | {told(report) if report else ''} |", flush=True)
        to.unlink()
    print(f"\n{args.planted - missed} of {args.planted} changes are found and placed.")
    return missed


def data(path):
    return sum(f.stat().st_size for f in path.parent.glob("weights.bin"))


def main():
    made = {"ort-basic": offline("ORT_ENABLE_BASIC"), "ort-extended": offline("ORT_ENABLE_EXTENDED")}
    made |= {"onnxsim": onnxsim, "onnxslim": onnxslim, "onnxscript": onnxscript}
    if sys.argv[1:2] == ["--as"]:
        made[sys.argv[2]](pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--planted", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tool", default=os.environ.get("MLC_REWRITE", str(TOOL)))
    parser.add_argument("--give", action="append", default=[])
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    out = []
    if args.tools:
        held(args, out)
    missed = planted(args, out) if args.planted else 0
    if args.json:
        args.json.write_text(json.dumps(out, indent=1))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
