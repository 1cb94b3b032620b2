"""Push-T: a disc pushes a T. See `alewm.envs.push_t.env.PushTEnv` for the environment's page."""
