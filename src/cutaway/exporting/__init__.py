"""A run in one file, with its preprocessing, and that file opened again."""
