"""Data larger than memory: prepared once as a folder of shards, then read in parts.

    manifest.py  the files of such a folder with their sizes and checksums; written last; opened, verified
    writer.py    jobs in worker processes that write shards: each shard is complete or absent, resumed after a kill
    prepare.py   the kinds of data that can be prepared, and the functions that prepare and open them

Each of the other modules is for one kind of data. To add a kind, add an entry to `prepare.SHARDED` and the two
functions that it names, as described in `prepare.py`.
"""
