"""How a network learns, beside how its steps are taken: an objective makes the loss of a batch."""
