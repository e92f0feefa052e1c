"""The mathematics: functions and layers, on torch alone."""
