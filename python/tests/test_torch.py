"""PyTorch beside this package, its modules as models, and `torch.compile`."""

from __future__ import annotations

import doctest
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mlc_rewrite as mlc

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its wheels bring gigabytes: `TORCH=1 scripts/python-check` installs it")
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


def test_extents_stay_open() -> None:
    module = Net().eval()
    for dynamic in (None, True):
        torch._dynamo.reset()
        fast = torch.compile(module, backend="mlc_rewrite", options={"threads": 1}, dynamic=dynamic)
        for n in (4, 7, 5, 9, 12, 3):
            x = torch.randn(n, 16)
            torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
        # The last graph is that for all extents.
        assert last().reason is None and len(last().sessions) == 1
        assert isinstance(last().sessions[0].get_inputs()[0].shape[0], str)


def test_integers_stay_open() -> None:
    def positions(x: Any, n: int) -> Any:
        return x[:, :n].exp() + n, x.shape[0] * 2

    fast = torch.compile(positions, backend="mlc_rewrite", dynamic=True)
    for rows, n in ((2, 3), (4, 5), (3, 8), (5, 2)):
        x = torch.randn(rows, 10)
        torch.testing.assert_close(fast(x, n), positions(x, n))
    assert last().reason is None and len(last().sessions) == 1
    scaled = torch.compile(lambda x, factor: x * factor, backend="mlc_rewrite", dynamic=True)
    for factor in (0.5, 0.75, 0.5):
        torch.testing.assert_close(scaled(x, factor), x * factor)
    assert len(last().sessions) == 2, "one for each factor"


def test_statistics_of_batches_are_constants() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(inplace=True)).eval()
    module[1].running_mean.normal_()
    fast, x = compiled(module), torch.randn(1, 3, 8, 8)
    for _ in range(2):
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
    [session] = last().sessions
    assert len(session.get_inputs()) == 1
    assert session.optimized is not None and "batchnorm" not in session.optimized.text
    module[1].running_mean.add_(1)
    torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)


def test_parameters_that_change_in_every_call_become_inputs() -> None:
    module = Net().eval()
    fast, x = compiled(module), torch.randn(4, 16)
    for _ in range(6):
        module.second.bias.add_(1)
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
    assert last().reason is None
    assert len(last().sessions) == 1 and len(last().sessions[0].get_inputs()) == 2


def test_modules_that_are_frozen() -> None:
    # Inductor's switch makes parameters attributes of the graph for every backend.
    import torch._inductor.config

    with torch._inductor.config.patch(freezing=True):
        module = Net().eval()
        fast, x = compiled(module), torch.randn(4, 16)
        for _ in range(2):
            torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
        assert last().reason is None and len(last().sessions[0].get_inputs()) == 1


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


def test_writing_to_inputs() -> None:
    def append(keys: Any, values: Any, x: Any, at: Any) -> Any:
        keys.index_copy_(1, at, x * 2)
        values.index_copy_(1, at, x * 3)
        return torch.nn.functional.scaled_dot_product_attention(x[None], keys[None], values[None]).exp()

    def part(state: Any, x: Any) -> Any:
        state[:, 1:3] = x.exp()
        return state.sum()

    def accumulate(state: Any, x: Any) -> Any:
        state.add_(x)
        return state * 2, x.t()

    at = torch.tensor([3])
    cases = [
        (append, lambda: (torch.ones(2, 8, 4), torch.ones(2, 8, 4), torch.randn(2, 1, 4), at), 2),
        (part, lambda: (torch.ones(3, 5), torch.randn(3, 2)), 1),
        (accumulate, lambda: (torch.ones(3, 3), torch.randn(3, 3)), 1),
    ]
    for function, inputs, sessions in cases:
        for mode in (torch.no_grad, torch.inference_mode):
            torch._dynamo.reset()
            fast = compiled(function)
            with mode():
                for _ in range(3):
                    given = inputs()
                    own = [a.clone() for a in given]
                    torch.testing.assert_close(fast(*own), function(*given), rtol=1e-4, atol=1e-5)
                    # What was written to.
                    torch.testing.assert_close(own, list(given), rtol=1e-4, atol=1e-5)
            assert last().reason is None and len(last().sessions) == sessions
    # A cache is written to where it lies.
    torch._dynamo.reset()
    fast, (keys, values, x, at) = compiled(append), cases[0][1]()
    fast(keys, values, x, at)
    assert "it writes to an input" in last().left.values()


def test_graphs_are_cut_at_what_is_not_supported() -> None:
    def eigenvalues(x: Any) -> Any:
        y = (x @ x).relu() + 1
        return torch.linalg.eigvals(y).abs().sort().values * 2 + y.mean()

    fast, x = compiled(eigenvalues), torch.randn(4, 4)
    for _ in range(3):
        torch.testing.assert_close(fast(x), eigenvalues(x), rtol=1e-4, atol=1e-4)
    assert last().reason is None and len(last().sessions) == 2
    assert "complex" in last().left["aten.linalg_eig.default"]


