#!/usr/bin/env python3
"""`torch.compile(backend="mlc_rewrite")` beside Inductor with freezing: what is right, what is left to PyTorch, how long a call and compiling take.

`benches/torch_compile.py [NAME]...` in an environment with `mlc_rewrite[torch]`; networks of `timm`, `torchvision` and `transformers` take part where these are installed, trained ones where
`--models FOLDER` has them. Without names all are run, each in a process of its own. Weights are random but for trained ones. Of every time the fastest of alternating runs counts."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMM = """resnet18 resnet50 resnext50_32x4d wide_resnet50_2 seresnet50 resnetv2_50 regnetx_004 regnety_004 densenet121 dla34 hrnet_w18_small dpn68 res2net50_26w_4s
mobilenetv2_100 mobilenetv3_large_100 mobilenetv4_conv_small efficientnet_b0 efficientnet_lite0 ghostnet_100 mnasnet_100 lcnet_100 tinynet_a rexnet_100 fbnetc_100 hardcorenas_a
repvgg_a0 mobileone_s0 vgg11 darknet53 cspresnet50 inception_v3 convnext_atto convnextv2_atto vit_tiny_patch16_224 deit_tiny_patch16_224 deit3_small_patch16_224 beit_base_patch16_224 cait_xxs24_224
swin_tiny_patch4_window7_224 poolformer_s12 mixer_s32_224 gmlp_s16_224 resmlp_12_224 pit_ti_224 levit_128s coat_lite_tiny mobilevit_xxs efficientformer_l1 edgenext_xx_small xcit_nano_12_p16_224""".split()
SMALL = ["empty", "mlp", "encoder", "lstm", "unet_block", "gnn"]
VISION = ["alexnet", "squeezenet1_1", "googlenet", "shufflenet_v2_x1_0", "mnasnet0_5", "maxvit_t"]


def small() -> dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]]:
    """Modules without a package of their own."""
    import torch
    from torch import nn

    class Residual(nn.Module):
        """A block of a U-Net of diffusion: time added to an image, twice normalised and convolved."""

        def __init__(self, n: int, time: int) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.GroupNorm(8, n), nn.SiLU(), nn.Conv2d(n, n, 3, padding=1))
            self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, n))
            self.second = nn.Sequential(nn.GroupNorm(8, n), nn.SiLU(), nn.Conv2d(n, n, 3, padding=1))

        def forward(self, x: Any, t: Any) -> Any:
            return x + self.second(self.first(x) + self.time(t)[:, :, None, None])

    class Graph(nn.Module):
        """Two steps of messages along the edges of a graph."""

        def __init__(self, n: int) -> None:
            super().__init__()
            self.steps = nn.ModuleList(nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n)) for _ in range(2))

        def forward(self, x: Any, edges: Any) -> Any:
            for step in self.steps:
                x = step(x + torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]))
            return x.mean(dim=0)

    def mlp() -> tuple[Any, tuple[Any, ...]]:
        return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10)), (torch.randn(8, 64),)

    def empty() -> tuple[Any, tuple[Any, ...]]:
        return nn.ReLU(), (torch.randn(1, 4),)

    def encoder() -> tuple[Any, tuple[Any, ...]]:
        layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(2, 32, 128),)

    def lstm() -> tuple[Any, tuple[Any, ...]]:
        return nn.LSTM(64, 64, num_layers=2, batch_first=True), (torch.randn(2, 20, 64),)

    def unet_block() -> tuple[Any, tuple[Any, ...]]:
        return Residual(64, 128), (torch.randn(1, 64, 32, 32), torch.randn(1, 128))

    def gnn() -> tuple[Any, tuple[Any, ...]]:
        return Graph(32), (torch.randn(100, 32), torch.randint(0, 100, (2, 400)))

    return {f.__name__: f for f in (empty, mlp, encoder, lstm, unet_block, gnn)}


def trained(name: str, models: Path) -> tuple[Any, tuple[Any, ...]]:
    """Language models, from files."""
    import torch
    import transformers

    class Hidden(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any) -> Any:
            return self.model(input_ids=ids).last_hidden_state

    class Step(torch.nn.Module):
        """A pass with keys and values that were seen, as tensors."""

        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, *seen: Any) -> Any:
            cache = transformers.DynamicCache(list(zip(seen[::2], seen[1::2])) or None)
            done = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
            return done.logits, *(t for layer in done.past_key_values.layers for t in (layer.keys, layer.values))

    ids = torch.randint(100, 20000, (1, 64), generator=torch.Generator().manual_seed(0))
    if name == "minilm":
        return Hidden(transformers.AutoModel.from_pretrained(models / "all-minilm-l6-v2")), (ids,)
    folder = models / "smollm2"
    [file] = sorted(folder.glob("*.gguf"))[:1]
    model = Step(transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file.name, dtype=torch.float32).eval())
    if name == "smollm2_prefill":
        return model, (ids,)
    with torch.no_grad():
        _, *seen = model(ids)
    return model, (ids[:, :1], *seen)


def made(name: str, models: Path) -> tuple[Any, tuple[Any, ...]]:
    """A network in evaluation, and what it is called with."""
    import torch

    torch.manual_seed(0)
    if name in SMALL:
        module, args = small()[name]()
    elif name in ("minilm", "smollm2_prefill", "smollm2_decode"):
        module, args = trained(name, models)
    elif name in VISION:
        import torchvision

        extra = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
        size = 224 if name == "maxvit_t" else 128
        module, args = torchvision.models.get_model(name, weights=None, **extra), (torch.randn(1, 3, size, size),)
    else:
        import timm

        module = timm.create_model(name)
        size = module.default_cfg["input_size"][-1] if module.default_cfg.get("fixed_input_size") else 128
        args = (torch.randn(1, 3, size, size),)
    for layer in module.modules():
        # Means and variances as after training, so that a network does not fade.
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) and name not in ("minilm",):
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.5, 1.5)
    return module.eval(), args


def flat(result: Any) -> list[Any]:
    import torch

    return [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]


def off(results: Any, expected: Any) -> float:
    """How far results are off, as a part of the largest element of each."""
    return max((float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-12)) for a, b in zip(flat(results), flat(expected), strict=True) if b.numel()), default=0.0)


def one(name: str, models: Path, seconds: float, peers: bool) -> dict[str, Any]:
    """A network's row."""
    # Files of this folder are no packages.
    sys.path.pop(0)
    import torch
    import torch._inductor.config

    import mlc_rewrite as mlc

    torch.set_num_threads(1)
    torch._dynamo.config.allow_rnn = True
    torch._inductor.config.freezing = True
    module, args = made(name, models)
    row: dict[str, Any] = {"name": name}
    with torch.no_grad():
        expected = module(*args)
        calls: dict[str, Callable[[], Any]] = {"eager": lambda: module(*args)}
        compiled = {"mlc_rewrite": {"backend": "mlc_rewrite", "options": {"threads": 1}}, **({"inductor": {"backend": "inductor"}} if peers else {})}
        for kind, how in compiled.items():
            began = time.perf_counter()
            fast = torch.compile(module, **how)
            try:
                fast(*args)
                result = fast(*args)
            except Exception as error:  # noqa: BLE001: a failure is this backend's result
                row[f"{kind} error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
                continue
            row[f"{kind} compile"] = time.perf_counter() - began
            row[f"{kind} off"] = off(result, expected)
            calls[kind] = lambda fast=fast: fast(*args)
        graphs = mlc.torch.graphs()
        row["graphs"] = len(graphs)
        row["sessions"] = sum(len(graph.sessions) for graph in graphs)
        row["left"] = [graph.reason for graph in graphs if graph.reason] + [f"{op}: {why}" for graph in graphs for op, why in graph.left.items()]
        row.update(fastest(calls, seconds))
    return row


def fastest(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Seconds of a call of each, in turns until the time is over."""
    best = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + seconds
    rounds = 0
    while time.perf_counter() < end or rounds < 3:
        rounds += 1
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            spent = time.perf_counter() - began
            if spent < 1e-3:
                began = time.perf_counter()
                for _ in range(100):
                    call()
                spent = (time.perf_counter() - began) / 100
            best[name] = min(best[name], spent)
    return best


def shown(row: dict[str, Any]) -> str:
    ms = {kind: row.get(kind, float("nan")) * 1e3 for kind in ("eager", "inductor", "mlc_rewrite")}
    ratio = ms["mlc_rewrite"] / ms["inductor"]
    compiling = "/".join(f"{row.get(f'{kind} compile', float('nan')):.0f}" for kind in ("mlc_rewrite", "inductor"))
    told = "; ".join([*row["left"], *(f"{k}: {v}" for k, v in row.items() if k.endswith("error"))])
    return f"{row['name']:28} {ms['eager']:9.3f} {ms['inductor']:9.3f} {ms['mlc_rewrite']:9.3f} {ratio:6.2f} {row.get('mlc_rewrite off', float('nan')):8.0e} {row['sessions']:3}/{row['graphs']:<3} {compiling:>8}  {told}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--models", type=Path, default=Path("models"), metavar="FOLDER", help="with `all-minilm-l6-v2` and `smollm2`")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring, for each network")
    parser.add_argument("--alone", action="store_true", help="without Inductor")
    parser.add_argument("--json", action="store_true", help="one network, in this process")
    arguments = parser.parse_args()
    if arguments.json:
        warnings.simplefilter("ignore")
        print(json.dumps(one(arguments.names[0], arguments.models, arguments.seconds, not arguments.alone)))
        return
    names = arguments.names or [*SMALL, "minilm", "smollm2_prefill", "smollm2_decode", *VISION, *TIMM]
    print(f"{'milliseconds of a call':28} {'eager':>9} {'inductor':>9} {'here':>9} {'ratio':>6} {'off':>8} sessions/graphs, compiling in s, left to PyTorch", flush=True)
    for name in names:
        command = [sys.executable, __file__, name, "--json", "--seconds", str(arguments.seconds), "--models", str(arguments.models), *(["--alone"] if arguments.alone else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            print(f"{name:28} {(done.stderr.strip().splitlines() or ['no output'])[-1][:150]}", flush=True)
            continue
        print(shown(json.loads(lines[-1])), flush=True)


if __name__ == "__main__":
    main()
