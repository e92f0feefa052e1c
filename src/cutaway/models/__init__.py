"""The model catalog: one file for each paper or family, readable from top to bottom."""
