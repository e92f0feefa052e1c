"""What it costs a training to be watched: a thousand steps in the studio with a page that takes every frame it can get,
beside a thousand while nobody looks; and what it costs to be held by hand, beside the loop of itself.

    python -m benchmarks studio                      the rows
    python -m benchmarks.studio 30                   30 minutes of play: memory, minute by minute
"""

from __future__ import annotations

import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cutaway.apps.studio.setup import Opening, build_side
from cutaway.apps.studio.trainer import LiveTrainer

from .pairs import Pair, race

CASES = {
    "mlp on spirals": {"data": "spirals", "model": "mlp", "model.hidden_dims": "8,8", "model.dropout": "0"},
    "lenet5-modern on digits": {"data": "digits", "model": "lenet5-modern"},
}
WINDOW = 2.0  # seconds of training that are counted at a time
SETTLE = 0.5  # seconds for what a frame has begun to end
RUNS = 15
BY_HAND = {"mlp on spirals": 400, "lenet5-modern on digits": 40}  # steps, about a tenth of a second


class Served:
    """A studio in processes of its own, and what a page asks of it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cutaway", "studio"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.frames = 0

    def post(self, path: str, **body: object) -> dict[str, int]:
        """Ask, and give the answer."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as answer:
            said: dict[str, int] = json.load(answer)
        return said

    def step(self) -> int:
        """The step at which training is now."""
        return self.post("control", side="a", do="play")["step"]

    def thousand(self) -> float:
        """Seconds that a thousand steps take, from a window of training."""
        then, first = time.perf_counter(), self.step()
        time.sleep(WINDOW)
        now, last = time.perf_counter(), self.step()
        return 1000 * (now - then) / (last - first)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Somebody takes frames as fast as they come."""
        events = urllib.request.urlopen(f"{self.url}events")

        def take() -> None:
            try:
                for line in events:
                    self.frames += line.startswith(b"data: ")
            except (OSError, ValueError, AttributeError):
                return

        reader = threading.Thread(target=take, daemon=True)
        reader.start()
        time.sleep(SETTLE)
        try:
            yield
        finally:
            _hang_up(events)
            reader.join()
            time.sleep(SETTLE)

    def stop(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def rows() -> list[tuple[Pair, float]]:
    """Each case with the most that its ratio may be."""
    found = []
    for name, state in CASES.items():
        studio = Served()
        try:
            found.append((watched(name, studio, state), 1.03))
        finally:
            studio.stop()
        found.append((by_hand(name, state), 1.03))
    return found


def watched(name: str, studio: Served, state: dict[str, str]) -> Pair:
    """A thousand steps while somebody watches, beside a thousand while nobody does."""
    studio.post("open", side="a", state={**state, "speed": "0"})
    studio.post("control", side="a", do="play")
    with studio.watched():
        time.sleep(3)  # the first frames import what views need
    times: list[tuple[float, float]] = []
    seconds = frames = 0.0
    for i in range(RUNS):
        alone = studio.thousand() if i % 2 else 0.0
        before = studio.frames
        with studio.watched():
            began, before = time.perf_counter(), studio.frames
            seen = studio.thousand()
            seconds, frames = seconds + time.perf_counter() - began, frames + studio.frames - before
        times.append((seen, alone or studio.thousand()))
    ratios = sorted(a / b for a, b in times)
    low, _, high = statistics.quantiles(ratios, n=4)
    ours, peer = (statistics.median(column) for column in zip(*times))
    said = f"studio: 1 000 steps of {name}, {frames / seconds:.0f} frames a second watched, vs. unwatched"
    return Pair(said, ours, peer, statistics.median(ratios), low, high, RUNS)


def by_hand(name: str, state: dict[str, str]) -> Pair:
    """Steps held by hand, with all that is remembered of them, beside those of the loop."""
    opening = Opening(state["model"], state["data"], {k: v for k, v in state.items() if k not in ("model", "data")})
    with tempfile.TemporaryDirectory() as folder:
        live, plain = (LiveTrainer(build_side(opening), Path(folder)) for _ in range(2))
        trainer, steps = plain.trainer, BY_HAND[name]

        def held() -> None:
            goal = live.step + steps
            while live.step < goal:
                live.advance()

        def alone() -> None:
            goal = trainer.state.update + steps
            while trainer.state.update < goal:
                for _ in trainer.epoch():
                    if trainer.state.update >= goal:
                        break
                else:
                    assert trainer.val is not None
                    trainer.validate(trainer.val)
                    trainer.next_epoch()

        return race(f"studio: {steps} steps of {name} held by hand, vs. the loop's", held, alone, runs=RUNS)


def play(minutes: float) -> None:
    """Watch the largest of what a studio holds in memory, minute by minute."""
    studio = Served()
    try:
        studio.post("open", side="a", state={**CASES["mlp on spirals"], "speed": "0"})
        with studio.watched():
            for minute in range(round(minutes) + 1):
                print(
                    f"{minute} min, step {studio.step():,}, {studio.frames:,} frames: {memory(studio)} MiB", flush=True
                )
                time.sleep(60 if minute < minutes else 0)
    finally:
        studio.stop()


def memory(studio: Served) -> list[int]:
    """MiB of each process of the studio that are its own, the server first."""
    found, family = {}, {studio.process.pid}
    for _ in range(3):
        for entry in Path("/proc").glob("[0-9]*"):
            text = (entry / "stat").read_text() if (entry / "stat").exists() else ""
            if text and int(text.rpartition(")")[2].split()[1]) in family:
                family.add(int(entry.name))
    for pid in sorted(family):
        held = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        found[pid] = int(held[1]) // 1024 if held else 0
    return list(found.values())


def _hang_up(events: object) -> None:
    """Close a connection that another thread reads."""
    import socket

    raw = events.fp.raw._sock  # type: ignore[attr-defined]
    raw.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    play(float(sys.argv[1]))
