"""Pairs of sequences: reading, tokenizing both sides, and what stands between them and the model."""
