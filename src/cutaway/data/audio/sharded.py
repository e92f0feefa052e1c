"""How recordings in tar shards are looked at."""

from __future__ import annotations

from ..folders import AUDIO
from ..shards.indexing import Looking
from .reading import look_at, packed, read_whole, unusable

SHARDED = Looking(AUDIO, look_at, packed, unusable, read_whole)
