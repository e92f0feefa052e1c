"""A model outside PyTorch: traced, converted, and compared at more sizes than it was traced at."""
