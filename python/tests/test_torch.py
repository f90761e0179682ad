"""PyTorch beside this package, its modules as models, and `torch.compile`."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mlc_rewrite as mlc

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its wheels bring gigabytes, so that it is tested where it is installed already")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend="mlc_rewrite", options={"threads": 1, **options})


def last() -> mlc.torch.Graph:
    return mlc.torch.graphs()[-1]


class Net(torch.nn.Module):  # type: ignore[name-defined,misc]
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.second = torch.nn.Linear(32, 8)

    def forward(self, x: Any) -> Any:
        return self.second(torch.nn.functional.gelu(self.norm(self.first(x))))


@pytest.mark.parametrize("order", ["import torch, mlc_rewrite as mlc", "import mlc_rewrite as mlc, torch"])
def test_both_orders_of_import(order: str) -> None:
    code = f"""
        {order}
        model = mlc.Model(text="def model(x: f32[n]) -> y: f32[n]\\n  = exp(x)\\n")
        session = mlc.Session(model)
        x = torch.linspace(0, 1, 1000)
        for _ in range(3):
            y = torch.from_numpy(session(x=x)["y"])
            assert torch.allclose(y, x.exp()), (y, x.exp())
            assert torch.allclose(x.reshape(10, 100) @ x.reshape(100, 10), x.reshape(10, 100).matmul(x.reshape(100, 10)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_tensors_are_inputs() -> None:
    text = "def model(x: {0}[a, b]) -> y: {0}[a, b]\n  = reshape(x, shape=[|a|, |b|])\n"
    for name, dtype in [("f32", torch.float32), ("bf16", torch.bfloat16), ("i64", torch.int64), ("f8e4m3fn", torch.float8_e4m3fn), ("bool", torch.bool)]:
        session = mlc.Session(mlc.Model(text=text.format(name)), optimize=False)
        x = torch.arange(6).reshape(2, 3).to(dtype)
        for given in [x, x.t()]:
            out = session(x=given)["y"]
            assert out.astype(np.float32).tolist() == given.float().tolist()
    parameter = torch.nn.Parameter(torch.ones(1, 2))
    assert mlc.Session(mlc.Model(text=text.format("f32")))(x=parameter)["y"].tolist() == [[1, 1]]


def test_modules_are_models() -> None:
    module, x = Net().eval(), torch.randn(4, 16)
    model = mlc.from_torch(module, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    assert model.inputs[0].shape[1] == 16 and isinstance(model.inputs[0].shape[0], str)
    [y] = mlc.Session(model).run(None, {model.inputs[0].name: x})
    np.testing.assert_allclose(y, module(x).numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="training mode"):
        mlc.from_torch(Net(), (x,))


def test_compiled_modules() -> None:
    module = Net().eval()
    fast = compiled(module)
    for _ in range(3):
        x = torch.randn(4, 16)
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
    assert last().reason is None and len(last().sessions) == 1
    assert last().optimized[0].explain().text
    # Other extents are compiled, too.
    x = torch.randn(7, 16)
    torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
    assert all(graph.reason is None for graph in mlc.torch.graphs()[-2:])


def test_parameters_that_change_are_seen() -> None:
    module = Net().eval()
    fast = compiled(module)
    x = torch.randn(4, 16)
    fast(x)
    module.second.weight.mul_(2)
    torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
    module.load_state_dict(Net().state_dict())
    torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
    module.second = torch.nn.Linear(32, 8)
    torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)


def test_training_is_left_to_pytorch() -> None:
    module = Net()
    fast = compiled(module)
    with torch.enable_grad():
        fast(torch.randn(4, 16)).sum().backward()
    assert module.first.weight.grad is not None
    assert "gradients" in str(last().reason)


def test_writing_to_inputs_is_left_to_pytorch() -> None:
    def step(cache: Any, x: Any, at: Any) -> Any:
        return cache.index_copy_(0, at, x).sum()

    cache, other = torch.zeros(4, 2), torch.zeros(4, 2)
    fast = compiled(step)
    for i in range(3):
        x, at = torch.randn(1, 2), torch.tensor([i])
        torch.testing.assert_close(fast(cache, x, at), step(other, x, at))
        torch.testing.assert_close(cache, other)
    assert "writes to its inputs" in str(last().reason)


def test_random_numbers_are_left_to_pytorch() -> None:
    fast = compiled(lambda x: x + torch.rand_like(x))
    x = torch.zeros(100)
    a, b = fast(x), fast(x)
    assert not torch.equal(a, b)
    assert last().reason is not None


def test_views_and_strides() -> None:
    fast = compiled(lambda x: (x.t(), x + 1))
    x = torch.randn(2, 3)
    for _ in range(2):
        view, _ = fast(x)
        assert view.data_ptr() == x.data_ptr()
    fast = compiled(lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) * 2)
    image = torch.randn(1, 3, 4, 5)
    plain = image.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) * 2
    for _ in range(2):
        out = fast(image)
        assert out.stride() == plain.stride()
        torch.testing.assert_close(out, plain)


def test_what_cannot_be_exported_is_left_to_pytorch() -> None:
    fast = compiled(lambda x: torch.linalg.eigvals(x).real.sort().values)
    x = torch.randn(4, 4)
    for _ in range(2):
        torch.testing.assert_close(fast(x), torch.linalg.eigvals(x).real.sort().values)
    assert "eig" in str(last().reason)


def test_images_and_transformers() -> None:
    convolutions = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).eval()
    encoder = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    # What PyTorch computes a whole layer by in evaluation is an operator that its exporter does not know.
    known = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        for module, x in [(convolutions, torch.randn(2, 3, 16, 16)), (encoder, torch.randn(2, 5, 32))]:
            fast = compiled(module)
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                for _ in range(2):
                    torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
            assert last().reason is None
    finally:
        torch.backends.mha.set_fastpath_enabled(known)
    torch._dynamo.reset()
    fast, x = compiled(encoder), torch.randn(2, 5, 32)
    torch.testing.assert_close(fast(x), encoder(x))
    assert "_transformer_encoder_layer_fwd" in str(last().reason)
