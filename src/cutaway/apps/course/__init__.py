"""The course: its chapters, the exercises with their checks, and what its pages show sources and drawings with."""

from .answer_check import check
from .display import frame, source, style

__all__ = ["check", "frame", "source", "style"]
