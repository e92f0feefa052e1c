"""Views of a run from its documents: its scores, its training, its examples."""
