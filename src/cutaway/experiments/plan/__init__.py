"""Plans of a training: estimated memory, time and cost, on this machine or on other GPUs."""
