"""Learning a world model: losses, updates, checkpoints and the loop that joins them."""
