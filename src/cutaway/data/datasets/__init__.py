"""Built-in data sets: catalog, download and file readers."""
