"""Export, pruning and quantization of trained models."""
