"""A trained model made smaller: pruned, and held beside what it was."""
