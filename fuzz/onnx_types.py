#!/usr/bin/env python3
"""Writes src/onnx/export/types.txt: which element types the operators of ONNX take and yield, and which attributes they have,
version by version.

    python fuzz/onnx_types.py > src/onnx/export/types.txt        needs: onnx
"""
import onnx

SHORT = {
    "float16": "f16", "bfloat16": "bf16", "float": "f32", "double": "f64", "bool": "bool",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float8e4m3fn": "f8e4m3fn", "float8e4m3fnuz": "f8e4m3fnuz", "float8e5m2": "f8e5m2",
    "float8e5m2fnuz": "f8e5m2fnuz", "float8e8m0": "f8e8m0", "float6e2m3": "f6e2m3", "float6e3m2": "f6e3m2",
    "float4e2m1": "f4e2m1", "int4": "i4", "uint4": "u4", "int2": "i2", "uint2": "u2", "string": "str",
}
NEWEST = 28
OPTION = onnx.defs.OpSchema.FormalParameterOption


def types(schema, value):
    """The types of an input or output that are known here, in a fixed order; `?` before those of one that may be left out."""
    allowed = next((c.allowed_type_strs for c in schema.type_constraints
                    if c.type_param_str == value.type_str), [value.type_str])
    names = {t[len("tensor("):-1] for t in allowed if t.startswith("tensor(")}
    mark = "?" if value.option == OPTION.Optional else ""
    return mark + (",".join(s for n, s in SHORT.items() if n in names) or "-")


def attributes(schema):
    """The attributes, `!` behind those that must be given."""
    names = (n + ("!" if a.required else "") for n, a in sorted(schema.attributes.items()))
    return " ".join(names) or "-"


def line(schema):
    def side(values):
        parts = [types(schema, v) for v in values]
        if values and values[-1].option == OPTION.Variadic:
            parts.append("...")
        return " ".join(parts) or "-"
    return f"{schema.name} {schema.since_version}: {side(schema.inputs)} -> {side(schema.outputs)} | {attributes(schema)}"


def main():
    print("# Element types that ONNX's operators take and yield, and their attributes, each from a version of the operator set on.")
    print(f"# Written by fuzz/onnx_types.py from the schemas of onnx {onnx.__version__}, up to version {NEWEST}.")
    schemas = [s for s in onnx.defs.get_all_schemas_with_history()
               if s.domain == "" and s.since_version <= NEWEST and not s.deprecated]
    for s in sorted(schemas, key=lambda s: (s.name, s.since_version)):
        print(line(s))


if __name__ == "__main__":
    main()
