"""Data given in Python: arrays, tables of other libraries, lists, Datasets, graphs.

container.py    the few containers that every object is read into: columns, texts, an array, images, graphs; tables of
                other libraries, which are used only if the user imported them
source.py       the objects and their splits: selects the reader, infers the kind of data
dataset.py      containers to data sets, by the same functions as for files, and to new examples of a run, for predict
                and evaluate
"""
