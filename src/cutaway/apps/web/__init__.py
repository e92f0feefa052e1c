"""What the studio and the prediction server have in common: where they listen, whom they answer, what they read."""
