#!/usr/bin/env python3
"""Writes src/onnx/export/kernels.txt: for which element types ONNX Runtime's CPU provider has code, operator by operator.

    python fuzz/onnx_kernels.py > src/onnx/export/kernels.txt        needs: onnx, onnxruntime

A line is a version of an operator and the types of one of its kernels; several lines are several kernels. Operators
without a line have no kernel of their own: a runtime writes them out by their definition, or does not know them.
"""
import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnx_types import NEWEST, SHORT

DOMAINS = ("", "com.microsoft")
FOREVER = 2147483647


def short(names):
    known = {t[len("tensor("):-1] for t in names if t.startswith("tensor(")}
    return ",".join(s for n, s in SHORT.items() if n in known) or "-"


def places(kernel, constraints, values, kind):
    """The types of the inputs or outputs of a kernel; what it does not say is as the schema says."""
    out = []
    for v in values:
        found = kernel.type_constraints.get(kind(v)) or kernel.type_constraints.get(v.name)
        out.append(short(found or constraints.get(kind(v), [kind(v)])))
    if values and values[-1].option.name == "Variadic":
        out.append("...")
    return " ".join(out) or "-"


def lines(schema, kernels, kind):
    constraints = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    dot = f"{schema.domain}." if schema.domain else ""
    for k in kernels:
        low, high = k.version_range
        of_version = low == schema.since_version or low < schema.since_version and FOREVER > high >= schema.since_version
        if of_version:
            sides = (places(k, constraints, side, kind) for side in (schema.inputs, schema.outputs))
            yield f"{dot}{schema.name} {schema.since_version}: " + " -> ".join(sides)


def main():
    print("# Element types for which ONNX Runtime's CPU provider has kernels, each from a version of the operator set on.")
    print(f"# Written by fuzz/onnx_kernels.py from onnxruntime {onnxruntime.__version__}.")
    kernels = {}
    for k in state.get_all_opkernel_def():
        if k.provider == "CPUExecutionProvider":
            kernels.setdefault((k.domain, k.op_name), []).append(k)
    schemas = [(s, lambda v: v.type_str) for s in onnx.defs.get_all_schemas_with_history()
               if s.domain == "" and s.since_version <= NEWEST and not s.deprecated]
    own = {(s.name, s.domain) for s, _ in schemas}
    schemas += [(s, lambda v: v.typeStr) for s in state.get_all_operator_schema()
                if s.domain in DOMAINS and (s.name, s.domain) not in own and not s.deprecated]
    for s, kind in sorted(schemas, key=lambda p: (p[0].domain, p[0].name, p[0].since_version)):
        found = sorted(set(lines(s, kernels.get((s.domain, s.name), []), kind)))
        print("\n".join(found), end="\n" if found else "")


main()
