"""The paper's toy study: two controlled damped oscillators, seen through a nonlinear ten-dimensional observation."""
