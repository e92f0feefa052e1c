"""Confidence intervals and significance tests: one implementation for reports and comparisons.

`intervals` has the 95 % intervals of metrics, also of windows of a series, `classes` those of confusion matrices and
ranked scores, `comparison` the differences between models. docs/statistics.md says how often each interval holds the
truth in simulations.
"""
