"""Running a command and seeing what it takes: time, memory, exit code, messages."""
import os
import resource
import subprocess
import tempfile
import time


def run(command, seconds, errors_only=False, memory=None, busy=None):
    """Exit code (none if it took too long), what was printed, seconds and bytes at most.

    Printed is standard error, and standard output unless only errors are wanted. `memory` limits the address space, `busy` the seconds of
    processor time, which a machine with other work does not lengthen.
    """
    def limits():
        if busy is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (busy, busy))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    begin = time.monotonic()
    with tempfile.TemporaryFile() as out:
        p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL if errors_only else out,
                             stderr=out, preexec_fn=limits)
        while True:
            pid, status, used = os.wait4(p.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - begin > seconds:
                p.kill()
                used = os.wait4(p.pid, 0)[2]
                p.returncode = -9
                return None, "", seconds, used.ru_maxrss * 1024
            time.sleep(0.003)
        p.returncode = os.waitstatus_to_exitcode(status)
        if busy is not None and used.ru_utime + used.ru_stime >= busy and p.returncode < 0:
            return None, "", busy, used.ru_maxrss * 1024
        out.seek(0)
        text = out.read().decode(errors="backslashreplace")
    return p.returncode, text, time.monotonic() - begin, used.ru_maxrss * 1024
