"""Further graphs of one operator: of images, signals, losses, quantised numbers, indices, and results whose extents data decide."""
import numpy as np

from onnx_cases import B, F, I, case

BYTE, CODE = np.uint8, np.int8

# Bits.
for op in "BitwiseAnd BitwiseOr BitwiseXor".split():
    case(op, 18)(lambda k, op=op: k.out(k.node(op, k.x(2, k.n, dtype=I), k.x(k.n, dtype=I))))
case("BitwiseNot", 18)(lambda k: k.out(k.node("BitwiseNot", k.x(2, k.n, dtype=np.int32))))
for way in ("LEFT", "RIGHT"):
    case(f"BitShift#{way}", 11)(lambda k, way=way: k.out(k.node(
        "BitShift", k.x(2, k.n, dtype=BYTE, low=0, high=9), k.x(k.n, dtype=BYTE, low=0, high=3), direction=way)))

# Indices, and what data decide.
case("NonZero", 9)(lambda k: k.out(k.node("NonZero", k.x(2, k.n, dtype=I, low=0, high=1))))
case("Compress", 9)(lambda k: k.out(k.node("Compress", k.x(3, k.n), k.x(3, dtype=B), axis=0)))
case("Compress#flat", 9)(lambda k: k.out(k.node("Compress", k.x(2, k.n), k.x(2, dtype=B))))
case("Unique", 11)(lambda k: k.out(*k.node("Unique", k.x(k.n, dtype=I, low=0, high=3), outputs=4)))
case("Unique#axis", 11)(lambda k: k.out(k.node("Unique", k.x(k.n, 2, dtype=I, low=0, high=1), axis=0)))
case("TopK", 10)(lambda k: k.out(*k.node("TopK", k.x(3, k.n), k.c([2]), outputs=2)))
case("TopK#first", 11)(lambda k: k.out(*k.node("TopK", k.x(3, k.n), k.c([1]), axis=0, largest=0, outputs=2)))
case("ReverseSequence", 10)(lambda k: k.out(k.node("ReverseSequence", k.x(k.n, 2, 3), k.x(2, dtype=I, low=1, high=1))))
case("ReverseSequence#batch", 10)(lambda k: k.out(k.node(
    "ReverseSequence", k.x(k.n, 4, 3), k.x(k.n, dtype=I, low=1, high=4), batch_axis=0, time_axis=1)))
case("ScatterElements", 11)(lambda k: k.out(k.node(
    "ScatterElements", k.x(4, k.n), k.c([[0], [2]]), k.x(2, 1), axis=0) if k.n else k.node("Relu", k.x(4, k.n))))
case("ScatterElements#open", 11)(lambda k: k.out(k.node("ScatterElements", k.x(5, k.n), k.x(1, k.n, dtype=I, low=-5, high=4), k.x(1, k.n), axis=0)))
case("ScatterElements#add", 18)(lambda k: k.out(k.node(
    "ScatterElements", k.x(5, k.n), k.x(3, k.n, dtype=I, low=0, high=4), k.x(3, k.n), axis=0, reduction="add")))
case("ScatterND", 11)(lambda k: k.out(k.node("ScatterND", k.x(4, k.n), k.c([[1], [3]]), k.x(2, k.n))))
case("ScatterND#rows", 11)(lambda k: k.out(k.node("ScatterND", k.x(8, 3), k.c(np.arange(int(k.n))[:, None]), k.x(k.n, 3))))
case("TensorScatter", 24)(lambda k: k.out(k.node("TensorScatter", k.x(2, 6, 3), k.x(2, 2, 3), k.x(2, dtype=I, low=0, high=3), axis=1)))
case("CumProd", 26)(lambda k: k.out(k.node("CumProd", k.x(2, k.n), k.c(1))))
case("NonMaxSuppression", 10)(lambda k: k.out(k.node(
    "NonMaxSuppression", k.x(1, k.n, 4, low=0), k.x(1, 2, k.n, low=0), k.c([3]), k.c([0.3], F), k.c([0.5], F))))

