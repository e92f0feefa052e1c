"""Programs: the command line, the prediction server, the studio and the course."""
