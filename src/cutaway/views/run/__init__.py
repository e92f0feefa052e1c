"""What can be seen of a run in the documents that it left: its scores, its course, its examples."""
