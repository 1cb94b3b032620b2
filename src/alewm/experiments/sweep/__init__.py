"""Grids of training runs: which trials there are, how they fare, and which configuration validation pairs select."""
