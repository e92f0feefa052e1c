"""Series data: classification of whole signals, and forecasting."""