# Images.
for mode, since, until in (("bilinear", 16, 19), ("nearest", 16, 19), ("linear", 20, 99), ("cubic", 20, 99)):
    for padding in ("zeros", "border", "reflection"):
        case(f"GridSample#{mode}-{padding}", since, until)(lambda k, mode=mode, padding=padding: k.out(k.node(
            "GridSample", k.x(1, 2, 3, k.n), k.x(1, 3, 2, 2, low=-1.2, high=1.2), mode=mode, padding_mode=padding)))
case("GridSample#places", 16, 19)(lambda k: k.out(k.node("GridSample", k.x(1, 2, 3, 3), k.x(1, k.n, k.n, 2, low=-1, high=1), align_corners=1)))
case("AffineGrid", 20)(lambda k: k.out(k.node("AffineGrid", k.x(k.n, 2, 3), k.c([4, 1, 3, 2]))))
case("RoiAlign", 10)(lambda k: k.out(k.node(
    "RoiAlign", k.x(1, 2, 6, 6), k.x(k.n, 4, low=0, high=5), k.c(np.zeros(int(k.n))), output_height=2, output_width=2)))
case("RoiAlign#image", 10)(lambda k: k.out(k.node(
    "RoiAlign", k.x(1, 2, k.n, 6), k.c([[0, 0, 3, 2]], F), k.c([0]), output_height=2, output_width=2, spatial_scale=0.5)))
case("MaxUnpool", 9)(lambda k: (lambda x: k.out(k.node(
    "MaxUnpool", *k.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], outputs=2), kernel_shape=[2, 2], strides=[2, 2])))(k.x(1, 2, 4, k.n)))
case("MaxPool#places", 8)(lambda k: k.out(*k.node("MaxPool", k.x(1, 2, 4, k.n), kernel_shape=[2, 2], strides=[1, 2], outputs=2)))
case("DeformConv", 19)(lambda k: k.out(k.node("DeformConv", k.x(1, 2, 4, 4), k.x(3, 2, 2, 2), k.x(1, 8, 3, 3))))
case("DeformConv#batch", 19)(lambda k: k.out(k.node(
    "DeformConv", k.x(k.n, 2, 4, 4), k.x(3, 2, 2, 2), k.x(k.n, 8, 3, 3), k.x(3), k.x(k.n, 4, 3, 3, low=0))))
case("Col2Im", 18)(lambda k: k.out(k.node("Col2Im", k.x(k.n, 8, 4), k.c([3, 3]), k.c([2, 2]))))
case("CenterCropPad", 18)(lambda k: k.out(k.node("CenterCropPad", k.x(k.n, 5), k.c([4, 3]))))
case("CenterCropPad#axes", 18)(lambda k: k.out(k.node("CenterCropPad", k.x(2, k.n, 5), k.c([3]), axes=[1])))
for mode in ("nearest", "linear", "cubic"):
    for place in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
        case(f"Resize#{mode}-{place}", 11, 12)(lambda k, mode=mode, place=place: k.out(k.node(
            "Resize", k.x(1, 2, 3, k.n), k.c([], F), k.c([1, 1, 1.5, 2], F), mode=mode, coordinate_transformation_mode=place)))
        case(f"Resize#{mode}-{place}", 13)(lambda k, mode=mode, place=place: k.out(k.node(
            "Resize", k.x(1, 2, 3, k.n), "", k.c([1, 1, 1.5, 2], F), mode=mode, coordinate_transformation_mode=place)))
        case(f"Resize#sized-{mode}-{place}", 13)(lambda k, mode=mode, place=place: k.out(k.node(
            "Resize", k.x(1, 2, 3, k.n), "", "", k.c([1, 2, 5, 4]), mode=mode, coordinate_transformation_mode=place)))
