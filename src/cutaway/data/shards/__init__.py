"""Data larger than memory: prepared once into a folder of shards, then read a part at a time.

    manifest.py   what such a folder holds: shards with their sizes and checksums, written last; opened, verified
    making.py     how one comes about: jobs in worker processes, each shard whole or not there, resumed after a kill
    preparing.py  the door: which kinds of data can be prepared, by which function, and what opens them again

Everything else here is of one kind of data. To add a kind: a line in `preparing.SHARDED`, and the two functions that it
names, which `preparing.py` describes.
"""
