"""How sequences come out of a model: sampling, beams, carried state."""
