"""Data sets: files, named sets and objects from Python; splits, transforms and streaming.

`open_data.py` opens a name, a path or an object. `modalities.py` has a line for each kind of data, and each kind has a
folder with these files:

    *_files.py      read files into plain values; name every file that is damaged or has an unexpected form
    transforms.py   turn plain values into tensors, for all splits and for new examples; saved as JSON with the run
    dataset.py      find, read, split, fit on the training split, and build the data set

`splits.py`, `samplers.py`, `build.py` and `dataset_base.py` serve all kinds. `datasets/` fetches and reads the named
sets, `in_memory/` takes objects from Python, `streaming/` reads shards and Parquet, `quality/` finds leakage,
duplicates, label noise and drift, and `synthetic/` writes small files to try.
"""
