"""Trained runs: a run folder opened again to evaluate it and to predict with it."""
