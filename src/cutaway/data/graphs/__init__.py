"""Graphs as data: one whose nodes are examples, or many that are examples themselves."""
