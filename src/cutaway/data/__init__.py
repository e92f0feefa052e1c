"""Where examples come from: your files, the named data sets, splits, preprocessing.

`opening.py` is the door: what a name or a path stands for, and who opens it. `kinds.py` has a line for each kind of
data, and each kind has a folder with the same three files:

    opening.py        a source and settings to a data set: read, split, fitted on the training split, prepared
    reading.py        files to plain values, each that is damaged or strange told by its name
    preprocessing.py  plain values to tensors, for all splits and for new examples alike, and to JSON and back

What else stands in such a folder is what that kind alone has. `splits.py`, `assembly.py` and `sets.py` are for all
kinds, `named/` fetches and reads the sets that have names, and `examples/` writes small ones to begin with.
"""
