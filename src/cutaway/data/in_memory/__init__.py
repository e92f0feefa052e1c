"""Data that a person has in their hands: arrays, tables of other libraries, lists, Datasets, graphs.

held.py       the few forms that everything comes in: columns, texts, an array, images, graphs
frames.py, arrays.py, lists.py, tokens.py, datasets.py, graphs.py
              each reads one kind of object into a form; nothing is imported that is not there already
given.py      what was handed over, with splits of one's own: which reader it is for, which kind of data it is
opening.py    forms to data sets, through the same openers as files
asking.py     forms to new examples of a run, for predict and evaluate
"""
