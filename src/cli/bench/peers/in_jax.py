"""Operators of ONNX in JAX."""


class Jax(Host):
    def __init__(self, place):
        import jax

        # f32 is f32, and indices keep their type.
        jax.config.update("jax_default_matmul_precision", "highest")
        jax.config.update("jax_enable_x64", True)
        kind, _, number = place.partition(":")
        self.jax, self.place = jax, jax.devices(kind)[int(number or 0)]
        super().__init__(jax.numpy)

    def moved(self, x):
        if isinstance(x, Bits) or getattr(x.dtype, "name", "") == "bfloat16":
            x = numpy.asarray(x).view("<u2").view(self.jax.numpy.bfloat16)
        return self.jax.device_put(numpy.asarray(x), self.place)

    def cast(self, x, code):
        return x.astype(self.jax.numpy.bfloat16 if code == BF16 else TYPES[code])

    def Relu(self, a, x):
        return self.jax.nn.relu(x)

    def Sigmoid(self, a, x):
        return self.jax.nn.sigmoid(x)

    def Erf(self, a, x):
        return self.jax.scipy.special.erf(x)

    def Clip(self, a, x, low=None, high=None):
        return self.xp.clip(x, low, high)

    def Softmax(self, a, x):
        return self.jax.nn.softmax(x, axis=a.get("axis", -1))

    def Gemm(self, a, x, w, bias=None):
        alpha, beta = (self.xp.asarray(a.get(k, 1.0), x.dtype) for k in ("alpha", "beta"))
        y = (x.T if a.get("transA") else x) @ (w.T if a.get("transB") else w) * alpha
        return y if bias is None else y + beta * bias

    def LayerNormalization(self, a, x, g, b=None):
        axes = tuple(range(a.get("axis", -1) % x.ndim, x.ndim))
        mean = x.mean(axes, keepdims=True)
        centred = x - mean
        y = centred * self.jax.lax.rsqrt((centred * centred).mean(axes, keepdims=True) + self.xp.asarray(a.get("epsilon", 1e-5), x.dtype)) * g
        return y if b is None else y + b

    def BatchNormalization(self, a, x, g, b, mean, variance):
        g, b, mean, variance = (v.reshape([-1] + [1] * (x.ndim - 2)) for v in (g, b, mean, variance))
        return (x - mean) * (g * self.jax.lax.rsqrt(variance + self.xp.asarray(a.get("epsilon", 1e-5), x.dtype))) + b

    @staticmethod
    def pads(a, rank):
        if a.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            raise ValueError("this padding is not known here")
        pads = a.get("pads", [0] * 2 * rank)
        return list(zip(pads[:rank], pads[rank:]))

    def Conv(self, a, x, w, bias=None):
        rank = x.ndim - 2
        y = self.jax.lax.conv_general_dilated(
            x, w, a.get("strides", [1] * rank), self.pads(a, rank), None, a.get("dilations", [1] * rank), feature_group_count=a.get("group", 1)
        )
        return y if bias is None else y + bias.reshape([-1] + [1] * rank)

    def ConvTranspose(self, a, x, w, bias=None):
        rank = x.ndim - 2
        if a.get("group", 1) != 1:
            raise ValueError("groups of transposed convolutions are not known here")
        strides, wide = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
        more = a.get("output_padding", [0] * rank)
        spans = [(k - 1) * d for k, d in zip(w.shape[2:], wide)]
        pads = [(s - p, s - q + m) for (p, q), s, m in zip(self.pads(a, rank), spans, more)]
        turned = self.xp.flip(w, range(2, w.ndim)).swapaxes(0, 1)
        y = self.jax.lax.conv_general_dilated(x, turned, [1] * rank, pads, strides, wide)
        return y if bias is None else y + bias.reshape([-1] + [1] * rank)

    def MaxPool(self, a, x):
        rank = x.ndim - 2
        window = (1, 1, *a["kernel_shape"])
        strides = (1, 1, *a.get("strides", [1] * rank))
        if any(d != 1 for d in a.get("dilations", [])):
            raise ValueError("dilated windows are not known here")
        pads = self.pads(a, rank)
        if a.get("ceil_mode"):
            over = [-(n + p + q - k) % s for n, (p, q), k, s in zip(x.shape[2:], pads, window[2:], strides[2:])]
            pads = [(p, q + o) for (p, q), o in zip(pads, over)]
        low = self.xp.asarray(-self.xp.inf, x.dtype)
        return self.jax.lax.reduce_window(x, low, self.jax.lax.max, window, strides, [(0, 0), (0, 0), *pads])

    def GlobalAveragePool(self, a, x):
        return x.mean(tuple(range(2, x.ndim)), keepdims=True)

    def LSTM(self, a, x, w, r, b=None, lengths=None, h=None, c=None, peephole=None):
        if lengths is not None or peephole is not None or a.get("direction", "forward") != "forward" or a.get("activations"):
            raise ValueError("this form of LSTM is not known here")
        n = a["hidden_size"]
        zero = self.xp.zeros((x.shape[1], n), x.dtype)
        gates = x @ w[0].T
        if b is not None:
            gates = gates + b[0][: 4 * n] + b[0][4 * n :]

        def step(state, gate):
            h, c = state
            i, o, f, g = self.xp.split(gate + h @ r[0].T, 4, axis=-1)
            sigmoid = self.jax.nn.sigmoid
            c = sigmoid(f) * c + sigmoid(i) * self.xp.tanh(g)
            h = sigmoid(o) * self.xp.tanh(c)
            return (h, c), h

        first = (zero if h is None else h[0], zero if c is None else c[0])
        (h, c), y = self.jax.lax.scan(step, first, gates)
        return [y[:, None], h[None], c[None]]


def jax(model, inputs, place, threads):
    import jax as library

    device = Jax(place.replace("cuda", "gpu"))
    file = File(model)
    arrays = {n: device.moved(inputs[n]) for n in file.inputs}
    f = library.jit(function(file, device, arrays))
    given = list(arrays.values())
    return library.__version__, "host", lambda: library.block_until_ready(f(*given)), lambda y: [numpy.asarray(v, "<f8") for v in y]
