"""Registry of the kinds of problems."""

from __future__ import annotations

from .addition import Addition
from .countdown import Countdown
from .problem import Problem

KINDS: tuple[Problem, ...] = (Addition(), Countdown())
PROBLEMS: dict[str, Problem] = {kind.name: kind for kind in KINDS}
