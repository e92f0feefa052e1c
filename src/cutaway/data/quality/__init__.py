"""Data quality checks.

The checks cover duplicates and near-duplicates across splits, target leakage, group and time leakage, probable label
errors, and drift.

`validation.guard` runs all checks, with one module for each. Two kinds of finding are made when data is loaded, because
all of it is available then: exact duplicates (`duplicates`) and columns that repeat the target (`tables.leaks`). The
other checks examine a sample to bound the cost, and each finding states its size. This module imports nothing, because
all loaders import `duplicates`.
"""
