"""The paper's toy study: two controlled damped oscillators, seen through a nonlinear ten-dimensional observation."""

NAME = "oscillator"
"""What it is called on the command line, beside the experiments of the catalogue."""
