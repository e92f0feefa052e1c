"""Comparison of models with each other and with simple baselines, with tests of significance."""