case("Resize#sized", 11, 12)(lambda k: k.out(k.node(
    "Resize", k.x(1, 2, 3, k.n), k.c([], F), k.c([], F), k.c([1, 2, 5, 4]), mode="linear", coordinate_transformation_mode="align_corners")))
case("Upsample", 9, 9)(lambda k: k.out(k.node("Upsample", k.x(1, 2, 3, k.n), k.c([1, 1, 2, 2], F))))
case("Upsample#linear", 9, 9)(lambda k: k.out(k.node("Upsample", k.x(1, 2, 3, k.n), k.c([1, 1, 2, 3], F), mode="linear")))
case("Upsample#attribute", 7, 8)(lambda k: k.out(k.node("Upsample", k.x(1, 2, 3, k.n), scales=[1.0, 1.0, 2.0, 2.0], mode="nearest")))
case("DepthToSpace#columns", 11)(lambda k: k.out(k.node("DepthToSpace", k.x(k.n, 8, 2, 3), blocksize=2, mode="DCR")))

# Signals.
for op in "HannWindow HammingWindow BlackmanWindow".split():
    for periodic in (0, 1):
        case(f"{op}#{periodic}", 17)(lambda k, op=op, p=periodic: k.out(k.node(
            "Mul", k.x(5), k.node(op, k.c(5), periodic=p))))
case("DFT", 17, 19)(lambda k: k.out(k.node("DFT", k.x(2, k.n, 1), axis=1)))
case("DFT", 20)(lambda k: k.out(k.node("DFT", k.x(2, k.n, 1), "", k.c(1))))
case("DFT#length", 20)(lambda k: k.out(k.node("DFT", k.x(2, k.n, 2), k.c(4), k.c(1), inverse=1)))
case("DFT#onesided", 20)(lambda k: k.out(k.node("DFT", k.x(2, k.n, 1), "", k.c(-2), onesided=1)))
case("STFT", 17)(lambda k: k.out(k.node("STFT", k.x(2, 8, 1), k.c(2), k.x(4, low=0), k.c(4))))
case("STFT#batch", 17)(lambda k: k.out(k.node("STFT", k.x(k.n, 8, 1), k.c(3), "", k.c(4), onesided=0)))
case("MelWeightMatrix", 17)(lambda k: k.out(k.node(
    "MatMul", k.x(k.n, 9), k.node("MelWeightMatrix", k.c(4), k.c(16), k.c(8000), k.c(0.0, F), k.c(4000.0, F)))))
case("Det", 11)(lambda k: k.out(k.node("Det", k.x(k.n, 3, 3))))
case("Det#open", 11)(lambda k: k.out(k.node("Det", k.x(k.n, k.n))))

# Losses.
for reduction in ("none", "mean", "sum"):
    case(f"NegativeLogLikelihoodLoss#{reduction}", 12)(lambda k, r=reduction: k.out(k.node(
        "NegativeLogLikelihoodLoss", k.x(k.n, 4), k.x(k.n, dtype=I, low=0, high=3), k.x(4, low=0.5), reduction=r)))
    case(f"SoftmaxCrossEntropyLoss#{reduction}", 12)(lambda k, r=reduction: k.out(*k.node(
        "SoftmaxCrossEntropyLoss", k.x(k.n, 4), k.x(k.n, dtype=I, low=0, high=3), reduction=r, outputs=2)))
case("NegativeLogLikelihoodLoss#ignored", 13)(lambda k: k.out(k.node(
    "NegativeLogLikelihoodLoss", k.x(2, 4, k.n), k.x(2, k.n, dtype=I, low=0, high=3), ignore_index=1)))

# Quantised numbers.
case("DynamicQuantizeLinear", 11)(lambda k: k.out(*k.node("DynamicQuantizeLinear", k.x(2, k.n), outputs=3)))
case("ConvInteger", 10)(lambda k: k.out(k.node(
    "ConvInteger", k.x(1, 2, k.n, 4, dtype=BYTE, low=0, high=9), k.x(3, 2, 2, 2, dtype=BYTE, low=0, high=9), k.c(3, BYTE))))
