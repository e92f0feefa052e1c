"""What can be looked at is found by its name: dir() and completion show what the package offers."""

from __future__ import annotations

import cutaway


def test_what_the_package_offers_is_listed() -> None:
    offered = {"capture", "intervene", "ablate", "patch", "attribute", "concept", "flow"}
    assert offered <= set(dir(cutaway.inspect))
    assert {"__name__", *cutaway.inspect.__all__} <= set(dir(cutaway.inspect))
    assert all(getattr(cutaway.inspect, name) is not None for name in cutaway.inspect.__all__)
