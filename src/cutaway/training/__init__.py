"""Training: the loop, objectives, optimizers, schedules and checkpoints."""
