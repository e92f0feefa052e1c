"""Experiments of several runs: comparisons, searches, and plans of a training."""
