"""`alewm import-lewm` and `alewm export-lewm`: weights come in, are evaluated and reported, and go out again."""

import importlib
import json
from importlib import metadata

import pytest
import torch

from alewm.interop.lewm import export_lewm, load_lewm, names_of_installed_transformers
from alewm.interop.lewm_format import description_of, to_lewm, write_lewm
from alewm.interop.pretrained import SharedRun
from alewm.interop.stable_worldmodel import PlanningCost
from alewm.model.predictor import PredictorConfig
from alewm.model.vit import ViTConfig
from alewm.model.world_model import WorldModelConfig, build_world_model
from alewm.training.checkpoint import latest_checkpoint, load_world_model
from command_line import SEARCH, contents


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A small LeWM as its authors would publish it."""
    config = WorldModelConfig(
        latent_dim=64,
        capacities=(64,),
        has_selector=False,
        projector_dim=64,
        encoder=ViTConfig(image_size=28, patch_size=14, hidden_dim=64, num_blocks=1, num_heads=1, mlp_dim=64),
        predictor=PredictorConfig(num_blocks=1, num_heads=2, head_dim=16, mlp_dim=64),
    )
    model = build_world_model(config, torch.Generator().manual_seed(0))
    return write_lewm(
        tmp_path_factory.mktemp("hub") / "lewm", description_of(config), to_lewm(model.state_dict(), 14, 4)
    )


def test_imported_weights_are_evaluated_reported_and_exported_again(alewm_here, released, data, tmp_path):
    assert alewm_here("import-lewm", released, "--data", data, "--out", "run").splitlines()[-1] == "run"
    held_out = json.loads((tmp_path / "run/splits.json").read_text())["test"]
    said = alewm_here("evaluate", "run", *SEARCH, "--animations", 0, "--out", "run")
    assert said.splitlines()[-1] == "run/result.json"
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["episodes"] == len(held_out)
    assert result["imported_from"]["format"] == "lewm"
    assert len(result["imported_from"]["sha256"]) == 64
    assert alewm_here("report", "run", "--out", "page").splitlines()[-1] == "page/index.html"
    assert "may have been trained on the episodes held out here" in (tmp_path / "page/index.html").read_text()
    for _ in range(2):  # what is there already is not refused
        assert alewm_here("export-lewm", "run", "--out", "again", "--names", 4).splitlines()[-1] == "again"
    before, after = (torch.load(folder / "weights.pt", weights_only=True) for folder in (released, tmp_path / "again"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (tmp_path / "again/config.json").read_text() == (released / "config.json").read_text()


def test_imported_weights_have_no_training_to_publish_or_to_estimate_from(alewm_here, refused, released, data):
    alewm_here("import-lewm", released, "--data", data, "--out", "runs/imported")
    alewm_here("evaluate", "runs/imported", *SEARCH, "--animations", 0)
    assert "was imported: how and on which episodes" in refused("publish", "runs/imported", "--out", "results/here")
    assert "hours of training" in alewm_here("experiment", "probes", "--dry-run", "--only", "two-room", 192)


def test_weights_trained_in_mixed_precision_get_their_rounded_pixels(alewm_here, released, data, tmp_path):
    pixels = torch.full((1, 1, 28, 28, 3), 255, dtype=torch.uint8)
    latents = {}
    for name, flags in {"exact": (), "rounded": ("--rounds-pixels",)}.items():
        alewm_here("import-lewm", released, "--data", data, *flags, "--out", name)
        model, description = load_world_model(latest_checkpoint(tmp_path / name))
        assert description.config.model.encoder.patch_map_in_bfloat16 == bool(flags)
        latents[name] = model.encode(pixels).latents
    assert not torch.equal(latents["exact"], latents["rounded"])


def test_without_data_the_statistics_are_given_and_evaluation_asks_for_episodes(
    alewm_here, refused, released, data, tmp_path
):
    assert "nowhere" in refused("import-lewm", "nowhere", "--out", "run"), "what is missing first"
    said = refused("import-lewm", released, "--task", "two-room", "--out", "run")
    assert "do not say how actions were normalised" in said
    assert "--action-mean and --action-std" in said
    assert "belong together" in refused("import-lewm", released, "--action-mean", 0, 0, "--out", "run")
    statistics = ("--action-mean", 0.0, 0.1, "--action-std", 0.5, 0.6)
    assert "Give --task" in refused("import-lewm", released, *statistics, "--out", "run")
    assert not (tmp_path / "run").exists()
    alewm_here("import-lewm", released, "--task", "two-room", *statistics, "--out", "run")
    checkpoint = json.loads(next((tmp_path / "run/checkpoints").rglob("checkpoint.json")).read_text())
    assert checkpoint["extras"]["action_statistics"] == {"mean": [0.0, 0.1], "std": [0.5, 0.6]}
    assert "imported without a data file" in refused("evaluate", "run", *SEARCH)
    alewm_here("evaluate", "run", *SEARCH, "--animations", 0, "--data", data)


def test_importing_again_changes_nothing_and_other_weights_are_refused(
    alewm_here, refused, released, trained, data, tmp_path
):
    alewm_here("import-lewm", released, "--data", data, "--out", "run")
    before = contents(tmp_path / "run")
    alewm_here("import-lewm", released, "--data", data, "--out", "run")
    assert contents(tmp_path / "run") == before
    state = torch.load(released / "weights.pt", weights_only=True)
    other = write_lewm(
        tmp_path / "other",
        json.loads((released / "config.json").read_text()),
        {name: tensor + 1 for name, tensor in state.items()},
    )
    assert "imported_from.sha256" in refused("import-lewm", other, "--data", data, "--out", "run")
    said = refused("import-lewm", released, "--data", data, "--task", "push", "--out", "another")
    assert "holds episodes of 'two-room'" in said
    assert contents(tmp_path / "run") == before


def test_statistics_of_another_task_are_refused(refused, released):
    statistics = ("--action-mean", 0, 0, 0, "--action-std", 1, 1, 1)
    said = refused("import-lewm", released, "--task", "two-room", *statistics, "--out", "run")
    assert "Action statistics of 3 dimensions were given, but 'two-room' has 2" in said


def test_an_alewm_is_exported_with_a_warning_or_at_a_capacity(alewm, refused, trained, tmp_path):
    done = alewm("export-lewm", trained, "--out", "whole")
    assert "exported at its full width 32" in done.stderr
    assert "folded into both projectors" in done.stderr
    assert done.stdout.splitlines()[-1] == "whole"
    done = alewm("export-lewm", trained, "--out", "short", "--capacity", 4, "--names", 5)
    assert "full width" not in done.stderr
    names = torch.load(tmp_path / "short/weights.pt", weights_only=True)
    assert "encoder.layers.0.attention.q_proj.weight" in names
    assert load_lewm(tmp_path / "short").config.latent_dim == 64
    assert "exists already" in refused("export-lewm", trained, "--out", "short")
    assert "Capacity 5 is not supported" in refused("export-lewm", trained, "--out", "new", "--capacity", 5)
    assert not (tmp_path / "new").exists()


def test_the_names_are_those_of_the_transformers_that_is_installed(alewm, trained, tmp_path, monkeypatch):
    """stable-worldmodel loads strictly: a file serves one generation of transformers."""
    for version, block in (
        ("4.57.6", "encoder.encoder.layer.0."),
        ("5.22.2", "encoder.layers.0."),
        (None, "encoder.layers.0."),
    ):
        missing = metadata.PackageNotFoundError("transformers")

        def installed(name, version=version, missing=missing):
            if version is None:
                raise missing
            return version

        with monkeypatch.context() as patched:
            patched.setattr("alewm.interop.lewm.metadata.version", installed)
            names = names_of_installed_transformers()
            exported = export_lewm(trained, tmp_path / f"names-{version}")
        assert names == (4 if version == "4.57.6" else 5)
        state = torch.load(exported.path / "weights.pt", weights_only=True)
        assert any(name.startswith(block) for name in state)
        assert f"names are those of transformers {names}" in exported.notes[-1]


def test_a_whole_model_is_what_its_target_builds(alewm, refused, trained, tmp_path):
    """As stable-worldmodel's `load_pretrained` does it: the target is called, then given its weights strictly."""
    done = alewm("export-lewm", trained, "--out", "whole", "--whole")
    assert done.stdout.splitlines()[-1] == "whole"
    described = json.loads((tmp_path / "whole/config.json").read_text())
    module, _, name = described.pop("_target_").rpartition(".")
    cost = getattr(importlib.import_module(module), name)(**described)
    cost.load_state_dict(torch.load(tmp_path / "whole/weights.pt", weights_only=True))
    model, description = load_world_model(latest_checkpoint(trained))
    assert cost.action_scaler.statistics.to_dict() == description.extras["action_statistics"]
    assert cost.model.support == model.support
    now, goal = torch.randint(
        256, (2, 3, 1, 1, 28, 28, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    candidates = torch.randn(3, 1, 5, 10, generator=torch.Generator().manual_seed(1))
    costs = [each.get_cost({"pixels": now, "goal": goal}, candidates) for each in (cost, PlanningCost(model))]
    torch.testing.assert_close(*costs)
    assert "--capacity and --names are for a LeWM" in refused(
        "export-lewm", trained, "--out", "b", "--whole", "--names", 4
    )


@pytest.mark.parametrize(("flags", "licence"), [((), "unknown"), (("--license", "mit"), "mit")])
def test_the_licence_of_imported_weights_is_stated_or_unknown(alewm_here, released, data, tmp_path, flags, licence):
    alewm_here("import-lewm", released, "--data", data, "--out", "run", *flags)
    card = SharedRun.of(tmp_path / "run").card("imported", tmp_path / "run")
    assert f"\nlicense: {licence}\n" in card
    assert f"| licence | {licence} |" in card
    assert "a file of unknown origin: weights.pt" in card
    assert "apache" not in card
