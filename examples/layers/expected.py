"""What NumPy computes of the formulas of these layers, in double precision: `python expected.py` writes `expected.txt`.

Every layer is a function of arrays; the arrays are numbers that an integer formula yields (`values`), so that tests need no
Python. A line of the table is `layer NAME`, `input NAME SHAPE`, or `output SHAPE : ELEMENTS`.
"""

import math
import os

import numpy as np

LAYERS = {}


def values(k, shape):
    """Elements of the input number `k`, from -1 to 1, as 32-bit floats."""
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    v = (31 * i * i + 856 * i + 211 * k + 97) % 1009
    return (v / 504.0 - 1.0).astype(np.float32).astype(np.float64).reshape(shape)


def layer(**shapes):
    def keep(f):
        LAYERS[f.__name__] = (f, shapes)
        return f

    return keep


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.log1p(np.exp(x))


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def relu(x):
    return np.maximum(x, 0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def turned(x):
    return np.swapaxes(x, -1, -2)


@layer(u=(2, 5, 3), z=(2, 5, 3), delta=(2, 5, 3), a=(3, 4), p=(2, 5, 4), q=(2, 5, 4), skip=(3,))
def mamba(u, z, delta, a, p, q, skip):
    dt, h, y = softplus(delta), np.zeros((2, 3, 4)), np.zeros((2, 5, 3))
    for t in range(5):
        h = np.exp(dt[:, t, :, None] * -np.exp(a)) * h
        h = h + dt[:, t, :, None] * p[:, t, None, :] * u[:, t, :, None]
        y[:, t] = (h * q[:, t, None, :]).sum(-1)
    return (y + skip * u) * silu(z)


@layer(x=(2, 4, 3), mk=(3,), mv=(3,), mr=(3,), wk=(3, 3), wv=(3, 3), wr=(3, 3), w=(3,), u=(3,))
def rwkv(x, mk, mv, mr, wk, wv, wr, w, u):
    last = np.concatenate([np.zeros((2, 1, 3)), x[:, :-1]], 1)
    k = (mk * x + (1 - mk) * last) @ wk
    v = (mv * x + (1 - mv) * last) @ wv
    r = (mr * x + (1 - mr) * last) @ wr
    a, b, y = np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 4, 3))
    for t in range(4):
        y[:, t] = (a + np.exp(u + k[:, t]) * v[:, t]) / (b + np.exp(u + k[:, t]))
        a = np.exp(-w) * a + np.exp(k[:, t]) * v[:, t]
        b = np.exp(-w) * b + np.exp(k[:, t])
    return sigmoid(r) * y


@layer(x=(2, 5, 4), wf=(4, 3), wc=(4, 3), uf=(3, 3), uc=(3, 3), bf=(3,), bc=(3,))
def mgu(x, wf, wc, uf, uc, bf, bc):
    h, out = np.zeros((2, 3)), np.zeros((2, 5, 3))
    for t in range(5):
        f = sigmoid(x[:, t] @ wf + h @ uf.T + bf)
        c = np.tanh(x[:, t] @ wc + (f * h) @ uc.T + bc)
        h = (1 - f) * h + f * c
        out[:, t] = h
    return out


@layer(x=(5, 4), gate=(4, 3), up=(3, 4, 6), down=(3, 6, 4))
def moe(x, gate, up, down):
    out = np.zeros_like(x)
    for t, row in enumerate(x):
        scores = row @ gate
        top = np.argsort(-scores)[:2]
        for w, e in zip(softmax(scores[top]), top):
            out[t] += w * (relu(row @ up[e]) @ down[e])
    return out


@layer(x=(4, 3), w=(3, 4, 2), v=(3, 2))
def kan(x, w, v):
    centre = np.linspace(-2, 2, 4)
    bases = np.exp(-(((x[:, :, None] - centre) / (4 / 3)) ** 2))
    return np.einsum("big,igo->bo", bases, w) + silu(x) @ v


@layer(x=(2, 6, 4))
def fnet(x):
    return np.fft.fft2(x).real


@layer(x=(2, 6, 2), offset=(2, 6, 3), w=(3, 2, 4))
def deformable(x, offset, w):
    out = np.zeros((2, 6, 4))
    at = lambda b, i: x[b, i] if 0 <= i < 6 else np.zeros(2)
    for b, t, k in np.ndindex(2, 6, 3):
        p = t + k - 1 + offset[b, t, k]
        i, part = math.floor(p), p - math.floor(p)
        out[b, t] += ((1 - part) * at(b, i) + part * at(b, i + 1)) @ w[k]
    return out


def distances(s):
    return np.arange(s)[:, None] - np.arange(s)[None, :]


@layer(q=(2, 2, 3, 6, 4), k=(2, 2, 6, 4), v=(2, 2, 6, 5))
def window_gqa(q, k, v):
    scores = q @ turned(k)[:, :, None] / math.sqrt(4)
    keep = (distances(6) >= 0) & (distances(6) < 3)
    return softmax(np.where(keep, scores, -np.inf)) @ v[:, :, None]


@layer(q=(2, 4, 5, 4), k=(2, 4, 5, 4), v=(2, 4, 5, 3))
def alibi(q, k, v):
    slope = 2.0 ** (-8 * np.arange(1, 5) / 4)
    scores = q @ turned(k) / math.sqrt(4) - slope[:, None, None] * distances(5)
    return softmax(np.where(distances(5) >= 0, scores, -np.inf)) @ v


