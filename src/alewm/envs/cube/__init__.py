"""Cube: a robot arm moves a cube to where it lies in a picture."""
