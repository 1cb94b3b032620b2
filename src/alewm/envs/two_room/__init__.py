"""Two-Room: a dot, a wall, a door. See `alewm.envs.two_room.env.TwoRoomEnv` for the environment's page."""
