"""Settings of `cutaway prepare` other than those of the data."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.config import setting


@dataclass(frozen=True)
class ShardSettings:
    """Settings for writing shards."""

    workers: int | None = setting(
        None, "processes that make shards side by side; 0 makes them in this one; auto has one for each processor",
        low=0, high=256,
    )  # fmt: skip
    shard_size: int = setting(64, "MiB of the data, as it was given, that go into a shard", low=1, high=65_536)
    held_out: int = setting(
        4, "MiB that val and test of a corpus have at most each, unless val and test are given; 0 sets no bound",
        low=0, high=65_536,
    )  # fmt: skip
    sample: int = setting(
        64,
        "MiB of the training text that a tokenizer is fitted on, evenly spread where there is more",
        low=1,
        high=65_536,
    )
