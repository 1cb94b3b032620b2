"""Goal environments: one contract, a registry of tasks, and one module or folder per environment."""
