"""How images in tar shards are looked at."""

from __future__ import annotations

from ..folders import IMAGES
from ..shards.indexing import Looking
from .files import look, packed, read_whole, unusable

SHARDED = Looking(IMAGES, look, packed, unusable, read_whole)
