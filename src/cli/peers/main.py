"""Runs a model in another runtime when told to: PEER MODEL INPUTS.npz THREADS PLACE, the place being `cpu` or `cuda:N`.

Prints the version of the runtime and the clock that it is timed by, or `error: ` and why not; then answers each line with
the seconds of one run. `device` is the clock of the device, `host` this machine's, with inputs on the device in either case.
With a sixth argument the results are written there instead.
"""

import sys
import time


def onnxruntime(model, inputs, place, threads):
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    kind, _, number = place.partition(":")
    providers = ["CPUExecutionProvider"]
    if kind == "cuda":
        if "CUDAExecutionProvider" not in runtime.get_available_providers():
            raise ValueError("this package of it has no CUDA (`onnxruntime-gpu` has)")
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": int(number), "use_tf32": 0}))
    session = runtime.InferenceSession(model, options, providers=providers)
    names = [i.name for i in session.get_inputs()]
    if kind == "cpu":
        feed = {n: inputs[n] for n in names}
        return runtime.__version__, "host", lambda: session.run(None, feed), lambda y: y
    binding = session.io_binding()
    for n in names:
        if isinstance(inputs[n], Bits):
            value = runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(numpy.asarray(inputs[n]), BF16)
            value = value.to_device(kind, int(number)) if hasattr(value, "to_device") else value
        else:
            value = runtime.OrtValue.ortvalue_from_numpy(inputs[n], kind, int(number))
        binding.bind_ortvalue_input(n, value)
    for o in session.get_outputs():
        binding.bind_output(o.name, kind, int(number))

    def run():
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return runtime.__version__, "host", run, lambda _: binding.copy_outputs_to_cpu()


def openvino(model, inputs, place, threads):
    import openvino as runtime

    if place != "cpu":
        raise ValueError("it runs on this machine's processor alone here")
    core = runtime.Core()
    read = core.read_model(model)
    names = {port: next(n for n in port.get_names() if n in inputs) for port in read.inputs}
    read.reshape({port: inputs[name].shape for port, name in names.items()})
    exact = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(read, "CPU", {"INFERENCE_NUM_THREADS": threads, **exact})
    request = compiled.create_infer_request()
    feed = dict(inputs.items())
    return runtime.__version__, "host", lambda: request.infer(feed), lambda y: list(y.values())


def peers():
    return {"onnxruntime": onnxruntime, "openvino": openvino, "torch": torch, "torch-compile": torch_compile, "jax": jax}


def arrays(path):
    """Arrays by name; those of two bytes that NumPy has no type for are bf16."""
    found = dict(numpy.load(path))
    return {n: v.view("<u2").view(Bits) if v.dtype.kind == "V" and v.dtype.itemsize == 2 else v for n, v in found.items()}


def main():
    peer, model, inputs, threads, place, *outputs = sys.argv[1:]
    try:
        version, clock, run, results = peers()[peer](model, arrays(inputs), place, int(threads))
        first = run()
    except Exception as e:
        print("error:", " ".join(str(e).split()) or type(e).__name__, flush=True)
        return
    if outputs:
        return numpy.savez(outputs[0], *results(first))
    print(version, clock, flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        seconds = run()
        print(seconds if clock == "device" else time.perf_counter() - began, flush=True)


main()
