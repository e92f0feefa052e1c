"""Graph data: one graph whose nodes are examples, or many graphs that are the examples."""
