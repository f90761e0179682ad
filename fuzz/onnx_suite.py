"""Writes ONNX's conformance suite as folders, for `mlc-rewrite conformance FOLDER`.

    python fuzz/onnx_suite.py FOLDER        (needs numpy and onnx)

Each case becomes FOLDER/KIND/NAME with model.onnx, test_data_set_N/{input,output}_M.pb and tolerance.txt
(relative and absolute). The cases of the kind `node` are computed by the package, the others are copied from
it. Cases that only name a model to download are left out: the package has no data for them.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases


def value(v, like):
    """A value as the message that its type is stored in."""
    if hasattr(v, "SerializeToString"):
        return v
    kind = like.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(v, like.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(v, like.name)
    if kind == "map_type":
        return numpy_helper.from_dict(v, like.name)
    return numpy_helper.from_array(np.asarray(v), like.name)


def write(case, into):
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    (into / "model.onnx").write_bytes(case.model.SerializeToString())
    (into / "tolerance.txt").write_text(f"{case.rtol} {case.atol}\n")
    for n, (inputs, outputs) in enumerate(case.data_sets):
        data = into / f"test_data_set_{n}"
        data.mkdir()
        for kind, values, infos in (
            ("input", inputs, case.model.graph.input),
            ("output", outputs, case.model.graph.output),
        ):
            for i, (v, info) in enumerate(zip(values, infos)):
                (data / f"{kind}_{i}.pb").write_bytes(value(v, info).SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the cases are written")
    root = parser.parse_args().folder
    written, failed = 0, []
    for case in collect_testcases(None):
        try:
            write(case, root / "node" / case.name)
            written += 1
        except Exception as e:
            failed.append(f"{case.name}: {e}")
            shutil.rmtree(root / "node" / case.name, ignore_errors=True)
    stored = Path(onnx.__file__).parent / "backend/test/data"
    for kind in ("simple", "pytorch-converted", "pytorch-operator", "light"):
        for folder in sorted((stored / kind).glob("*")):
            if not (folder / "model.onnx").exists():
                continue
            shutil.copytree(folder, root / kind / folder.name, dirs_exist_ok=True)
            written += 1
    print(f"{written} cases written, {len(failed)} failed")
    for line in failed:
        print("  " + line)


if __name__ == "__main__":
    main()
