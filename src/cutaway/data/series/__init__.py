"""Series: signals with one class each, and series whose next steps are forecast."""
