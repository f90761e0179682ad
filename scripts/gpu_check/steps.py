"""Steps of a check, what came of each, and the state that a later call goes on from.

A step that passed or failed is not done again; whatever kept one from being run is looked at anew in every call.
"""

import itertools
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


class OutOfTime(Exception):
    """A command took longer than it may."""


class CommandFailed(Exception):
    """A command ended with an error."""

    def __init__(self, code, output):
        lines = [line for line in output.strip().splitlines() if line.strip()]
        shown = next((line for line in lines if line.startswith("error")), lines[-1] if lines else "no output")
        super().__init__(f"exit code {code}: {shown}")
        self.code, self.output = code, output


def run(command, seconds, environment=None):
    """Runs a command; yields its standard output. It and all that it started are ended when the time is up."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        process = subprocess.Popen(
            [str(c) for c in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            raise OutOfTime from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0), err.seek(0)
        text, errors = out.read(), err.read()
    if code:
        raise CommandFailed(code, text + errors)
    return text


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


def perform(steps, context, state, seconds, tell=print, clock=time.monotonic, jobs=1):
    """Does what the state lacks, as far as the seconds go; up to so many steps that take no times at once."""
    end, lock = clock() + seconds, threading.Lock()
    # Steps may build on what came of others.
    context.outcomes = state.outcomes

    def do(step):
        outcome = attempt(step, context, state.outcomes.get(step.name), end - clock(), seconds, clock)
        with lock:
            state.put(step.name, outcome)
            tell(f"{step.name}: {outcome.status}: {outcome.line}")

    open_steps = (s for s in sorted(steps, key=lambda s: s.rank) if not state.settled(s.name))
    for is_timed, batch in itertools.groupby(open_steps, key=lambda s: s.is_timed):
        if is_timed or jobs == 1:
            for step in batch:
                do(step)
        else:
            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(do, batch))


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
