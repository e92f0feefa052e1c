"""The course: chapters, exercises with their checks, and helpers that show source code and drawings on its pages."""

from .answer_check import check
from .exercises import frame, source, style

__all__ = ["check", "frame", "source", "style"]
