"""A run is a folder: what was asked, where it ran, what it measured."""
