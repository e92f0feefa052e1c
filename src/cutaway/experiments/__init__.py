"""Experiments with several runs: comparisons, searches and plans."""
