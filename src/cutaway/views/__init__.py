"""Views of a model's internals: `registry` lists them, and a view's own file is imported to draw it."""
