"""Data larger than memory: prepared once as a folder of shards, then read a part at a time.

    manifest.py  the files of such a folder with their sizes and checksums; written last; opened, verified
    writer.py    jobs in worker processes that write shards: each shard is whole or absent, resumed after a kill
    prepare.py   which kinds of data can be prepared, by which function, and what opens them again

The other modules are for one kind of data each. To add a kind, add a line to `prepare.SHARDED` and the two functions
that it names, which `prepare.py` describes.
"""
