"""The data sets with names: which there are, where they come from, how their files are read."""
