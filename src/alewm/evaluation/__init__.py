"""Closed-loop success on held-out goals, its intervals, and the capacities used; probes and decoders."""
