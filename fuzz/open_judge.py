"""What ONNX Runtime computes of models, and how results and files differ from what they ought to be."""
import multiprocessing
import os

import numpy as np
import onnx
import onnxruntime as ort

from onnx_sweep import quiet, reference

# By what part of the largest element results may differ.
PARTS = {"float16": 1e-3, "bfloat16": 1e-2}


def session_of(model):
    return ort.InferenceSession(model.SerializeToString(), quiet(), providers=["CPUExecutionProvider"])


# Seconds that the runtime has for one model and all of its inputs.
SECONDS = 3


def results_of(model, feeds, shapes):
    """The outputs by name for each feed, or why there are none; with `shapes`, what is declared otherwise than it is under the name ''."""
    declared = declared_of(model)
    outputs = [o.name for o in model.graph.output]
    try:
        session, names = None, outputs
        if shapes and model.graph.value_info:
            wide = onnx.ModelProto()
            wide.CopyFrom(model)
            wide.graph.output.extend(v for v in model.graph.value_info if v.name in declared)
            try:
                session, names = session_of(wide), [o.name for o in wide.graph.output]
            except Exception:
                session, names = None, outputs
        session = session or session_of(model)
    except Exception as e:
        return [first_line(e)] * len(feeds)
    found = []
    for feed in feeds:
        try:
            taken = {i.name: feed[i.name] for i in session.get_inputs() if i.name in feed}
            values = dict(zip(names, session.run(names, taken)))
        except Exception as e:
            found.append(first_line(e))
            continue
        outs = {n: values[n] for n in outputs}
        if shapes and (fault := misdeclared(model, declared, feed, values)):
            outs[""] = fault
        found.append(outs)
    return found


def first_line(e):
    return (str(e).strip().splitlines() or [type(e).__name__])[0][:300]


def declared_of(model):
    """What a model declares of its outputs, and of what it computes on the way."""
    return {v.name: v for v in [*model.graph.value_info, *model.graph.output] if v.type.WhichOneof("value") == "tensor_type"}


def misdeclared(model, declared, feed, values):
    """The first value whose declared shape is not the one it has; a name stands for one number in a run."""
    bound = {}
    inputs = {i.name: i for i in model.graph.input}
    for name, value in [*feed.items(), *values.items()]:
        info = inputs.get(name) or declared.get(name)
        if info is None or not info.type.tensor_type.HasField("shape") or not hasattr(value, "shape"):
            continue
        dims = info.type.tensor_type.shape.dim
        if len(dims) != len(value.shape):
            return f"{name} is declared with {len(dims)} axes and has {list(value.shape)}"
        for d, e in zip(dims, value.shape):
            wanted = d.dim_value if d.HasField("dim_value") else bound.setdefault(d.dim_param, e) if d.dim_param else e
            if wanted != e:
                return f"{name} is declared with {d.dim_param or d.dim_value}, which is {wanted}, and has {list(value.shape)}"
    return None


def in_child(jobs, shapes):
    """The results of all jobs, computed in a process of its own; None if it ended: a runtime may end the one that it runs in."""
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(False)

    def work():
        reader.close()
        writer.send([results_of(m, feeds, shapes) for m, feeds in jobs])
        writer.close()
        os._exit(0)

    child = context.Process(target=work)
    child.start()
    writer.close()
    try:
        found = reader.recv() if reader.poll(SECONDS + SECONDS * len(jobs) / 4) else None
    except EOFError:
        found = None
    child.kill() if found is None else None
    child.join()
    return found


def in_runtime(jobs, shapes=False):
    """For each model and its feeds, the outputs by feed, or why there are none."""
    if not jobs:
        return []
    found = in_child(jobs, shapes)
    if found is not None:
        return found
    if len(jobs) > 1:
        half = len(jobs) // 2
        return in_runtime(jobs[:half], shapes) + in_runtime(jobs[half:], shapes)
    model, feeds = jobs[0]
    if len(feeds) > 1:
        return [[out for feed in feeds for out in in_runtime([(model, [feed])], shapes)[0]]]
    return [["the runtime ended its process"] * len(feeds)]


def differ(a, b):
    """How a result differs from the right one, in a few words."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}"
    if a.dtype.kind != "f" and a.dtype.name != "bfloat16":
        return None if (a == b).all() else f"{a[a != b].ravel()[:4]} became {b[a != b].ravel()[:4]}"
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x)
    bound = PARTS.get(a.dtype.name, 1e-5) * np.abs(x[finite]).max(initial=0)
    with np.errstate(invalid="ignore"):
        off = np.where(finite, ~(np.abs(x - y) <= bound), ~((x == y) | (np.isnan(x) & np.isnan(y))))
    return f"{a[off].ravel()[:4]} became {b[off].ravel()[:4]}" if off.any() else None


def meant(item, results):
    """Whether the reference evaluator of onnx computes the item's results wherever they differ from ONNX Runtime's."""
    for (_, ins, expected), outs in zip(item.sets, results):
        if not isinstance(outs, dict):
            return False
        for i, name in enumerate(o.name for o in item.model.graph.output):
            if differ(expected[name], outs.get(name, np.zeros(()))):
                own = reference(item.model, ins, i)
                if own is None or name not in outs or differ(own, outs[name]):
                    return False
    return True


def undisputed(item):
    """The sets at which the reference evaluator of onnx computes what ONNX Runtime does; all of them if it computes nothing at any."""
    def agrees(ins, expected):
        own = [reference(item.model, ins, i) for i in range(len(expected))]
        if any(v is None for v in own):
            return None
        return not any(differ(v, o) for v, o in zip(expected.values(), own))
    found = [agrees(ins, expected) for _, ins, expected in item.sets]
    return item.sets if all(f is None for f in found) else [s for s, f in zip(item.sets, found) if f]


def dims_of(info):
    t = info.type.tensor_type
    return [d.dim_value if d.HasField("dim_value") else None for d in t.shape.dim] if t.HasField("shape") else None


def fault_of(source, written, feeds):
    """What is wrong with a written file by itself, and with its interface beside the source's: an axis that is a number now, and another one in some run."""
    try:
        onnx.checker.check_model(written, full_check=True)
    except Exception as e:
        if "Field 'shape' of 'type' is required" not in str(e) or all(i.type.tensor_type.HasField("shape") for i in source.graph.input):
            return "invalid", f"checker: {first_line(e)}"
    ours = {i.name: i for i in written.graph.input}
    for i in source.graph.input:
        if i.name not in ours:
            return "narrowed", f"the input {i.name} is gone"
        after = dims_of(ours[i.name])
        for shape in (list(f[i.name].shape) for f in feeds if i.name in f):
            if after is not None and (len(after) != len(shape) or any(e not in (None, n) for e, n in zip(after, shape))):
                return "narrowed", f"the input {i.name} of {dims_of(i)} became {after}, and is {shape} in a run"
    names = [o.name for o in source.graph.output], [o.name for o in written.graph.output]
    return ("narrowed", f"the outputs {names[0]} became {names[1]}") if names[0] != names[1] else None


def node_counts(model):
    """Its nodes, those of bodies with them; constants are none."""
    def of(graph):
        return sum((n.op_type != "Constant") + sum(of(a.g) for a in n.attribute if a.HasField("g")) for n in graph.node)
    return of(model.graph)
