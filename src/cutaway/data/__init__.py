"""Data sets: files, named sets and Python objects; splits, transforms and streaming.

`open_data.py` opens a name, a path or an object. `modalities.py` has an entry for each kind of data, and each kind has
a folder with these files:

    *_files.py      read files into plain values; report every file that is damaged or has an unexpected form
    transforms.py   turn plain values into tensors, for all splits and for new examples; saved as JSON with the run
    dataset.py      find, read, split, fit on the training split, and build the data set

`splits.py`, `samplers.py`, `build.py` and `dataset_base.py` are shared by all kinds. `datasets/` downloads and reads
the named sets, `in_memory/` reads Python objects, `streaming/` reads shards and Parquet, `quality/` finds leakage,
duplicates, label noise and drift, and `synthetic/` writes small example files.
"""
