"""What one server takes at most, and how long it waits."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields

from ...core.errors import SettingError, require, short

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
SAMPLES = 16  # texts of one request
STOPS, STOP = 16, 1000  # strings that end a text, and their characters
NAME = 200  # characters of a file's name
EXAMPLES = 4096  # rows, texts, series or files that one request lists
PROMPT = 2**17  # characters
PATIENCE, PACE = 10.0, 2**16  # seconds for a body to come, and bytes a second that add to them
SMALL = 8  # a request that holds more than this part of a bound is large: computed apart from small ones
AGAIN = 1  # second after which a client that was turned away may ask again


@dataclass(frozen=True)
class Bounds:
    """The most that one request may hold, each about ten seconds of work for two slow cores."""

    pixels: int = 2**27  # of all images: two of the largest that are read, or 60 photographs of 2 megapixels
    video_pixels: int = 2**32  # frames times pixels: 69 s of full HD at 30 frames a second
    samples: int = 2**25  # of all channels of all recordings: 35 minutes at 16 kHz
    characters: int = 2**21  # of all texts
    rows: int = 2**20  # of all tables and series
    graph_rows: int = 2**20  # nodes and edges of a graph
    atoms: int = 2**18  # of all molecules


@dataclass(frozen=True)
class Limits:
    """The limits of a server. Raises SettingError, by the option's name, for what cannot be."""

    batch_wait: float = 0.002  # seconds that a batch waits for more, where several clients ask
    max_batch: int = 32  # examples at which a batch waits no more; a request with more is large
    max_body: int = 16  # MiB of a request
    queue: int = 256  # requests that are being answered or wait, at most
    timeout: float = 60.0  # seconds until an answer, or the first token of a streamed one
    max_tokens: int = 1024  # that are written for a request
    streams: int = 8  # texts that are written in turn; more wait
    bounds: Bounds = field(default_factory=Bounds)  # of what one request holds

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, Bounds):
                continue
            least, allowed = (0, "at least 0") if one.name == "batch_wait" else (1e-3, "above 0")
            ok = math.isfinite(value) and value >= least
            require(ok, f"--{one.name.replace('_', '-')}", value, allowed, SettingError)

    @property
    def body(self) -> int:
        """Bytes of a request, at most."""
        return self.max_body * 2**20

    @property
    def bodies(self) -> int:
        """Bytes of all requests that are being read or answered, at most."""
        return 8 * self.body


def seconds(option: str, text: str) -> float:
    """A duration such as 2ms, 30s or 5min, in seconds. Raises SettingError by the option's name."""
    found = re.fullmatch(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(UNITS)})", text.strip())
    if found is None:
        raise SettingError(
            f"{option} {short(text)} cannot be read: it is a number and a unit ({', '.join(UNITS)}), as 2ms."
        )
    return float(found[1]) * UNITS[found[2]]
