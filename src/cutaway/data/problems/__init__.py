"""Problems whose written solutions can be checked to the last step: sums, and numbers that make a target."""
