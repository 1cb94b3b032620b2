"""Push-T: a disc pushes a T. See `alewm.envs.push_t.env.PushTEnv` for the environment's page."""

WHERE_DEMONSTRATIONS_ARE = (
    "The human demonstrations are public: download diffusion-policy.cs.columbia.edu/data/training/pusht.zip and give "
    "it, or the folder pusht_cchi_v7_replay.zarr in it, with --demonstrations."
)
"""Where people get them."""
