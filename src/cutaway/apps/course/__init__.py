"""The course: chapters, exercises with their checks, and helpers that show source code and drawings on its pages."""

from .answer_check import check
from .computation_graph import computation_graph
from .exercises import frame, source, style

__all__ = ["check", "computation_graph", "frame", "source", "style"]
