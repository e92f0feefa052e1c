"""How videos in tar shards are looked at."""

from __future__ import annotations

from ..folders import VIDEOS
from ..shards.indexing import Looking
from .reading import look, packed, read_whole, unusable

SHARDED = Looking(VIDEOS, look, packed, unusable, read_whole)
