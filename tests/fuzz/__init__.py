"""The fuzzer: hostile documents, files, objects, settings and requests, each read or rejected in words.

    python -m tests.fuzz                                     # every kind, 100 inputs each
    python -m tests.fuzz --kinds files:csv,settings --count 500 --seed 3
    python -m tests.fuzz --list

An input passes where it is read, or where a CutawayError (from the command line: exit status 2) is raised. It fails
with any other exception, where it takes too long, and where the process dies or wants more memory than it may have.

A kind of input is one entry of `kinds.KINDS`: register another with `kinds.register`.
"""

from __future__ import annotations

from . import data_files, documents, objects, requests, settings
from .kinds import register

ALL = (documents, data_files, objects, settings, requests)
for module in ALL:
    register(module.KINDS)
