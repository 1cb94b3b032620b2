"""How much of a latent is used: the support of capacities, the prior over it, masks, sampling, and the selector."""
