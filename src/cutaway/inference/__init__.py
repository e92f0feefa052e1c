"""Sequence generation: sampling, beam search, and decoding with carried state."""
