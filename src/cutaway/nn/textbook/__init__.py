"""Explicit reference implementations of convolution, pooling, back-propagation and batch-norm folding."""
