"""Models in f16 and bf16: a model in f32 whose floats, weights and all, become those of half the size. Needs the package `onnx`."""

FLOAT = 1
HALVES = {"f16": 10, "bf16": 16}
OPSET = 22
# The largest finite number of bf16.
LARGEST = float.fromhex("0x1.FEp127")


def written(path, folder, dtype):
    """The file of a model in another element type, written unless it is there; in words why not, if it cannot be."""
    out = folder / f"{path.parent.name if path.stem == 'model' else path.stem}_{dtype}" / "model.onnx"
    if out.exists():
        return out
    try:
        import onnx
        import onnx.version_converter
        from onnx import numpy_helper
    except ImportError as e:
        return f"the Python package {e.name} is not installed, which {dtype} models are written with"
    model = onnx.load(path, load_external_data=dtype == "f16")
    code = HALVES[dtype]
    if dtype == "bf16":
        # Convolutions and pooling take it from this operator set on.
        try:
            model = onnx.version_converter.convert_version(model, max(OPSET, model.opset_import[0].version))
        except RuntimeError as e:
            return f"the model cannot be brought to operator set {OPSET}, which bf16 needs: {' '.join(str(e).split())[:200]}"
        onnx.load_external_data_for_model(model, str(path.parent))
    if dtype == "f16":
        import numpy

        most = float(numpy.finfo(numpy.float16).max)

    def half(tensor):
        if tensor.data_type != FLOAT:
            return
        values = numpy_helper.to_array(tensor)
        name, dims = tensor.name, list(tensor.dims)
        if dtype == "f16":
            # Masks are often filled with the lowest number of 32 bits.
            finite = numpy.isfinite(values)
            raw = numpy.where(finite, values.clip(-most, most), values).astype("<f2").tobytes()
        else:
            raw = rounded(values)
        tensor.Clear()
        tensor.name, tensor.data_type, tensor.raw_data = name, code, raw
        tensor.dims.extend(dims)

    def typed(value):
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.elem_type = code

    graph = model.graph
    for tensor in graph.initializer:
        half(tensor)
    for value in [*graph.input, *graph.output]:
        typed(value)
    del graph.value_info[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                half(attribute.t)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == FLOAT:
                attribute.i = code
            elif attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                return f"a model with graphs inside ({node.op_type}) is not turned into {dtype}"
    out.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, out, save_as_external_data=True, location="weights.bin")
    return out


def rounded(values):
    """The upper halves of 32-bit floats, rounded to the nearest, ties to even."""
    import numpy

    # Masks are often filled with the lowest number of 32 bits, which would become infinite.
    finite = numpy.isfinite(values)
    values = numpy.where(finite, values.clip(-LARGEST, LARGEST), values)
    bits = numpy.ascontiguousarray(values, "<f4").view("<u4").astype(numpy.uint64)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return numpy.where(numpy.isnan(values), quiet, nearest).astype("<u2").tobytes()
