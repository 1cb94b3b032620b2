"""Planning with a world model: imagined rollouts of one prefix, the goal cost, CEM, and the loop that replans."""
