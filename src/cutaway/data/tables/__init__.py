"""Tables: how they are read, what their columns are, and what the network gets of them."""
