"""Trained runs, which are opened from their folders to evaluate them and to predict with them."""
