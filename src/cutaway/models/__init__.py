"""The architectures: one file per paper or family, each read from top to bottom."""
