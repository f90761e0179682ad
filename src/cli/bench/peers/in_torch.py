"""Operators of ONNX in PyTorch."""


class Torch(Host):
    def __init__(self, place, is_compiled=False):
        import torch

        self.torch, self.nn, self.place, self.is_compiled = torch, torch.nn.functional, place, is_compiled
        # f32 is f32.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.set_grad_enabled(False)
        super().__init__(torch)

    def given(self, x):
        """An input: on the processor no constant, else what is compiled would hold its value."""
        return self.moved(x, is_constant=self.place != "cpu")

    def moved(self, x, is_constant=True):
        # A copy that keeps what marks bf16.
        x = numpy.array(x, subok=True)
        if isinstance(x, Bits) or getattr(x.dtype, "name", "") == "bfloat16":
            x = self.torch.from_numpy(numpy.asarray(x).view("<i2").copy()).view(self.torch.bfloat16)
        else:
            x = self.torch.from_numpy(x)
        x = x.to(self.place)
        if self.is_compiled and is_constant:
            # As a module's parameters are: what is compiled would copy it in every run otherwise.
            self.torch._dynamo.mark_static_address(x)
        return x

    def is_integer(self, x):
        return isinstance(x, int) if isinstance(x, (int, float)) else not x.dtype.is_floating_point

    def permuted(self, x, order):
        return x.permute(order)

    def cast(self, x, code):
        t = self.torch
        return x.to({1: t.float32, 6: t.int32, 7: t.int64, 9: t.bool, 10: t.float16, 11: t.float64, 16: t.bfloat16}[code])

    def mean(self, x, axes, keep):
        return x.mean(dim=axes, keepdim=keep)

    def total(self, x, axes, keep):
        return x.sum(dim=axes, keepdim=keep)

    def taken(self, x, places, axis):
        if isinstance(places, int):
            return x.select(axis, places)
        if not places.ndim:
            return x.index_select(axis, places.reshape(1)).squeeze(axis)
        if axis == 0 and x.ndim == 2 and x.dtype.is_floating_point:
            return self.nn.embedding(places, x)
        rest = [*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]]
        return x.index_select(axis, places.reshape(-1)).reshape(rest)

    def joined(self, xs, axis):
        return self.torch.cat(xs, dim=axis)

    def spread(self, x, shape):
        return x.expand(shape)

    def Relu(self, a, x):
        return self.nn.relu(x)

    def Sigmoid(self, a, x):
        return self.torch.sigmoid(x)

    def Erf(self, a, x):
        return self.torch.erf(x)

    def Clip(self, a, x, low=None, high=None):
        return self.torch.clamp(x, low, high)

    def Softmax(self, a, x):
        return self.nn.softmax(x, dim=a.get("axis", -1))

    def LogSoftmax(self, a, x):
        return self.nn.log_softmax(x, dim=a.get("axis", -1))

    def Softplus(self, a, x):
        return self.nn.softplus(x)

    def ReduceMax(self, a, x, axes=None):
        return self.torch.amax(x, *self.reduced(a, x, axes))

    def LeakyRelu(self, a, x):
        return self.nn.leaky_relu(x, a.get("alpha", 0.01))

    def HardSigmoid(self, a, x):
        return self.torch.clamp(x * a.get("alpha", 0.2) + a.get("beta", 0.5), 0.0, 1.0)

    def HardSwish(self, a, x):
        return self.nn.hardswish(x)

    def Reciprocal(self, a, x):
        return self.torch.reciprocal(x)

    def IsNaN(self, a, x):
        return self.torch.isnan(x)

    def Min(self, a, x, y):
        return self.torch.minimum(x, y)

    def Max(self, a, x, y):
        return self.torch.maximum(x, y)

    def ReduceL2(self, a, x, axes=None):
        axes, keep = self.reduced(a, x, axes)
        return self.torch.linalg.vector_norm(x, dim=axes, keepdim=keep)

    def GatherElements(self, a, x, places):
        return self.torch.gather(x, a.get("axis", 0), places)

    def Pad(self, a, x, pads, value=None, axes=None):
        if a.get("mode", "constant") != "constant" or axes is not None:
            raise ValueError("this form of Pad is not known here")
        value = 0.0 if value is None else value if isinstance(value, (int, float)) else value.item()
        return self.nn.pad(x, [int(p) for i in reversed(range(x.ndim)) for p in (pads[i], pads[x.ndim + i])], value=value)

    def Resize(self, a, x, region=None, scales=None, sizes=None):
        """As PyTorch's own `interpolate` is exported."""
        mode, place = a.get("mode", "nearest"), a.get("coordinate_transformation_mode", "half_pixel")
        known = {("nearest", "asymmetric"): "nearest", ("linear", "half_pixel"): "bilinear", ("linear", "pytorch_half_pixel"): "bilinear"}
        if (mode, place) not in known or x.ndim != 4 or mode == "nearest" and a.get("nearest_mode", "round_prefer_floor") != "floor":
            raise ValueError("this form of Resize is not known here")
        sizes = [int(n * float(f)) for n, f in zip(x.shape, scales)] if sizes is None else [int(n) for n in sizes]
        align = {"align_corners": False} if mode == "linear" else {}
        return self.nn.interpolate(x, sizes[2:], mode=known[mode, place], **align)

    def InstanceNormalization(self, a, x, g, b):
        return self.nn.instance_norm(x, weight=g, bias=b, eps=a.get("epsilon", 1e-5))

    def Gemm(self, a, x, w, bias=None):
        y = (x.mT if a.get("transA") else x) @ (w.mT if a.get("transB") else w) * a.get("alpha", 1.0)
        return y if bias is None else y + a.get("beta", 1.0) * bias

    def LayerNormalization(self, a, x, g, b=None):
        return self.nn.layer_norm(x, x.shape[a.get("axis", -1) :], g, b, a.get("epsilon", 1e-5))

    def BatchNormalization(self, a, x, g, b, mean, variance):
        return self.nn.batch_norm(x, mean, variance, g, b, eps=a.get("epsilon", 1e-5))

    def padded(self, a, x, value=0.0):
        pads = a.get("pads", [0, 0, 0, 0])
        if a.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            raise ValueError("automatic padding is not known here")
        half = len(pads) // 2
        if pads[:half] == pads[half:]:
            return x, pads[:half]
        return self.nn.pad(x, [p for i in reversed(range(half)) for p in (pads[i], pads[half + i])], value=value), [0] * half

    def Conv(self, a, x, w, bias=None):
        x, pads = self.padded(a, x)
        conv = {3: self.nn.conv1d, 4: self.nn.conv2d, 5: self.nn.conv3d}[x.ndim]
        return conv(x, w, bias, a.get("strides", 1), pads, a.get("dilations", 1), a.get("group", 1))

    def ConvTranspose(self, a, x, w, bias=None):
        x, pads = self.padded(a, x)
        return self.nn.conv_transpose2d(x, w, bias, a.get("strides", 1), pads, a.get("output_padding", 0), a.get("group", 1), a.get("dilations", 1))

    def MaxPool(self, a, x):
        x, pads = self.padded(a, x, float("-inf"))
        return self.nn.max_pool2d(x, a["kernel_shape"], a.get("strides", 1), pads, a.get("dilations", 1), bool(a.get("ceil_mode")))

    def AveragePool(self, a, x):
        pads = a.get("pads", [0, 0, 0, 0])
        half = len(pads) // 2
        if a.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or pads[:half] != pads[half:] or x.ndim != 4:
            raise ValueError("this form of AveragePool is not known here")
        return self.nn.avg_pool2d(x, a["kernel_shape"], a.get("strides", 1), pads[:half], bool(a.get("ceil_mode")), bool(a.get("count_include_pad")))

    def GlobalAveragePool(self, a, x):
        return x.mean(dim=tuple(range(2, x.ndim)), keepdim=True)

    def recurrent(self, a, layer, gates, x, w, r, b, states):
        """Layers as `torch` has them: gates are `gates` of ONNX's, in that order; states are those before the first step."""
        t, n, both = self.torch, a["hidden_size"], a.get("direction", "forward") == "bidirectional"
        if a.get("direction", "forward") not in ("forward", "bidirectional") or a.get("activations") or a.get("clip") or a.get("layout"):
            raise ValueError("this form of a recurrent layer is not known here")

        def order(v):
            parts = v.split(n)
            return t.cat([parts[i] for i in gates]).contiguous()

        self.kept = getattr(self, "kept", {})
        if id(w) not in self.kept:
            bias = b if b is not None else x.new_zeros(w.shape[0], 2 * w.shape[1])
            halves = [v.split(w.shape[1]) for v in bias]
            self.kept[id(w)] = [order(v) for d in range(w.shape[0]) for v in (w[d], r[d], *halves[d])]
        states = [x.new_zeros(w.shape[0], x.shape[1], n) if s is None else s for s in states]
        y, *last = layer(x, states[0] if len(states) == 1 else states, self.kept[id(w)], True, 1, 0.0, False, both, False)
        return [y.reshape(*y.shape[:2], -1, n).permute(0, 2, 1, 3), *last]

    def LSTM(self, a, x, w, r, b=None, lengths=None, h=None, c=None, peephole=None):
        if lengths is not None or peephole is not None:
            raise ValueError("this form of LSTM is not known here")
        # ONNX: i o f c; here: i f c o.
        return self.recurrent(a, self.torch.lstm, [0, 2, 3, 1], x, w, r, b, [h, c])

    def GRU(self, a, x, w, r, b=None, lengths=None, h=None):
        if lengths is not None or not a.get("linear_before_reset"):
            raise ValueError("this form of GRU is not known here")
        # ONNX: z r h; here: r z h.
        return self.recurrent(a, self.torch.gru, [1, 0, 2], x, w, r, b, [h])


