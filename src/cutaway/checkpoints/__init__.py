"""Checkpoints: reading, writing and conversion of model weights in Cutaway's and other formats."""
