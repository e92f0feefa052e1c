"""Hyperparameter and architecture search, by the metric on the validation split."""
