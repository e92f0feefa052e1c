"""Pairs of sequences: reading, tokenization of both sides, and preprocessing."""
