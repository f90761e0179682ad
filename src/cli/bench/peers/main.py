"""Runs a model in another runtime when told to: PEER MODEL INPUTS.npz THREADS PLACE, the place being `cpu` or `cuda:N`.

Prints the version of the runtime and the clock that it is timed by, or `error: ` and why not; then answers each line: `run`
with the seconds of one run, `run` and a number, after a tab, with the mean of so many in a row, and `load`, a model and its inputs with what is
printed at first. `device` is the clock of the device, `host` this machine's, with inputs on the device in either case. With a sixth argument the results are written there instead.
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


def arrays(path):
    """Arrays by name; those of two bytes that NumPy has no type for are bf16."""
    found = dict(numpy.load(path))
    return {n: v.view("<u2").view(Bits) if v.dtype.kind == "V" and v.dtype.itemsize == 2 else v for n, v in found.items()}


class Loaded:
    """A model that has run once; raises what is wrong with it."""

    def __init__(self, peer, model, inputs, threads, place):
        self.version, self.clock, self.run, self.results = globals()[peer.replace("-", "_")](model, arrays(inputs), place, int(threads))
        self.first = self.run()

    def seconds(self, count):
        """Of one run, the mean of so many in a row."""
        began, by_device = time.perf_counter(), 0.0
        for _ in range(count):
            seconds = self.run()
            by_device += seconds if self.clock == "device" else 0.0
        return (by_device or time.perf_counter() - began) / count


def loaded(*what):
    try:
        return Loaded(*what)
    except Exception as e:
        print("error:", " ".join(str(e).split()) or type(e).__name__, flush=True)


def answer(peer, model, inputs, threads, place):
    """Lines of standard input, about one model after the other."""
    while model:
        timed = loaded(peer, model, inputs, threads, place)
        if timed:
            print(timed.version, timed.clock, flush=True)
        model = None
        for line in sys.stdin:
            word, *rest = line.rstrip("\n").split("\t")
            if word == "load":
                model, inputs = rest
                break
            print(timed.seconds(int(rest[0]) if rest else 1) if timed else "error: no model is loaded", flush=True)


def main():
    *what, outputs = sys.argv[1:] if len(sys.argv) > 6 else [*sys.argv[1:], None]
    if outputs is None:
        return answer(*what)
    timed = loaded(*what)
    if timed:
        numpy.savez(outputs, *timed.results(timed.first))


main()