case("QLinearConv", 10)(lambda k: k.out(k.node(
    "QLinearConv", k.x(1, 2, k.n, 4, dtype=BYTE, low=0, high=200), k.c(0.02, F), k.c(100, BYTE), k.c(np.arange(16).reshape(2, 2, 2, 2) - 8, CODE),
    k.c(0.1, F), k.c(0, CODE), k.c(0.05, F), k.c(120, BYTE), k.c([3, -4], np.int32))))
case("QLinearMatMul", 10)(lambda k: k.out(k.node(
    "QLinearMatMul", k.x(k.n, 3, dtype=BYTE, low=0, high=200), k.c(0.02, F), k.c(100, BYTE), k.x(3, 4, dtype=BYTE, low=0, high=200), k.c(0.03, F),
    k.c(90, BYTE), k.c(0.05, F), k.c(120, BYTE))))
case("MatMulInteger#zero", 10)(lambda k: k.out(k.node(
    "MatMulInteger", k.x(2, k.n, 3, dtype=BYTE, low=0, high=9), k.x(3, 4, dtype=CODE), k.c(4, BYTE), k.c(1, CODE))))

# Sequences of steps and attention.
case("RNN")(lambda k: k.out(*k.node("RNN", k.x(3, k.n, 2), k.x(1, 3, 2), k.x(1, 3, 3), hidden_size=3, outputs=2)))
case("RNN#both")(lambda k: k.out(*k.node(
    "RNN", k.x(k.n + 1, 2, 2), k.x(2, 3, 2), k.x(2, 3, 3), k.x(2, 6), hidden_size=3, direction="bidirectional", outputs=2)))
case("LSTM#lengths")(lambda k: k.out(*k.node(
    "LSTM", k.x(4, k.n, 2), k.x(1, 12, 2), k.x(1, 12, 3), "", k.x(k.n, dtype=np.int32, low=1, high=4), hidden_size=3, outputs=3)))
case("GRU#lengths")(lambda k: k.out(*k.node(
    "GRU", k.x(4, k.n, 2), k.x(1, 9, 2), k.x(1, 9, 3), "", k.x(k.n, dtype=np.int32, low=1, high=4), hidden_size=3, outputs=2)))
case("Attention#cache", 23)(lambda k: k.out(*k.node(
    "Attention", k.x(1, 2, 3, 4), k.x(1, 2, 3, 4), k.x(1, 2, 3, 4), "", k.x(1, 2, k.n, 4), k.x(1, 2, k.n, 4), outputs=3)))
case("Attention#capped", 23)(lambda k: k.out(k.node("Attention", k.x(1, 4, k.n, 4), k.x(1, 2, k.n, 4), k.x(1, 2, k.n, 4), softcap=5.0, is_causal=1)))
case("RotaryEmbedding#rows", 23)(lambda k: k.out(k.node("RotaryEmbedding", k.x(1, 2, k.n, 4), k.x(1, k.n, 2), k.x(1, k.n, 2), interleaved=1)))

# Lists of tensors.
case("ConcatFromSequence", 11)(lambda k: k.out(k.node("ConcatFromSequence", k.node("SequenceConstruct", k.x(2, k.n), k.x(2, k.n)), axis=1)))
case("ConcatFromSequence#new", 11)(lambda k: k.out(k.node(
    "ConcatFromSequence", k.node("SequenceConstruct", k.x(2, k.n), k.x(2, k.n)), axis=0, new_axis=1)))
case("SplitToSequence", 11)(lambda k: k.out(k.node("SequenceAt", k.node("SplitToSequence", k.x(4, k.n), k.c([1, 3]), axis=0), k.c(1))))
case("SequenceLength", 11)(lambda k: k.out(k.node("SequenceLength", k.node("SplitToSequence", k.x(3, k.n), axis=0))))
