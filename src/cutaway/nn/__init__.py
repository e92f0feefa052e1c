"""Neural-network functions and layers that depend on torch alone."""
