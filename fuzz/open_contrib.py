"""Operators of ONNX Runtime's domain com.microsoft with open axes, as its own optimiser and builders of language models write them."""
import numpy as np

from onnx_cases import F, I
from open_idioms import extent, joined

CONTRIB = {}
H, D = 2, 8
E = H * D


def case(name, since=14, until=99):
    def keep(f):
        CONTRIB.setdefault(name.split("#")[0], []).append((name, since, until, f))
        return f
    return keep


def op(k, name, *inputs, outputs=1, **attrs):
    return k.node(name, *inputs, outputs=outputs, domain="com.microsoft", **attrs)


def plain(k, *shape):
    """An input all of whose numbers are closed; its symbols are open."""
    return k.x(*shape, data=k.rng.uniform(-2, 2, [int(e) for e in shape]).astype(F))


def weight(k, *shape):
    return k.c(np.random.default_rng(shape).uniform(-1, 1, shape), F)


def as_int(k, x):
    return k.node("Cast", x, to=6)


# Attention over grouped heads: states of their own length (p), with room for more, and prompts.
KH, QH, W = 2, 4, 16


def grouped(k, batch, new, past, rotary=False, packed=False, **attrs):
    q = plain(k, batch, new, (QH + 2 * KH if packed else QH) * W)
    kv = ["", ""] if packed else [plain(k, batch, new, KH * W), plain(k, batch, new, KH * W)]
    states = [plain(k, batch, KH, past, W), plain(k, batch, KH, past, W)]
    angles = [weight(k, 40, W // 2), weight(k, 40, W // 2)] if rotary else []
    return q, states, lambda total, lengths: op(
        k, "GroupQueryAttention", q, *kv, *states, lengths, total, *angles, outputs=3, num_heads=QH, kv_num_heads=KH,
        do_rotary=int(rotary), **attrs)


def lasts(k, q, total):
    """The place of the last key of each batch entry, all of the same length."""
    return k.node("Expand", k.node("Sub", total, k.c([1], np.int32)), extent(k, q, 0))


for kind, options in [("plain", {}), ("rotary", {"rotary": True}), ("packed", {"packed": True, "rotary": True}), ("window", {"local_window_size": 3}),
                      ("softcap", {"softcap": 2.0}), ("pairs", {"rotary": True, "rotary_interleaved": 1})]:
    for batch in ("one", "open"):
        @case(f"GroupQueryAttention#grows_{kind}_{batch}")
        def _(k, options=options, batch=batch):
            b = 1 if batch == "one" else k.dim("b")
            q, states, rest = grouped(k, b, k.dim("s"), k.dim("p"), **options)
            total = as_int(k, k.node("Add", extent(k, q, 1), extent(k, states[0], 2)))
            k.out(*rest(total, lasts(k, q, total)))

        @case(f"GroupQueryAttention#masked_{kind}_{batch}")
        def _(k, options=options, batch=batch):
            # As builders of language models write it: the mask has all keys, of which the states have those before.
            b = 1 if batch == "one" else k.dim("b")
            q, _, rest = grouped(k, b, 1, k.dim("p"), **options)
            mask = k.x(b, k.dim("p") + 1, data=np.ones((int(b), int(k.dim("p")) + 1), I))
            counts = k.node("ReduceSum", k.node("Cast", mask, to=6), k.c([1]), keepdims=1)
            total = as_int(k, extent(k, mask, 1))
            k.out(*rest(total, k.node("Sub", counts, k.c([1], np.int32))))

        @case(f"GroupQueryAttention#prompt_{kind}_{batch}")
        def _(k, options=options, batch=batch):
            b = 1 if batch == "one" else k.dim("b")
            q, _, rest = grouped(k, b, k.dim("s"), 0, **options)
            total = as_int(k, extent(k, q, 1))
            k.out(*rest(total, lasts(k, q, total)))

    @case(f"GroupQueryAttention#room_{kind}")
    def _(k, options=options):
        # States as long as they will ever be; what lies behind the keys is anyone's, and is not compared.
        q, states, rest = grouped(k, 1, k.dim("s"), k.dim("r", 9), **options)
        mask = k.x(1, k.dim("s") + 2, data=np.ones((1, int(k.dim("s")) + 2), I))
        total = as_int(k, extent(k, mask, 1))
        y, key, value = rest(total, lasts(k, q, total))
        valid = [k.c([0]), k.node("Cast", total, to=7), k.c([2])]
        k.out(y, k.node("Slice", key, *valid), k.node("Slice", value, *valid))


@case("MultiHeadAttention")
def _(k):
    b, s, t = k.dim("b"), k.dim("s"), k.dim("t")
    k.out(op(k, "MultiHeadAttention", plain(k, b, s, E), plain(k, b, t, E), plain(k, b, t, E), num_heads=H))


@case("MultiHeadAttention#packed")
def _(k):
    k.out(op(k, "MultiHeadAttention", plain(k, k.dim("b"), k.dim("s"), H, 3, D), num_heads=H))


@case("MultiHeadAttention#mask")
def _(k):
    b, s = k.dim("b"), k.dim("s")
    x = [plain(k, b, s, E) for _ in range(3)]
    k.out(op(k, "MultiHeadAttention", *x, weight(k, 3 * E), "", plain(k, 1, H, s, s), num_heads=H))


@case("MultiHeadAttention#columns")
def _(k):
    b, s = k.dim("b"), k.dim("s")
    x = [plain(k, b, s, E) for _ in range(3)]
    columns = k.x(b, s, data=k.rng.integers(0, 2, (int(b), int(s))).astype(np.int32) | (np.arange(int(s)) == 0))
    k.out(op(k, "MultiHeadAttention", *x, "", columns, num_heads=H))


for causal in (0, 1):
    @case(f"MultiHeadAttention#past_{causal}")
    def _(k, causal=causal):
        b, s, p = k.dim("b"), k.dim("s"), k.dim("p")
        x = [plain(k, b, s, E) for _ in range(3)]
        k.out(*op(k, "MultiHeadAttention", *x, "", "", "", plain(k, b, H, p, D), plain(k, b, H, p, D), outputs=3, num_heads=H,
                  unidirectional=causal))

    @case(f"Attention#{causal}")
    def _(k, causal=causal):
        k.out(op(k, "Attention", plain(k, k.dim("b"), k.dim("s"), 6), weight(k, 6, 3 * E), weight(k, 3 * E), num_heads=H, unidirectional=causal))

    @case(f"Attention#past_{causal}")
    def _(k, causal=causal):
        b, s, p = k.dim("b"), k.dim("s"), k.dim("p")
        k.out(*op(k, "Attention", plain(k, b, s, 6), weight(k, 6, 3 * E), weight(k, 3 * E), "", plain(k, 2, b, H, p, D), outputs=2, num_heads=H,
                  unidirectional=causal))


for norm, more in [("SkipLayerNormalization", 2), ("SkipSimplifiedLayerNormalization", 1)]:
    @case(norm)
    def _(k, norm=norm, more=more):
        x, skip = (plain(k, k.dim("b"), k.dim("s"), E) for _ in range(2))
        y, total = op(k, norm, x, skip, *(weight(k, E) for _ in range(more)), outputs=4, epsilon=1e-5)[::3]
        k.nodes[-1].output[1] = k.nodes[-1].output[2] = ""
        k.out(y, total)

    @case(norm + "#shared")
    def _(k, norm=norm, more=more):
        s = k.dim("s")
        k.out(op(k, norm, plain(k, k.dim("b"), s, E), plain(k, 1, s, E), *(weight(k, E) for _ in range(more)), epsilon=1e-5))


@case("SimplifiedLayerNormalization")
def _(k):
    k.out(k.node("SimplifiedLayerNormalization", plain(k, k.dim("b"), k.dim("s"), E), weight(k, E), axis=-1, epsilon=1e-5))


@case("EmbedLayerNormalization")
def _(k):
    b, s = k.dim("b"), k.dim("s")
    ids = k.x(b, s, data=k.rng.integers(0, 7, (int(b), int(s))).astype(np.int32))
    k.out(*op(k, "EmbedLayerNormalization", ids, "", weight(k, 7, E), weight(k, 40, E), "", weight(k, E), weight(k, E), outputs=2))


for pairs in (0, 1):
    @case(f"RotaryEmbedding#offset_{pairs}")
    def _(k, pairs=pairs):
        k.out(op(k, "RotaryEmbedding", plain(k, k.dim("b"), k.dim("s"), E), k.c([2]), weight(k, 40, D // 2), weight(k, 40, D // 2), interleaved=pairs))

    @case(f"RotaryEmbedding#positions_{pairs}")
    def _(k, pairs=pairs):
        b, s = k.dim("b"), k.dim("s")
        places = k.x(b, s, data=k.rng.integers(0, 40, (int(b), int(s))).astype(I))
        k.out(op(k, "RotaryEmbedding", plain(k, b, H, s, D), places, weight(k, 40, D // 2), weight(k, 40, D // 2), interleaved=pairs))


for way in ("FusedMatMul", "TransposeMatMul"):
    for a, b in [(0, 0), (0, 1), (1, 0)]:
        @case(f"{way}#{a}{b}")
        def _(k, way=way, a=a, b=b):
            n, m, s = k.dim("n"), k.dim("m"), k.dim("s")
            left, right = ((k.dim("b"), *((s, n) if a else (n, s))), ((m, s) if b else (s, m)))
            k.out(op(k, way, plain(k, *left), plain(k, k.dim("b"), *right), transA=a, transB=b, alpha=0.5))


@case("FusedGemm")
def _(k):
    k.out(op(k, "FusedGemm", plain(k, k.dim("n"), 5), weight(k, 5, 4), weight(k, 4), activation="Relu"))


@case("FusedConv")
def _(k):
    x = plain(k, k.dim("b"), 4, k.dim("h", 6), k.dim("w", 5))
    k.out(op(k, "FusedConv", x, weight(k, 6, 4, 3, 3), weight(k, 6), activation="Relu", pads=[1, 1, 1, 1], strides=[2, 1]))


for bits in (4, 8):
    for level in (0, 4):
        @case(f"MatMulNBits#{bits}_{level}")
        def _(k, bits=bits, level=level):
            rng = np.random.default_rng(bits)
            packed = k.c(rng.integers(0, 256, (24, 2, 32 * bits // 8)), np.uint8)
            zeros = k.c(rng.integers(0, 256, 24 * (2 * bits // 8 or 1)), np.uint8)
            k.out(op(k, "MatMulNBits", plain(k, k.dim("b"), k.dim("s"), 64), packed, k.c(rng.uniform(0.01, 0.1, 48), F), zeros,
                     K=64, N=24, bits=bits, block_size=32, **({"accuracy_level": level} if level else {})))


for name in "Gelu FastGelu QuickGelu".split():
    case(name)(lambda k, name=name: k.out(op(k, name, plain(k, k.dim("b"), k.dim("s"), E))))
for name in "BiasGelu FastGelu".split():
    case(name + "#bias")(lambda k, name=name: k.out(op(k, name, plain(k, k.dim("b"), k.dim("s"), E), weight(k, E))))


@case("GatherBlockQuantized")
def _(k):
    rng = np.random.default_rng(3)
    rows = k.x(k.dim("b"), k.dim("s"), data=k.rng.integers(0, 4, (int(k.dim("b")), int(k.dim("s")))).astype(I))
    k.out(op(k, "GatherBlockQuantized", k.c(rng.integers(0, 256, (4, 24)), np.uint8), rows, weight(k, 4, 3), bits=4, block_size=16))


@case("LanguageModel#cache")
def _(k):
    """A step of a decoder whose positions and mask are computed from its inputs."""
    b, s, p = k.dim("b"), k.dim("s"), k.dim("p")
    x = plain(k, b, s, E)
    past = [plain(k, b, H, p, D), plain(k, b, H, p, D)]
    q, new, v = (k.node("MatMul", x, weight(k, E, E)) for _ in range(3))
    shape = joined(k, extent(k, x, 0), extent(k, x, 1), H, D)
    q, new, v = (k.node("Transpose", k.node("Reshape", y, shape), perm=[0, 2, 1, 3]) for y in (q, new, v))
    keys, values = k.node("Concat", past[0], new, axis=2), k.node("Concat", past[1], v, axis=2)
    scores = k.node("MatMul", q, k.node("Transpose", keys, perm=[0, 1, 3, 2]))
    first = k.node("Gather", k.node("Shape", past[0]), k.c(2), axis=0)
    last = k.node("Gather", k.node("Shape", keys), k.c(2), axis=0)
    row = k.node("Range", first, last, k.c(1))
    column = k.node("Range", k.c(0), last, k.c(1))
    seen = k.node("LessOrEqual", column, k.node("Reshape", row, k.c([-1, 1])))
    masked = k.node("Where", seen, scores, k.c(-1e9, F))
    k.out(k.node("MatMul", k.node("Softmax", masked, axis=-1), values), keys, values)