@layer(x=(2, 3, 4, 6))
def rope_interleaved(x):
    angle = np.arange(4)[:, None] * 10000.0 ** (-2 * np.arange(3) / 6)
    z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)
    return np.stack([z.real, z.imag], -1).reshape(x.shape)


@layer(x=(2, 3, 4, 6))
def rope_half(x):
    angle = np.arange(4)[:, None] * 10000.0 ** (-2 * np.arange(3) / 6)
    z = (x[..., :3] + 1j * x[..., 3:]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], -1)


@layer(x=(2, 3, 4), w=(4, 6), v=(4, 6), o=(6, 4))
def reglu(x, w, v, o):
    return (relu(x @ w) * (x @ v)) @ o


@layer(x=(2, 6, 4, 3), w1=(6, 3), w2=(3, 6))
def squeeze_excite(x, w1, w2):
    z = sigmoid(relu(x.mean((2, 3)) @ w1) @ w2)
    return x * z[:, :, None, None]


@layer(x=(2, 5, 4), up=(4, 6), mix=(5, 5), bias=(5,), down=(3, 4))
def gmlp(x, up, mix, bias, down):
    a = gelu(x @ up)
    u, v = a[..., :3], a[..., 3:]
    n = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5)
    return (u * (np.einsum("st,btd->bsd", mix, n) + bias[:, None])) @ down


@layer(l=(3, 6), x=(2, 7, 5), wq=(6, 4), wk=(5, 4), wv=(5, 3), wo=(3, 6))
def perceiver(l, x, wq, wk, wv, wo):
    return softmax((l @ wq) @ turned(x @ wk) / math.sqrt(4)) @ (x @ wv) @ wo + l


@layer(q=(2, 3, 5, 4), k=(2, 3, 5, 4), v=(2, 3, 5, 3))
def retention(q, k, v):
    gamma = (1 - 2.0 ** (-5 - np.arange(3)))[:, None, None]
    d = np.where(distances(5) >= 0, gamma ** distances(5), 0)
    return (q @ turned(k) * d) @ v


@layer(u=(2, 5, 3), dt=(3,), a=(3, 4), w=(3, 4), cr=(3, 4), ci=(3, 4), skip=(3,), o=(3, 3))
def s4d(u, dt, a, w, cr, ci, skip, o):
    decay = np.exp(np.exp(dt)[:, None] * (-np.exp(a) + 1j * w))
    h, y = np.zeros((2, 3, 4), complex), np.zeros((2, 5, 3))
    for t in range(5):
        h = decay * h + u[:, t, :, None]
        y[:, t] = ((cr + 1j * ci) * h).sum(-1).real + skip * u[:, t]
    return gelu(y) @ o


def long_conv(x, k):
    out = np.zeros_like(x)
    for d in range(x.shape[2]):
        for b in range(x.shape[0]):
            out[b, :, d] = np.convolve(x[b, :, d], k[:, d])[: x.shape[1]]
    return out


@layer(v=(2, 5, 3), g1=(2, 5, 3), g2=(2, 5, 3), k1=(5, 3), k2=(5, 3))
def hyena(v, g1, g2, k1, k2):
    return g2 * long_conv(g1 * long_conv(v, k1), k2)


@layer(q=(2, 2, 3, 4), k=(2, 2, 5, 4), v=(2, 2, 5, 3), tau=(2,))
def cosine_attention(q, k, v, tau):
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
    return softmax(tau[:, None, None] * (unit(q) @ turned(unit(k)))) @ v


@layer(q1=(2, 2, 3, 4), q2=(2, 2, 3, 4), k1=(2, 2, 5, 4), k2=(2, 2, 5, 4), v=(2, 2, 5, 3), **{"lambda": (2,)})
def diff_attention(q1, q2, k1, k2, v, **rest):
    a, b = softmax(q1 @ turned(k1) / 2), softmax(q2 @ turned(k2) / 2)
    return (a - rest["lambda"][:, None, None] * b) @ v


@layer(x=(2, 3, 4, 4), z=(2, 5), w=(5, 6), bias=(6,))
def film(x, z, w, bias):
    p = (z @ w + bias)[:, :, None, None]
    return p[:, :3] * x + p[:, 3:]


@layer(x=(3, 4), v=(4, 5), g=(5,), bias=(5,))
def weight_norm(x, v, g, bias):
    return x @ (g * v / np.linalg.norm(v, axis=0)) + bias


@layer(x=(2, 3, 4), w=(4, 5), bias=(5,), a=(4, 2), c=(2, 5))
def lora(x, w, bias, a, c):
    return x @ w + bias + 8 * (x @ a @ c)


def lines():
    for name, (f, shapes) in sorted(LAYERS.items()):
        yield f"layer {name}"
        for k, s in shapes.items():
            yield f"input {k} {' '.join(map(str, s))}"
        y = f(**{k: values(i, s) for i, (k, s) in enumerate(shapes.items())})
        elements = " ".join(f"{v:.9g}" for v in y.ravel())
        yield f"output {' '.join(map(str, y.shape))} : {elements}"


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "expected.txt"), "w") as f:
        f.writelines(line + "\n" for line in lines())
