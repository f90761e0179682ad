"""One product or convolution with weights in oneDNN, through PyTorch: read after the parts of `bench --against` (see `turns.py`), for `kernels.py`.

Weights are packed before the first run. A model whose node has transposes around it is run in the layout between them: channels last.
"""


def primitives(f):
    """What oneDNN says that it runs: kinds, and implementations."""
    import ctypes
    import os
    import tempfile

    import torch

    flush = lambda: ctypes.CDLL(None).fflush(None)
    with tempfile.TemporaryFile() as file:
        flush()
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
                f()
            flush()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        lines = [line.split(",") for line in file.read().decode().splitlines()]
    return [(line[i + 2], line[i + 3]) for line in lines if "exec" in line for i in [line.index("exec")]]


def onednn(model, inputs, place, threads):
    import re

    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    file = File(model)
    [node] = [n for n in file.nodes if n.operator != "Transpose"]
    is_last = len(file.nodes) > 1
    given = torch.from_numpy(numpy.array(inputs[file.inputs[0]]))
    w = torch.from_numpy(numpy.array(file.weights[node.inputs[1]]))
    one, a = torch.ops.mkldnn, node.attributes
    if node.operator == "MatMul":
        rows = given.reshape(-1, given.shape[-1])
        packed = one._reorder_linear_weight(w.T.contiguous(), rows.shape[0])
        run = lambda: one._linear_pointwise(rows, packed, None, "none", [], "").reshape([*given.shape[:-1], w.shape[1]])
    else:
        x = given.permute(0, 3, 1, 2) if is_last else given
        rank = w.ndim - 2
        pads = a.get("pads", [0] * 2 * rank)
        if pads[:rank] != pads[rank:] or a.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            raise ValueError("padding that differs from side to side is not known here")
        how = [pads[:rank], a.get("strides", [1] * rank), a.get("dilations", [1] * rank), a.get("group", 1)]
        w = w.to(memory_format=torch.channels_last) if is_last else w
        packed = one._reorder_convolution_weight(w, *how, list(x.shape))
        conv = lambda: one._convolution_pointwise(x, packed, None, *how, "none", [], "")
        run = (lambda: conv().permute(0, 2, 3, 1)) if is_last else (lambda: conv().contiguous())
    run()
    ran = primitives(run)
    kinds = [name for kind, name in ran if kind in ("convolution", "inner_product", "matmul")]
    if not kinds:
        raise ValueError(f"it is not oneDNN that computes this, but {ran}")
    [version] = re.findall(r"MKL-DNN (v[\d.]+)", torch.__config__.show())
    return f"{version} {kinds[0]}", "host", run, lambda y: [y.double().numpy()]
