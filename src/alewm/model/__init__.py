"""The world model: pixels to latents, latents and actions to the next latents, frames to a capacity."""
