"""What is learned: for each kind of task its loss, its metrics, its predictions."""
