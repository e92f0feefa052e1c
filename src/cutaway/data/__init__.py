"""Where examples come from: your files, the named data sets, splits, preprocessing."""
