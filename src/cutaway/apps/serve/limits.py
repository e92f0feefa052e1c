"""Limits and timeouts of a server."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields

from ...core.errors import SettingError, check_value, shorten

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
SAMPLES = 16  # texts of one request
STOPS, STOP = 16, 1000  # stop strings of a request, and characters of each
NAME = 200  # characters of a file's name
EXAMPLES = 4096  # rows, texts, series or files that one request lists
PROMPT = 2**17  # characters
PATIENCE, PACE = 10.0, 2**16  # seconds for a body to arrive, and bytes per second that extend them
SMALL = 8  # a request above 1/SMALL of a bound is large: computed apart from small ones
AGAIN = 1  # seconds until a rejected client may retry


@dataclass(frozen=True)
class Bounds:
    """Upper bounds on the content of one request, each about ten seconds of work for two slow cores."""

    pixels: int = 2**27  # of all images: two of the largest allowed, or 60 photographs of 2 megapixels
    video_pixels: int = 2**32  # frames times pixels: 69 s of full HD at 30 frames a second
    samples: int = 2**25  # of all channels of all recordings: 35 minutes at 16 kHz
    characters: int = 2**21  # of all texts
    rows: int = 2**20  # of all tables and series
    graph_rows: int = 2**20  # nodes and edges of a graph
    atoms: int = 2**18  # of all molecules


@dataclass(frozen=True)
class Limits:
    """Limits of a server. Raises SettingError, with the option's name, for an invalid value."""

    batch_wait: float = 0.002  # seconds that a batch waits for more requests if there are several clients
    max_batch: int = 32  # examples that make a batch full; a request with more is large
    max_body: int = 16  # MiB of a request
    queue: int = 256  # requests in progress or waiting, at most
    timeout: float = 60.0  # seconds until the answer, or the first token of a streamed answer
    max_tokens: int = 1024  # generated for one request
    streams: int = 8  # texts that are generated concurrently; more wait
    bounds: Bounds = field(default_factory=Bounds)  # on the content of one request

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, Bounds):
                continue
            least, allowed = (0, "at least 0") if one.name == "batch_wait" else (1e-3, "above 0")
            ok = math.isfinite(value) and value >= least
            check_value(ok, f"--{one.name.replace('_', '-')}", value, allowed, SettingError)

    @property
    def body(self) -> int:
        """Maximum size of a request, in bytes."""
        return self.max_body * 2**20

    @property
    def bodies(self) -> int:
        """Maximum size of all requests in progress together, in bytes."""
        return 8 * self.body


def parse_duration(option: str, text: str) -> float:
    """Parse a duration such as 2ms, 30s or 5min to seconds. Raises SettingError with the option's name."""
    found = re.fullmatch(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(UNITS)})", text.strip())
    if found is None:
        raise SettingError(
            f"Invalid {option} {shorten(text)}: must be a number and a unit ({', '.join(UNITS)}), such as 2ms."
        )
    return float(found[1]) * UNITS[found[2]]
