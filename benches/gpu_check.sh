#!/usr/bin/env bash
# Checks the CUDA backend on a machine with an NVIDIA device, where neither Rust nor a network is needed:
#
#     cargo build --release && cargo test -p mlc-proptests --test cuda --no-run
#     benches/gpu_check.sh target/release/mlc-rewrite target/debug/deps/cuda-HASH [MODEL.onnx ...]
#
# Runs the tests of generated code on the device, then every model on the device and on the processor, compares the
# outputs, and times the model on the device as read and optimised. NVRTC must be found; MLC_NVRTC names its library file.
# Exit code 1 if something failed.
set -u
tool=$1 tests=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || exit 1
MLC_CUDA_DEVICE=0 "$tests" --nocapture --test-threads 1 || failed=1
for model in "${@:-examples/squeezenet1_1.onnx}"; do
  echo "== $model"
  "$tool" run "$model" --backend cpu --outputs "$work/cpu.npz" -q || failed=1
  "$tool" run "$model" --backend cuda --outputs "$work/cuda.npz" -q || { failed=1; continue; }
  python3 - "$work/cpu.npz" "$work/cuda.npz" <<'PY' || failed=1
import sys
import numpy as np
want, got = np.load(sys.argv[1]), np.load(sys.argv[2])
worst = max(float(np.abs(got[n].astype(float) - want[n]).max() / max(np.abs(want[n]).max(), 1e-30)) for n in want)
print(f"largest difference from the processor, relative: {worst:.1e}")
sys.exit(worst > 1e-3)
PY
  "$tool" bench "$model" --backend cuda || failed=1
done
exit $failed