def test_random_numbers_are_those_of_pytorch() -> None:
    def noisy(x: Any) -> Any:
        return (x.exp() + 1) * torch.rand_like(x)

    fast, x = compiled(noisy), torch.randn(100)
    for seed in range(3):
        torch.manual_seed(seed)
        a, b = fast(x), fast(x)
        torch.manual_seed(seed)
        torch.testing.assert_close((a, b), (noisy(x), noisy(x)))
    assert last().reason is None and "random" in last().left["aten.rand_like.default"]


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


def test_what_is_nothing_but_unsupported_is_left_to_pytorch() -> None:
    fast, x = compiled(lambda x: torch.linalg.eigvals(x)), torch.randn(4, 4)
    for _ in range(2):
        torch.testing.assert_close(fast(x), torch.linalg.eigvals(x))
    assert "eig" in str(last().reason)


def test_images_and_transformers() -> None:
    convolutions = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).eval()
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    first = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True, activation="gelu").eval()
    attention = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()
    cases: list[tuple[Any, Any]] = [
        (convolutions, torch.randn(2, 3, 16, 16)),
        # What PyTorch computes as one operator.
        (layer, torch.randn(2, 5, 32)),
        (first, torch.randn(2, 5, 32)),
        (lambda x: attention(x, x, x), torch.randn(2, 5, 32)),
        (lambda x: attention(x, x, x, need_weights=False)[0], torch.randn(2, 5, 32)),
    ]
    for module, x in cases:
        torch._dynamo.reset()
        fast = compiled(module)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            for _ in range(2):
                torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
        assert last().reason is None and not last().left


def test_what_was_compiled_is_explained() -> None:
    module = Net().eval()
    fast, x = compiled(module), torch.randn(4, 16)
    told = mlc.explain(fast, x)
    assert told and len(told.graphs) == 1 and told.graphs[0].sessions
    assert "estimated; laws:" in str(told) and "<pre " in told._repr_html_()
    told = mlc.explain(compiled(lambda x: torch.linalg.eigvals(x.exp() * 2 + 1).abs()), torch.randn(3, 3))
    assert not told and "eig" in str(told)
    assert str(mlc.explain(module, x)) == "the call ran no graph of this backend"


def test_examples_of_the_documentation() -> None:
    failed, tried = doctest.testmod(mlc.torch)
    assert tried and not failed


LAYERS = """
/// Snake: the identity and a wave.
def snake(x: F[..s], alpha: float in 0.5..2) -> F[..s]
  = x + sin(alpha * x)^2 / alpha

/// Twice, and squared.
def both(x: F[..s]) -> F[..s], F[..s]
  = (x + x, x * x)

/// One behind the other.
def behind(x: F[n], y: F[m]) -> F[n + m]
  = concat(x, y, axis=0)
"""


def test_layers_are_modules() -> None:
    rules = mlc.Rules(text=LAYERS)
    snake = mlc.torch.layer(rules, "snake", alpha=1.5)
    x = torch.randn(3, 16)
    torch.testing.assert_close(snake(x), x + torch.sin(1.5 * x) ** 2 / 1.5)
    torch.testing.assert_close(snake(x, alpha=1.0), x + torch.sin(x) ** 2)
    module = torch.nn.Sequential(torch.nn.Linear(16, 8), snake, torch.nn.Linear(8, 2)).eval()
    # One node, read as the layer that it is.
    model = mlc.from_torch(module, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    assert model.text.count("snake(") == 1
    [y] = mlc.Session(model).run(None, {model.inputs[0].name: x})
    np.testing.assert_allclose(y, module(x).numpy(), rtol=1e-4, atol=1e-5)
    written = torch.onnx.export(module, (x,), custom_translation_table=mlc.torch.translations(), verbose=False)
    assert [node.op_type for node in written.model.graph if node.domain] == ["snake_alpha_float"]
    for n in (3, 5, 8):
        x = torch.randn(n, 16)
        told = mlc.explain(compiled(module), x)
        assert told and len(told.graphs) == 1


def test_layers_where_extents_are_open() -> None:
    rules = mlc.Rules(text=LAYERS)
    both, behind = mlc.torch.layer(rules, "both"), mlc.torch.layer(rules, "behind")

    def function(x: Any, y: Any) -> Any:
        twice, square = both(behind(x, y))
        return twice.reshape(-1, 1) - square.reshape(1, -1)

    fast = torch.compile(function, backend="mlc_rewrite", dynamic=True)
    for n, m in ((2, 3), (4, 2), (5, 7)):
        x, y = torch.randn(n), torch.randn(m)
        z = torch.cat([x, y])
        torch.testing.assert_close(fast(x, y), (z + z).reshape(-1, 1) - (z * z).reshape(1, -1), rtol=1e-4, atol=1e-5)
    assert last().reason is None and len(last().sessions) == 1
