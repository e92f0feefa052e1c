"""Problems whose written solutions can be checked step by step: sums, and arithmetic puzzles with a target number."""
