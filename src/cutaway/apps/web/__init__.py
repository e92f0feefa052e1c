"""Networking code that the studio and the prediction server share: sockets, connection limits, HTTP requests."""
