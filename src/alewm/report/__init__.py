"""One page per run, for a reader with a browser."""
