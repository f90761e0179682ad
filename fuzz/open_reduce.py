"""Making a failing example smaller: fewer outputs and nodes, values in place of what computes them."""
import onnx
from onnx import helper

from open_judge import in_runtime


def cut(model, outputs, inputs):
    """The model that computes `outputs` from what it takes and from `inputs`, values that it computed; None if they have no known type."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    known = {v.name: v for v in [*inferred.graph.value_info, *inferred.graph.output]}
    if any(v not in known or not known[v].type.tensor_type.elem_type for v in [*outputs, *inputs]):
        return None
    needed, nodes = set(outputs) - set(inputs), []
    for n in reversed(model.graph.node):
        if needed & set(n.output):
            needed |= set(used_by(n)) - set(inputs)
            nodes.insert(0, n)
    wanted = {i for n in nodes for i in used_by(n)}
    m = onnx.ModelProto()
    m.CopyFrom(model)
    taken = [i for i in model.graph.input if i.name in wanted] + [known[i] for i in inputs if i in wanted]
    for field, kept in [(m.graph.node, nodes), (m.graph.output, [known[o] for o in outputs]), (m.graph.input, taken),
                        (m.graph.initializer, [t for t in model.graph.initializer if t.name in wanted])]:
        kept = [type(k).FromString(k.SerializeToString()) for k in kept]
        del field[:]
        field.extend(kept)
    return m if nodes else None


def used_by(node):
    """The values that a node reads, its bodies included."""
    found = [i for i in node.input if i]
    for a in node.attribute:
        if a.HasField("g"):
            own = {o for n in a.g.node for o in n.output} | {i.name for i in a.g.input} | {t.name for t in a.g.initializer}
            found += [i for n in a.g.node for i in used_by(n) if i not in own] + [o.name for o in a.g.output if o.name not in own]
    return found


def again(item, model, inputs):
    """The item with a smaller model, and what ONNX Runtime computes of it; None if it computes nothing."""
    wide = onnx.ModelProto()
    wide.CopyFrom(item.model)
    wide.graph.output.extend(helper.make_empty_tensor_value_info(v) for v in inputs)
    values = in_runtime([(wide, [ins for _, ins, _ in item.sets])])[0] if inputs else [{}] * len(item.sets)
    taken = {i.name for i in model.graph.input}
    sets = [(at, {k: v for k, v in {**ins, **more}.items() if k in taken}) for (at, ins, _), more in zip(item.sets, values) if isinstance(more, dict)]
    outs = in_runtime([(model, [ins for _, ins in sets])])[0]
    kept = [(at, ins, out) for (at, ins), out in zip(sets, outs) if isinstance(out, dict)]
    return type(item)(item.title, item.op, model, kept) if kept else None


def reduced(item, failing, effort):
    """A smaller item that fails in the same way, after at most `effort` tries."""
    best = item
    tries = iter(range(effort))

    def attempt(outputs, inputs):
        nonlocal best
        if next(tries, None) is None:
            return False
        try:
            model = cut(best.model, outputs, inputs)
            if model is None or len(model.graph.node) >= len(best.model.graph.node) and len(outputs) >= len(best.model.graph.output):
                return False
            smaller = again(best, model, inputs)
        except Exception:
            return False
        if smaller is None or not failing(smaller):
            return False
        best = smaller
        return True

    values = [o for n in best.model.graph.node for o in n.output if o]
    if len(values) > 1:
        next((v for v in values if attempt([v], [])), None)
    outputs = [o.name for o in best.model.graph.output]
    inner = [o for n in reversed(best.model.graph.node) for o in n.output if o and o not in outputs]
    for v in inner:
        if any(v in n.output for n in best.model.graph.node):
            attempt(outputs, [v])
    return best
