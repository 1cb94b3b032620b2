"""A plan from noise to noise, so that the search's kernels are compiled before there is a model to plan with."""

from dataclasses import replace

import torch

from alewm.evaluation.run import EPISODES_PER_BATCH
from alewm.model.world_model import WorldModelConfig, build_world_model
from alewm.planning.inner_loop import plan_group
from alewm.planning.planner import Planner, PlanningConfig
from alewm.planning.search_choice import choose_search


@torch.no_grad()
def rehearse_search(config: WorldModelConfig, planning: PlanningConfig, device: torch.device) -> None:
    """Plan for a full batch of episodes with an untrained model; nothing where nothing is compiled."""
    model = build_world_model(config, torch.Generator().manual_seed(0)).to(device).eval()
    search = choose_search(model, device)
    if search.inner_loop is plan_group:
        return
    episodes, size = EPISODES_PER_BATCH[device.type], config.encoder.image_size
    action_dim = config.action_dim // planning.frame_skip
    planning = replace(planning, episodes_per_batch=episodes)
    planner = Planner(model, [0.0] * action_dim, [1.0] * action_dim, planning, inner_loop=search.inner_loop)
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (2, episodes, size, size, 3), dtype=torch.uint8, generator=generator)
    planner(*images)
