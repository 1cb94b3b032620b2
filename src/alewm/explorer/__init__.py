"""The explorer: a local page on which one plans with trained models and watches them think."""
