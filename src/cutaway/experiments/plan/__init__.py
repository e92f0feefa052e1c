"""A plan before the bill: what training would take of memory, time and money, on this machine or on GPUs elsewhere."""
