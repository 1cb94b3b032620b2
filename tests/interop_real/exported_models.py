"""Exports our models and loads them with stable-worldmodel; prints the largest relative differences as JSON.

A script, because the version of transformers is decided by the folders that Python is started with.
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from stable_worldmodel.wm.utils import load_pretrained

from alewm.interop.lewm import as_lewm_checkpoint, export_alewm, export_lewm, load_lewm
from alewm.interop.lewm_format import write_lewm
from alewm.interop.stable_worldmodel import PlanningCost
from alewm.planning.rollout import sliced_roll_out
from alewm.training.checkpoint import latest_checkpoint, load_world_model
from small_models import our_model

MEAN, STD = (torch.tensor(values).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def relative(found, expected):
    return float((found - expected).abs().max() / expected.abs().max())


def inputs(size):
    generator = torch.Generator().manual_seed(0)
    stored = torch.randint(256, (2, 2, 3, size, size), dtype=torch.uint8, generator=generator)
    candidates = torch.randn(2, 6, 5, 10, generator=generator)
    return stored, (stored / 255 - MEAN) / STD, candidates


@torch.no_grad()
def compare(ours, theirs, through=lambda z: z):
    """Latents and imagined latents of both models; ours are seen `through` the map that was folded in."""
    theirs.eval()
    stored, normalised, candidates = inputs(ours.image_size)
    z = ours.encode(stored).latents
    latents = theirs.encode({"pixels": normalised})["emb"]
    info = {"pixels": normalised[:, None, :1].expand(-1, 6, -1, -1, -1, -1)}
    imagined = theirs.rollout(info, candidates)["predicted_emb"][:, :, 1:]
    width = ours.support.capacities[-1]
    expected = torch.stack(sliced_roll_out(ours, z[:, 0], candidates, width, last_width=width), 2)
    return {"latents": relative(latents, through(z)), "rollouts": relative(imagined, through(expected))}


def main(folder, lewm_run, alewm_run):
    """Three models: as wide as the predictor, narrower, and whole with its capacities."""
    found = {"transformers": transformers.__version__}
    wide = our_model(64, (64,))
    config, state, _ = as_lewm_checkpoint(wide, generation=int(transformers.__version__.split(".")[0]))
    write_lewm(folder / "wide", config, state)
    found["D = W"] = compare(wide, load_pretrained(str(folder / "wide")))

    export_lewm(lewm_run, folder / "narrow")  # names of the installed transformers, without being told
    narrow, _ = load_world_model(latest_checkpoint(lewm_run))
    found["D < W"] = compare(narrow, load_pretrained(str(folder / "narrow")), narrow.predictor.input_map)
    found["imported again"] = compare(load_lewm(folder / "narrow"), load_pretrained(str(folder / "narrow")))

    export_alewm(alewm_run, folder / "whole")
    whole, _ = load_world_model(latest_checkpoint(alewm_run))
    stored, _, candidates = inputs(whole.image_size)
    expanded = stored[:, None].expand(-1, 6, -1, -1, -1, -1)
    for name, options in (("modal", {}), ("16", {"extra_args": {"capacity": "16"}})):
        loaded = load_pretrained(str(folder / "whole"), **options)
        costs = [
            cost.get_cost({"pixels": expanded[:, :, :1], "goal": expanded[:, :, 1:]}, candidates)
            for cost in (loaded, PlanningCost(whole, capacity=name))
        ]
        found[f"ALeWM, {name}"] = {"costs": relative(*costs)}
    found["action scaler"] = loaded.action_scaler is not None
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
