"""Models beside one another and beside simple ones: which is better, and whether the difference is real."""
