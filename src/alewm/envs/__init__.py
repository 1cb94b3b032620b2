"""Goal environments: one contract, a registry of tasks, and one folder per environment."""
