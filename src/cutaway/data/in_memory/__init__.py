"""Data given in Python: arrays, tables of other libraries, lists, Datasets, graphs.

container.py    the few containers that every object is read into: columns, texts, an array, images, graphs
from_*.py       each reads one kind of object into a container; a library is used only if the user imported it
source.py       the objects and their splits: selects the reader, infers the kind of data
build.py        containers to data sets, by the same functions as for files
predict_inputs.py
               containers to new examples of a run, for predict and evaluate
"""
