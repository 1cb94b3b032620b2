"""The Triton kernel that draws the noise of all episodes of a plan; `noise` calls it."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def draw_noise(out, seeds, num_episodes, per_candidate, per_iteration, per_episode, SIZE: tl.constexpr):
    """out[i, b, s] = standard normal numbers of episode b's stream; those of candidate 0 are zero."""
    episode = tl.program_id(0).to(tl.int64)
    entry = tl.program_id(1).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = entry < per_episode
    drawn = tl.randn(tl.load(seeds + episode), entry.to(tl.int32))
    iteration, within = entry // per_iteration, entry % per_iteration
    at = (iteration * num_episodes + episode) * per_iteration + within
    tl.store(out + at, tl.where(within < per_candidate, 0.0, drawn), mask=inside)
