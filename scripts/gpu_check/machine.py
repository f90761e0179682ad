"""What the machine has: a device, its driver, NVRTC. Asked through the libraries themselves, so nothing else is needed."""

import ctypes
import os
import pathlib
import re
import sys

CAPABILITY_MAJOR, CAPABILITY_MINOR, PROCESSORS = 75, 76, 16


class Missing(Exception):
    """Something that is not there, in words."""


def device(number):
    """Name, compute capability, bytes of memory and the driver's version of a device."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise Missing("no device: there is no driver (libcuda.so.1 cannot be opened)") from None
    code = cuda.cuInit(0)
    if code:
        raise Missing(f"no device: the driver does not start (code {code})")
    count, handle, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    if not 0 <= number < count.value or cuda.cuDeviceGet(ctypes.byref(handle), number):
        raise Missing(f"no device: the driver finds {count.value}, number {number} is asked for")
    name, bytes_ = ctypes.create_string_buffer(256), ctypes.c_size_t()
    cuda.cuDeviceGetName(name, 255, handle)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(bytes_), handle)
    cuda.cuDriverGetVersion(ctypes.byref(version))

    def attribute(which):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), which, handle)
        return value.value

    return {
        "name": name.value.decode(errors="replace"),
        "capability": f"{attribute(CAPABILITY_MAJOR)}.{attribute(CAPABILITY_MINOR)}",
        "processors": attribute(PROCESSORS),
        "memory": bytes_.value,
        "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
    }


def of_stem(stem, folder):
    """Files of a library in a folder, the newest first; the libraries that they open beside them are left out."""
    found = [p for p in pathlib.Path(folder).glob(f"{stem}.so.*") if re.fullmatch(rf"{stem}\.so\.\d+", p.name)]
    return sorted(found, key=lambda p: -int(p.name.rsplit(".", 1)[1]))


def packages():
    """Folders in which Python packages of NVIDIA's libraries lie, such as those that PyTorch comes with, and the toolkit's."""
    installed = [folder for place in sys.path if place for folder in sorted(pathlib.Path(place).glob("nvidia/*/lib"))]
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    toolkits = [pathlib.Path(home) / "lib64" for home in [*filter(None, homes), "/usr/local/cuda", "/opt/cuda"]]
    return installed + [folder for folder in toolkits if folder.is_dir()]


def beside(stem, nvrtc_file):
    """The file of another library of NVIDIA's of the same major version as NVRTC, if it is in one of these folders."""
    major = re.search(r"\.so\.(\d+)", nvrtc_file)
    files = [file for folder in packages() for file in of_stem(stem, folder)]
    return next((str(file) for file in files if major and file.name.endswith(f".so.{major[1]}")), None)


def cudnn():
    """The file of cuDNN in one of these folders, if there is one."""
    return next((str(file) for folder in packages() for file in of_stem("libcudnn", folder)), None)


def nvrtc(given, root):
    """The file of NVRTC and its version: in the folder or file given, else below `target/nvrtc`, in a Python package, in the toolkit, or
    where the system has it."""
    places = [pathlib.Path(given)] if given else [root / "target/nvrtc", *packages()]
    files = []
    for place in places:
        if place.is_file():
            files.append(place)
        else:
            folders = [place, *(f for f in sorted(place.glob("**/lib")) if f.is_dir())]
            files += [f for folder in folders for f in of_stem("libnvrtc", folder)]
    if given and not files:
        raise Missing(f"no NVRTC: {given} is no file, and no folder with a libnvrtc.so.N")
    for file in [*files, *([] if given else ["libnvrtc.so.13", "libnvrtc.so.12"])]:
        try:
            return str(file), version(file)
        except (OSError, AttributeError) as e:
            if given:
                raise Missing(f"no NVRTC: {file} cannot be opened ({e})") from None
    raise Missing("no NVRTC: name its folder with --nvrtc or in the variable MLC_NVRTC")


def version(file):
    """Opens the library; what it opens by name is opened first, from beside it."""
    folder = os.path.dirname(file)
    for beside in sorted(pathlib.Path(folder).glob("libnvrtc-builtins.so.*")) if folder else []:
        ctypes.CDLL(str(beside), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(file))
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"
