"""What the machine has: a device, its driver, NVRTC. Asked through the libraries themselves, so nothing else is needed."""

import ctypes
import os
import pathlib
import re

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


def compilers(folder):
    """Files of NVRTC in a folder, the newest first; the libraries that they open beside them are left out."""
    found = [p for p in pathlib.Path(folder).glob("libnvrtc.so.*") if re.fullmatch(r"libnvrtc\.so\.\d+", p.name)]
    return sorted(found, key=lambda p: -int(p.name.rsplit(".", 1)[1]))


def nvrtc(given, root):
    """The file of NVRTC and its version: in the folder or file given, else below `target/nvrtc`, else where the system has it."""
    places = [pathlib.Path(given)] if given else [root / "target/nvrtc"]
    files = []
    for place in places:
        if place.is_file():
            files.append(place)
        else:
            folders = [place, *(f for f in sorted(place.glob("**/lib")) if f.is_dir())]
            files += [f for folder in folders for f in compilers(folder)]
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
