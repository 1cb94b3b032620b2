"""Grids of training runs: trials, jobs, selection on validation pairs."""
