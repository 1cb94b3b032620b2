"""What every experiment shares: runs found again by their configuration, work done once, results as tables."""