def torch(model, inputs, place, threads, mode=None):
    import torch as library

    if place == "cpu":
        library.set_num_threads(threads)
    if place == "cpu" and mode:
        from torch._inductor import config

        # Weights are constants here as they are in the other runtimes: packed and folded before the first run.
        config.freezing, config.cpp.threads = True, threads
    device = Torch(place, bool(mode))
    file = File(model)
    arrays = {n: device.given(inputs[n]) for n in file.inputs}
    f = function(file, device, arrays)
    if mode:
        f = library.compile(f, mode=mode if place == "cpu" else WITHOUT_GRAPHS[mode])
    given = list(arrays.values())
    if place == "cpu":
        return library.__version__, "host", lambda: f(*given), lambda y: [v.double().numpy() for v in y]
    on = library.cuda
    on.set_device(library.device(place))
    version, run = library.__version__, lambda: f(*given)
    aside = on.Stream()
    aside.wait_stream(on.current_stream())
    with on.stream(aside):
        for _ in range(3):
            f(*given)
    on.current_stream().wait_stream(aside)
    if mode:
        run = recorded(on, run)
        version += " as a CUDA graph"

    def timed():
        begin, end = on.Event(enable_timing=True), on.Event(enable_timing=True)
        begin.record()
        timed.results = run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    return version, "device", timed, lambda _: [v.double().cpu().numpy() for v in timed.results]


# The same modes without graphs of their own: what is compiled is recorded here, so that no run waits for this machine's checks of
# what is compiled and all its weights.
WITHOUT_GRAPHS = {"max-autotune": "max-autotune-no-cudagraphs", "reduce-overhead": "default"}


def recorded(on, run):
    """All launches of a run as one."""
    graph = on.CUDAGraph()
    with on.graph(graph):
        results = run()

    def again():
        graph.replay()
        return results

    return again


def torch_compile(model, inputs, place, threads):
    return torch(model, inputs, place, threads, "max-autotune")


def torch_reduce_overhead(model, inputs, place, threads):
    return torch(model, inputs, place, threads, "reduce-overhead")
