"""Data quality checks.

The checks cover duplicates and near-duplicates across splits, target leakage, group and time leakage, probable label
errors, and drift.

`validation.validate_dataset` runs all checks. Two kinds of finding are made when data is loaded, because all of it is
available then: exact duplicates (`data.findings`) and columns that repeat the target (`tables.column_roles`). The other
checks examine a sample to bound the cost, and each finding states its size.
"""
