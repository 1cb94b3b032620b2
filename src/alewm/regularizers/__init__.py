"""Statistics that keep a latent from collapsing: SIGReg, MixSIGReg and the prefix-only variant of nested dropout."""
