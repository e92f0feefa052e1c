"""Run inputs in a forked process, so that a crash, a hang and too much memory are found as such."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import resource
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from cutaway.core.errors import CutawayError

from .kinds import Case, Fault, Kind

MEMORY = 3 << 30  # bytes that a process may have beyond what it has at its start
LONGEST = 1200  # letters of a message, which can name five files with their folders
PATIENCE = 10  # times as long as an input may compute it may take where others compute too
FORK = multiprocessing.get_context("fork")


class Late(BaseException):
    """The alarm. Not an Exception, so that nothing in the package takes it for one of its own."""


@dataclass
class Result:
    """What came of the inputs of a kind."""

    kind: str
    counts: Counter[str] = field(default_factory=Counter)  # read, rejected, fault, hang, crash
    failures: list[tuple[str, str]] = field(default_factory=list)  # input, what happened

    @property
    def inputs(self) -> int:
        """How many inputs were tried."""
        return sum(self.counts.values())


def in_process(work: Callable[[], object], seconds: float) -> str:
    """Run `work` in a forked process, and return what went wrong there; nothing where all went well."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_report, args=(work, sender))
    process.start()
    sender.close()
    said = receiver.recv() if receiver.poll(seconds) else f"no answer after {seconds:g} s"
    if process.is_alive() and said and said.startswith("no answer"):
        process.kill()
    process.join()
    return str(said)


def _report(work: Callable[[], object], sender: Connection) -> None:
    try:
        work()
        sender.send("")
    except BaseException:
        sender.send(traceback.format_exc())
    finally:
        sender.close()
        os._exit(0)


def run_kind(kind: Kind, home: Path, count: int, seed: int) -> Result:
    """Try `count` inputs of a kind, from the same random state for the same seed."""
    result, first = Result(kind.name), 0
    own = home / "scratch" / kind.name.replace("/", "-").replace(":", "-")
    own.mkdir(parents=True, exist_ok=True)
    while first < count:
        tried, failure = _run_from(kind, home, own, count, seed, first, result)
        if failure is None:
            break
        result.counts[failure[0]] += 1
        result.failures.append((failure[1], failure[0]))
        first = tried + 1
    return result


def _run_from(
    kind: Kind, home: Path, own: Path, count: int, seed: int, first: int, result: Result
) -> tuple[int, tuple[str, str] | None]:
    """Try the inputs from `first` on in one process, until they end or it dies: the input that it died of, and how."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_try_all, args=(kind, home, own, count, seed, first, sender))
    process.start()
    sender.close()
    at, name = first, "the preparation of its inputs"
    try:
        while True:
            if not receiver.poll(2 * PATIENCE * kind.seconds):
                process.kill()
                return at, ("hang", name)
            message = receiver.recv()
            if message is None:
                return count, None
            if len(message) == 2:
                at, name = message
            else:
                _, verdict, said = message
                result.counts[verdict] += 1
                if verdict not in ("read", "rejected"):
                    result.failures.append((name, said))
    except EOFError:
        process.join()
        return at, (f"crash (exit status {process.exitcode})", name)
    finally:
        receiver.close()
        process.join()


def _try_all(kind: Kind, home: Path, own: Path, count: int, seed: int, first: int, sender: Connection) -> None:
    os.setpgid(0, 0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    _bound_memory()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _alarm)
    signal.signal(signal.SIGPROF, _alarm)
    try:
        for i, case in enumerate(islice(kind.cases(home, own, Random(f"{kind.name} {seed}")), count)):
            if i < first:
                continue
            sender.send((i, case.name))
            sender.send((i, *_try(case, kind.seconds)))
        sender.send(None)
    except BaseException:
        sender.send((-1, "fault", traceback.format_exc()))
        sender.send(None)
    finally:
        sender.close()
        os._exit(0)


def _try(case: Case, seconds: float) -> tuple[str, str]:
    _set_timers(seconds)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            case.run()
    except CutawayError as error:
        said = str(error)
        return ("rejected", said) if said and len(said) <= LONGEST else ("fault", f"a message of {len(said)}: {said}")
    except Late:
        return "hang", traceback.format_exc(limit=-8)
    except Fault as fault:
        return "fault", str(fault)
    except BaseException as error:
        return "fault", "".join(traceback.format_exception(error, limit=-6, chain=False))
    finally:
        _set_timers(0)
    return "read", ""


def _set_timers(seconds: float) -> None:
    """Bound what an input may compute, and, where it waits for something, how long."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)


def _alarm(number: int, frame: Any) -> None:
    raise Late


def _bound_memory() -> None:
    """Let this process have MEMORY bytes more than it has: what a number in an input asks for is then missed."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    with contextlib.suppress(ValueError, OSError):
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def shuffled(things: list[Any], random: Random) -> Iterator[Any]:
    """The things in a random order, again and again."""
    while things:
        order = list(things)
        random.shuffle(order)
        yield from order
