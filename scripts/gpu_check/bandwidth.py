"""Bytes that a copy on the device moves in a second, by the driver's own copy and the device's events."""

import ctypes

from machine import Missing

COPIES = 20


def copy(number, size):
    """Bytes read and written in a second by the fastest of some copies."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def done(code):
        if code:
            raise OSError(f"the driver refuses to time a copy (code {code})")

    pointer, context, handle = ctypes.c_uint64, ctypes.c_void_p(), ctypes.c_int()
    source, target = pointer(), pointer()
    events = ctypes.c_void_p(), ctypes.c_void_p()
    done(cuda.cuInit(0))
    if cuda.cuDeviceGet(ctypes.byref(handle), number):
        raise Missing("no device")
    done(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, handle))
    try:
        done(cuda.cuMemAlloc_v2(ctypes.byref(source), ctypes.c_size_t(size)))
        done(cuda.cuMemAlloc_v2(ctypes.byref(target), ctypes.c_size_t(size)))
        for event in events:
            done(cuda.cuEventCreate(ctypes.byref(event), 0))
        least = float("inf")
        for _ in range(COPIES):
            done(cuda.cuEventRecord(events[0], None))
            done(cuda.cuMemcpyDtoDAsync_v2(target, source, ctypes.c_size_t(size), None))
            done(cuda.cuEventRecord(events[1], None))
            done(cuda.cuEventSynchronize(events[1]))
            milliseconds = ctypes.c_float()
            done(cuda.cuEventElapsedTime(ctypes.byref(milliseconds), *events))
            least = min(least, milliseconds.value / 1e3)
        return 2 * size / least
    finally:
        # All that was allocated in the context goes with it.
        cuda.cuCtxDestroy_v2(context)
