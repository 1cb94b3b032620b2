"""Reacher: a two-link arm is swung, by torques alone, to the joint angles of a picture."""
