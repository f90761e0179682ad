#!/usr/bin/env python3
"""Memory of the process by stage, on a model whose weights outweigh everything else.

    python3 benches/resident.py TOOL MODEL.onnx

For each verb the most that the process holds at once, in MiB: memory of its own (`RssAnon`), and of mapped files
(`RssFile`), which the system takes back when it needs it. Weights that are only read are in the second column alone.
Read from /proc every few milliseconds, so Linux only; the allocator is told to give large blocks back at once, as
what it holds in reserve differs from run to run.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

STAGES = [
    ("inspect: read", ["inspect"]),
    ("optimize --target cpu --no-check", ["optimize", "-o", "{out}", "--target", "cpu", "--no-check"]),
    ("optimize --target cpu", ["optimize", "-o", "{out}", "--target", "cpu"]),
    ("optimize --target onnxruntime --no-check", ["optimize", "-o", "{out}", "--target", "onnxruntime", "--no-check"]),
    ("optimize --target onnxruntime", ["optimize", "-o", "{out}", "--target", "onnxruntime"]),
    ("run --no-check", ["run", "--no-check"]),
    ("run", ["run"]),
]


def peaks(command):
    """The most MiB of own and of mapped memory of a process; an error if it fails."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    most = {"RssAnon": 0, "RssFile": 0}
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        for line in status.splitlines():
            name, _, rest = line.partition(":")
            if name in most:
                most[name] = max(most[name], int(rest.split()[0]))
        time.sleep(0.005)
    error = process.stderr.read().decode()
    if process.wait() != 0:
        raise SystemExit(f"{' '.join(command)}: {error}")
    return most["RssAnon"] / 1024, most["RssFile"] / 1024


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    tool, model = sys.argv[1:]
    print("| stage | own memory, MiB | mapped, MiB |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, verb in STAGES:
            command = [tool, verb[0], model] + [a.format(out=f"{folder}/out.onnx") for a in verb[1:]]
            if verb[0] != "inspect":
                command += ["--quiet", "--threads", "2"]
            own, mapped = peaks(command)
            print(f"| `{name}` | {own:.0f} | {mapped:.0f} |", flush=True)


if __name__ == "__main__":
    main()
