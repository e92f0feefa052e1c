"""The chapters' pages, read by the script that runs them."""

from __future__ import annotations

from ..scripts import DOCS, load

COURSE = DOCS / "course"

run = load("course_run", COURSE / "run.py")
