"""Runs a model in another runtime when told to: peer.py PEER MODEL INPUTS.npz THREADS.

Prints the version of the runtime, or `error: ` and why not; then answers each line with the seconds of one run.
"""

import sys
import time


def onnxruntime(model, inputs, threads):
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {i.name: inputs[i.name] for i in session.get_inputs()}
    return runtime.__version__, lambda: session.run(None, feed)


def openvino(model, inputs, threads):
    import openvino as runtime

    core = runtime.Core()
    read = core.read_model(model)
    names = {port: next(n for n in port.get_names() if n in inputs) for port in read.inputs}
    read.reshape({port: inputs[name].shape for port, name in names.items()})
    exact = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(read, "CPU", {"INFERENCE_NUM_THREADS": threads, **exact})
    request = compiled.create_infer_request()
    feed = dict(inputs.items())
    return runtime.__version__, lambda: request.infer(feed)


def main():
    peer, model, inputs, threads = sys.argv[1:]
    try:
        import numpy

        arrays = dict(numpy.load(inputs))
        version, run = {"onnxruntime": onnxruntime, "openvino": openvino}[peer](model, arrays, int(threads))
        run()
    except Exception as e:
        print("error:", " ".join(str(e).split()), flush=True)
        return
    print(version, flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        run()
        print(time.perf_counter() - began, flush=True)


main()
