"""Confidence intervals and significance tests: one implementation for reports and comparisons.

`intervals` has the 95 % intervals of metrics, `classes` those of confusion matrices and ranked scores, `blocks` those
of windows of a series, `comparison` the differences between models. docs/statistics.md says how often each interval
holds the truth in simulations.
"""
