"""A trained model made smaller, pruned or quantized, and held beside what it was."""
