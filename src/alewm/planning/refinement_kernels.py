"""Triton kernels of one iteration of CEM beside the rollout; `few_candidates` calls them."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def spread_candidates(mean, std, noise, step, out, per_plan, per_episode, total, SIZE: tl.constexpr):
    """out = mean + std · noise[step], entry by entry of [B, S, H · A]."""
    entry = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = entry < total
    at = (entry // per_episode) * per_plan + entry % per_plan
    drawn = tl.load(noise + tl.load(step) * total + entry, mask=inside)
    tl.store(out + entry, tl.load(mean + at, mask=inside) + tl.load(std + at, mask=inside) * drawn, mask=inside)


@triton.jit
def squared_distance(
    z, goal, out, num_rows, width, goal_stride, num_candidates, ROWS: tl.constexpr, SIZE: tl.constexpr
):
    """out = the mean square difference of each latent from its episode's goal."""
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE)[None, :]
    inside = (rows < num_rows)[:, None] & (columns < width)
    z_row = tl.load(z + rows[:, None] * width + columns, mask=inside, other=0.0)
    goal_row = tl.load(goal + (rows // num_candidates)[:, None] * goal_stride + columns, mask=inside, other=0.0)
    distance = tl.sum((z_row - goal_row) * (z_row - goal_row), axis=1) / width
    tl.store(out + rows, distance, mask=rows < num_rows)


@triton.jit
def refit(
    costs, candidates, mean, std, elite_costs, step, num_candidates, num_elites, per_plan,
    SIZE: tl.constexpr, RIVALS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Mean and spread of an episode's elites in COLUMNS entries of the plan; the first columns give their mean cost.

    An elite is one that fewer than `num_elites` others precede: by a lower cost, numbers before NaN, or by order.
    """
    episode, num_episodes = tl.program_id(0), tl.num_programs(0)
    order = tl.arange(0, SIZE)
    costs += episode * num_candidates
    cost = tl.load(costs + order, mask=order < num_candidates, other=float("nan"))
    is_nan = cost != cost
    num_before = tl.zeros((SIZE,), tl.int32)
    for start in range(0, num_candidates, RIVALS):
        rival = start + tl.arange(0, RIVALS)
        against = tl.load(costs + rival, mask=rival < num_candidates, other=float("nan"))[None, :]
        earlier = rival[None, :] < order[:, None]
        both_nan = is_nan[:, None] & (against != against)
        precedes = (against < cost[:, None]) | ((against == against) & is_nan[:, None])
        precedes |= ((against == cost[:, None]) | both_nan) & earlier
        num_before += tl.sum(precedes.to(tl.int32), axis=1)
    is_elite = (num_before < num_elites) & (order < num_candidates)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    at = (episode * num_candidates + order)[:, None] * per_plan + column[None, :]
    inside = is_elite[:, None] & (column < per_plan)[None, :]
    elites = tl.load(candidates + at, mask=inside, other=0.0)
    centre = tl.sum(elites, axis=0) / num_elites
    apart = tl.where(inside, elites - centre[None, :], 0.0)
    spread = tl.sqrt(tl.sum(apart * apart, axis=0) / (num_elites - 1))
    to = episode * per_plan + column
    tl.store(mean + to, centre, mask=column < per_plan)
    tl.store(std + to, spread, mask=column < per_plan)
    if tl.program_id(1) == 0:
        elite_cost = tl.sum(tl.where(is_elite, cost, 0.0)) / num_elites
        tl.store(elite_costs + tl.load(step) * num_episodes + episode, elite_cost)
