"""Random unit directions, the slices along which a distribution is compared."""

import torch

from alewm.shapes import Float, Tensor


def random_directions(
    latent_dim: int,
    num_projections: int,
    *,
    generator: torch.Generator,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "D P"]:
    """P directions u, uniform on the unit sphere of R^D, as columns.

    Drawn on the generator's device, so that ranks with equally seeded generators hold the same directions.
    """
    gaussian = torch.randn(latent_dim, num_projections, generator=generator, device=generator.device, dtype=dtype)
    directions: Tensor = gaussian / gaussian.square().sum(0, keepdim=True).sqrt()
    return directions.to(device or generator.device)
