"""Steps of a check, what came of each, and the state that a later call goes on from.

A step that passed or failed is not done again; whatever kept one from being run is looked at anew in every call.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Callable

PASSED, FAILED, NOT_RUN, LEFT = "passed", "failed", "not run", "left for the next call"
SETTLED = (PASSED, FAILED)

# Whole calls that a step is given before it counts as one that never ends: what was compiled in one is there in the next.
CALLS = 3


# Seconds that a step may prepare before it is timed, unless the call says so.
PREPARING = 150


@dataclass
class Outcome:
    """What came of a step: a line for people, and figures."""

    status: str
    line: str
    data: dict = field(default_factory=dict)


@dataclass
class Step:
    """One thing to do. `needs` are words of `Context.missing`; `least` seconds must be left to begin it. What takes no times may run beside
    others of its kind. Steps of a lower rank are done first."""

    name: str
    group: str
    work: Callable
    needs: tuple = ()
    least: float = 5.0
    is_timed: bool = True
    rank: int = 0


class Turns:
    """Steps that take times prepare side by side; once all of them have, or have ended, they are timed one after the other."""

    def __init__(self, count=1, patience=PREPARING):
        self.barrier, self.patience = threading.Condition(), patience
        self.preparing, self.here, self.timing = count, threading.local(), threading.Lock()

    def begin(self):
        self.here.ready = False

    def ready(self):
        """This step has prepared, or has ended. Waits for nothing."""
        if not getattr(self.here, "ready", False):
            self.here.ready = True
            with self.barrier:
                self.preparing -= 1
                self.barrier.notify_all()

    @contextlib.contextmanager
    def alone(self, seconds):
        """Until all others are ready, and then while no other step is timed."""
        self.ready()
        end = time.monotonic() + seconds
        with self.barrier:
            if not self.barrier.wait_for(lambda: self.preparing <= 0, seconds):
                raise OutOfTime
        if not self.timing.acquire(timeout=max(end - time.monotonic(), 0)):
            raise OutOfTime
        try:
            yield
        finally:
            self.timing.release()


class OutOfTime(Exception):
    """A command took longer than it may."""


class CommandFailed(Exception):
    """A command ended with an error."""

    def __init__(self, code, output):
        lines = [line for line in output.strip().splitlines() if line.strip()]
        shown = next((line for line in lines if line.startswith("error")), lines[-1] if lines else "no output")
        super().__init__(f"exit code {code}: {shown}")
        self.code, self.output = code, output


def run(command, seconds, environment=None, turns=None):
    """Runs a command; yields its standard output. It and all that it started are ended when the time is up. With turns, the command says
    when it is ready to be timed, and waits for a line."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        process = subprocess.Popen(
            [str(c) for c in command],
            stdin=subprocess.PIPE if turns else subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            if turns and is_ready(process, err, end, turns.patience):
                with turns.alone(end - time.monotonic()):
                    process.stdin.close()
                    code = process.wait(timeout=max(end - time.monotonic(), 0.1))
            code = process.wait(timeout=max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            raise OutOfTime from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdin:
                process.stdin.close()
        out.seek(0), err.seek(0)
        text, errors = out.read(), err.read()
    if code:
        raise CommandFailed(code, text + errors)
    return text


def is_ready(process, err, end, patience):
    """Waits until a command says so; false if it ends before. What takes too long would hold up all that prepare beside it: it is given half of
    the time that is left."""
    now = time.monotonic()
    end = min(end, now + patience, now + (end - now) / 2)
    while process.poll() is None:
        if time.monotonic() > end:
            raise OutOfTime
        # By its place, which the process that writes does not share.
        if b"ready\n" in os.pread(err.fileno(), 1 << 20, 0):
            return True
        time.sleep(0.02)
    return False


class State:
    """Outcomes by the names of steps, in a file that is written after every step."""

    def __init__(self, path, key):
        self.path, self.key, self.outcomes, self.note = pathlib.Path(path), key, {}, ""
        if not self.path.exists():
            return
        try:
            known = json.loads(self.path.read_text())
            outcomes = {name: Outcome(**o) for name, o in known["steps"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            self.note = f"the state of earlier calls cannot be read ({e}): everything is done again"
            return
        if known["key"] != key:
            self.note = "the programs differ from those of earlier calls: everything is done again"
            return
        self.outcomes = outcomes

    def settled(self, name):
        return name in self.outcomes and self.outcomes[name].status in SETTLED

    def put(self, name, outcome):
        self.outcomes[name] = outcome
        steps = {n: vars(o) for n, o in self.outcomes.items()}
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"key": self.key, "steps": steps}, indent=1))
        fresh.replace(self.path)


def perform(steps, context, state, seconds, tell=print, clock=time.monotonic, jobs=1, patience=PREPARING):
    """Does what the state lacks, as far as the seconds go, up to so many steps at once; those that take times are timed alone."""
    end, lock = clock() + seconds, threading.Lock()
    # Steps may build on what came of others.
    context.outcomes = state.outcomes

    def do(step):
        context.turns.begin()
        outcome = attempt(step, context, state.outcomes.get(step.name), end - clock(), seconds, clock)
        context.turns.ready()
        with lock:
            state.put(step.name, outcome)
            tell(f"{step.name}: {outcome.status}: {outcome.line}")

    for batch in batches([s for s in steps if not state.settled(s.name)], jobs):
        context.turns = Turns(len(batch), patience)
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(do, batch))


def batches(steps, most):
    """Steps that begin together, lower ranks first. While those that take times prepare, others are done, half of all at most; those are
    over when the first one is timed. Where none takes times, none waits for what else is done, and there may be more than at once."""
    steps = sorted(steps, key=lambda s: s.rank)
    timed, others = ([s for s in steps if s.is_timed == kind] for kind in (True, False))
    while timed:
        beside = min(len(others), most // 2)
        if most == 1 and others and others[0].rank < timed[0].rank:
            beside = 1
        alike = [s for s in timed if s.rank == timed[0].rank][: most - beside]
        yield [*others[:beside], *alike]
        del others[:beside], timed[: len(alike)]
    if others:
        yield others


def attempt(step, context, before, left, seconds, clock):
    """What comes of a step in the seconds that are left of a call."""
    missing = context.missing(step.needs)
    if missing:
        return Outcome(NOT_RUN, missing)
    # What has a whole call is begun however short that is.
    is_whole = left > seconds - 1
    if left < step.least and not is_whole:
        return Outcome(LEFT, f"{max(left, 0):.0f} s were left, and it takes {step.least:.0f} s at least")
    begun = clock()
    try:
        outcome = step.work(context, left)
    except OutOfTime:
        calls = (before.data.get("calls", 0) if before else 0) + is_whole
        outcome = (
            Outcome(FAILED, f"stopped after {left:.0f} s, the whole time of a call, {calls} times: give a longer --time")
            if calls >= CALLS
            else Outcome(LEFT, f"stopped after {left:.0f} s, when the time of the call was up", {"calls": calls})
        )
    except CommandFailed as e:
        outcome = Outcome(FAILED, str(e), {"output": e.output[-4000:]})
    except Exception as e:
        # Whatever is wrong with one step, the others are done.
        outcome = Outcome(FAILED, f"{type(e).__name__}: {e}")
    outcome.data["seconds"] = round(clock() - begun, 1)
    return outcome
