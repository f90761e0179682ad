#!/usr/bin/env python3
"""Quantised models: their kernels, how far results are from ONNX Runtime's, and times in turns with it.

    python benches/quantised.py --tool target/release/mlc-rewrite --work FOLDER MODEL_FOLDER...

Each MODEL_FOLDER holds `model.onnx` and `inputs.npz` (arrays `K/INPUT`, the samples that scales are calibrated with). The models are quantised by
onnxruntime.quantization, per channel: QDQ and QLinear operators, and with scales of a run where the model has products of matrices. Files in FOLDER are
used again. Prints a table in Markdown. Needs: numpy, onnx, onnxruntime.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


def samples(folder):
    """The samples of a model's inputs, in order."""
    archive = np.load(folder / "inputs.npz")
    found = collections.defaultdict(dict)
    for key in archive.files:
        run, name = key.split("/", 1)
        found[run][name] = archive[key]
    return [found[k] for k in sorted(found)]


class Samples(CalibrationDataReader):
    """Samples to calibrate with."""

    def __init__(self, all_samples):
        self.left = iter(all_samples)

    def get_next(self):
        return next(self.left, None)


def quantised(folder, work):
    """Files of the model in each style, made unless they are there."""
    name = folder.name
    source, ready = work / f"{name}_source.onnx", work / f"{name}_ready.onnx"
    if not ready.exists():
        onnx.save(onnx.load(folder / "model.onnx"), source)
        quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
    made = {}
    for style, form in (("QDQ", QuantFormat.QDQ), ("QLinear", QuantFormat.QOperator)):
        made[style] = work / f"{name}_{style}.onnx"
        if not made[style].exists():
            quantize_static(ready, made[style], Samples(samples(folder)), quant_format=form, per_channel=True,
                            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    if any(n.op_type == "MatMul" for n in onnx.load(ready, load_external_data=False).graph.node):
        made["dynamic"] = work / f"{name}_dynamic.onnx"
        if not made["dynamic"].exists():
            quantize_dynamic(ready, made["dynamic"], per_channel=True, weight_type=QuantType.QInt8)
    return made


def outputs_of(path, feeds, threads=1):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


def spread(a, b):
    """The largest and the root mean square difference, in parts of the largest element of `b`."""
    top = max(np.abs(v).max() for v in b.values())
    worst = max(np.abs(a[k] - b[k]).max() for k in b)
    square = np.sqrt(np.mean([((a[k] - b[k]) ** 2).mean() for k in b]))
    return worst / top, square / top


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--iterations", default="20")
    parser.add_argument("--quiet", default="", help="a command that runs a measurement alone")
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "MLC_PYTHON": sys.executable}
    print("| model | style | products in integers, in floats | from ONNX Runtime (largest, rms) | ONNX Runtime from the float model "
          "| time, ms | ONNX Runtime, ms | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for folder in args.models:
        feeds = samples(folder)[0]
        given, found = args.work / "in.npz", args.work / "out.npz"
        np.savez(given, **feeds)
        plain = outputs_of(folder / "model.onnx", feeds)
        for style, path in quantised(folder, args.work).items():
            report = args.work / "report.json"
            common = [str(path), "--inputs", str(given), "--threads", "1", "--json", str(report)]
            run = subprocess.run([args.tool, "run", *common, "--outputs", str(found)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if run.returncode != 0:
                message = (run.stderr.strip() or "no message").splitlines()[0]
                print(f"| {folder.name} | {style} | not run: {message} | | | | | |", flush=True)
                continue
            ran = json.loads(report.read_text())
            kernels = collections.Counter(k["name"] if isinstance(k, dict) else k for k in ran["kernels"])
            integers = kernels["gemm_int8"] + kernels["conv_int8"] + kernels["conv_int8_channels_last"]
            floats = kernels["gemm"] + kernels["conv"] + kernels["conv_channels_last"] + kernels["attention"]
            theirs = outputs_of(path, feeds)
            ours = spread(dict(np.load(found)), theirs)
            kept = " (as read)" if ran["kept_as_read"] else ""
            subprocess.run([*args.quiet.split(), args.tool, "bench", *common, "--no-check", "--iterations", args.iterations, "--against",
                            "onnxruntime"], check=True, stdout=subprocess.DEVNULL, env=env)
            timed = json.loads(report.read_text())["against"]
            own, other = timed["own_least_seconds"] * 1e3, timed["least_seconds"] * 1e3
            print(f"| {folder.name} | {style}{kept} | {integers}, {floats} | {ours[0]:.4f}, {ours[1]:.5f} | "
                  f"{spread(theirs, plain)[0]:.4f} | {own:.2f} | {other:.2f} | {own / other:.2f} |", flush=True)


main()
