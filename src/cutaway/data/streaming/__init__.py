"""Data larger than memory: prepared once as a folder of shards, then read in parts.

`shards.py` has the manifest of such a folder, the jobs in worker processes that write its shards, and the kinds of data
that can be prepared. Each of the other modules is for one kind of data, or reads tar files. To add a kind, add an entry
to `shards.SHARDED` and the two functions that it names, as described in `shards.py`.
"""
