"""What `mutations.py` damages: data files of every kind, checkpoints, pairs, sidecars, run folders, LeWM files."""

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from mutations import Subject

from alewm.data import checks
from alewm.data.checks import read_label
from alewm.data.conversion.lerobot import LeRobotEpisodes
from alewm.data.conversion.recordings import Recordings
from alewm.data.frame_sources import open_frames, verify_columns, verify_frames
from alewm.data.inspection import describe_columns, describe_episodes, find_problems
from alewm.data.splits import find_families, load_or_draw_pairs, load_or_make_splits
from alewm.data.store import EpisodeStore
from alewm.data.writer import StoreWriter
from alewm.evaluation.closed_loop import GoalPairs
from alewm.evaluation.held_out import load_pairs, save_pairs
from alewm.evaluation.success import read_records
from alewm.interop.lewm import export_lewm, load_lewm
from alewm.model.checkpoint_files import check_digests
from alewm.model.world_model import build_world_model
from alewm.planning.distilled import DYNAMICS
from alewm.training.checkpoint import (
    Description,
    describe_checkpoint,
    describe_run,
    load_checkpoint,
    load_world_model,
    save_checkpoint,
)
from alewm.training.random_streams import RandomStreams
from alewm.training.step import build_optimizer
from memory_windows import run_config
from older_files import as_older_version
from small_recordings import CAMERA, write_lerobot_v2, write_lerobot_v3, write_recordings
from toy_episodes import tape

checks.TEXT_SECONDS = 4.0  # a case has less time than a person

PRETRAINED = Path(__file__).parents[2] / "pretrained"
SPLITS = ("validation", "test")
LENGTHS = (30, 40, 27, 33, 26)


def make_data(folder: Path) -> None:
    """A file of five episodes with a second view, booleans and two states."""
    with StoreWriter(folder / "data.h5", attributes={"task": "tape", "seed": 7, "words": "some text" * 20}) as writer:
        first_row = 0
        for length in LENGTHS:
            episode = tape(first_row, length)
            extra = {"pixels_wrist": episode["pixels"][:, ::2, ::2], "is_held": np.arange(length) % 3 == 0}
            writer.append({**episode, **extra, "state": np.sin(episode["proprio"])})
            first_row += length


def make_older_data(folder: Path) -> None:
    """The same in the layout of version 1."""
    make_data(folder)
    as_older_version(folder / "data.h5", 1)


def make_field_data(folder: Path) -> None:
    """The same as other tools write it: HDF5's oldest format, texts, no checksums anywhere."""
    make_data(folder)
    with h5py.File(folder / "data.h5") as ours, h5py.File(folder / "field.h5", "w", libver="earliest") as file:
        for name, column in ours.items():
            options: dict[str, Any] = (
                {"chunks": (10, *column.shape[1:]), "compression": "gzip"} if column.ndim == 4 else {}
            )
            file.create_dataset(name, data=column[()], **options)
        file["words"] = ["x"] * sum(LENGTHS)
    (folder / "data.h5").unlink()
    (folder / "field.h5").rename(folder / "data.h5")


def use_data(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """All that training, evaluation and inspecting read of a data file."""
    path = folder / "data.h5"
    label = read_label(path)
    describe_columns(path)
    with EpisodeStore.open(path) as store:
        verify_frames(store)
        verify_columns(store)
        others = {*store.stored_names} - {*store.column_names} | {*store.numeric_names} - {"pixels"}
        found: dict[str, Any] = {name: store.column(name) for name in sorted(others)}
        rows = store.drawn_rows()
        found["frames"] = np.empty((len(rows), *store.frame_shape), np.uint8)
        open_frames(store, range(store.num_episodes)).read(rows, found["frames"])
        found |= {
            "rows": store.frames(rows[:7]),
            "episodes": [store.episode_columns(number) for number in range(store.num_episodes)],
        }
        describe_episodes(store)
        find_problems(store)
        families = find_families(store)
        splits = load_or_make_splits(store)
        pairs = load_or_draw_pairs(store, splits)
        found |= {"splits": splits, "pairs": pairs, "families": None if families is None else families.of_episode}
        return found | {"attributes": store.attributes, "label": label, "fingerprint": store.fingerprint}, [
            note for note in store.notes if "another program" in note
        ]


def make_sidecars(folder: Path) -> None:
    """A data file with what is decided once about it."""
    make_data(folder)
    use_data(folder)


def _description() -> Description:
    statistics = {"mean": [0.5, 0.25], "std": [1.0, 2.0]}
    extras = {"task": "two-room", "frame_skip": 5, "action_statistics": statistics, "data": {"fingerprint": "0" * 32}}
    return Description(3, run_config(), {"passes": 1, "batches": 2}, extras)


def _session() -> tuple[Any, Any, Any]:
    config = run_config()
    model = build_world_model(config.model, torch.Generator().manual_seed(0))
    return model, build_optimizer(model, config.training.optim), RandomStreams(0, torch.device("cpu"))


def make_checkpoint(folder: Path) -> None:
    """A checkpoint of a small run."""
    model, optimizer, streams = _session()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    save_checkpoint(folder, _description(), model, optimizer, streams)


def make_older_checkpoint(folder: Path) -> None:
    """The same without digests."""
    make_checkpoint(folder)
    path = folder / "step-00000003" / "checkpoint.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    path.write_text(json.dumps(content, indent=2))


def use_checkpoint(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What resuming, planning and inspecting read of a checkpoint."""
    checkpoint = folder / "step-00000003"
    check_digests(checkpoint)
    describe_checkpoint(checkpoint)
    model, optimizer, streams = _session()
    description = load_checkpoint(checkpoint, model, optimizer, streams)
    planned, _ = load_world_model(checkpoint)
    moments = [sorted(optimizer.state[parameter].items()) for parameter in model.parameters()]
    return {
        "model": model.state_dict(),
        "planned": planned.state_dict(),
        "moments": moments,
        "description": description,
    }, []


def make_pairs(folder: Path) -> None:
    """Pairs that travel with a model."""

    def rows() -> dict[str, Any]:
        return {"state": torch.arange(12.0).reshape(4, 3), "qpos": torch.ones(4, 2, dtype=torch.float64)}

    pairs = {name: GoalPairs((1, 2, 3, 4), (0, 1, 2, 3), (25, 26, 27, 28), rows(), rows()) for name in SPLITS}
    save_pairs(folder / "pairs.safetensors", pairs, "0" * 32)


def use_pairs(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Both splits."""
    found = {split: load_pairs(folder / "pairs.safetensors", split, "0" * 32) for split in SPLITS}
    return {
        split: (p.episodes, p.start_steps, p.goal_steps, dict(p.start_rows), dict(p.goal_rows))
        for split, p in found.items()
    }, []


def make_run(folder: Path) -> None:
    """The shipped model's folder without weights and films."""
    for name in ("config.json", "provenance.json", "result.json", "metrics.jsonl", "episodes.jsonl"):
        lines = (PRETRAINED / "two-room-tiny" / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:40] if name.endswith(".jsonl") else lines))


def use_run(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What `alewm inspect` and reports read of a run folder."""
    describe_run(folder)
    return {"records": read_records(folder / "episodes.jsonl")}, []


def make_lewm(folder: Path) -> None:
    """LeWM's own files."""
    shutil.copytree(PRETRAINED / "two-room-tiny-lewm", folder / "run", ignore=shutil.ignore_patterns("animations"))
    export_lewm(folder / "run", folder / "lewm")
    shutil.rmtree(folder / "run")


def use_lewm(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The weights as a model."""
    return dict(load_lewm(folder / "lewm").state_dict()), []


_JOURNALED = {"task": "tape", "seed": 7}


def make_journal(folder: Path) -> None:
    """A collection that was interrupted after each of three of four episodes: two were on the disk before the last."""
    for number in range(3):
        writer = StoreWriter(folder / "data.h5", attributes=_JOURNALED)
        writer.append(tape(30 * number, 30))
        writer.abandon()


def use_journal(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """A copy of the collection continued to its end: the file is the same whatever the journal had lost."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for name in ("data.h5.journal", "data.h5.partial"):
        shutil.copyfile(folder / name, work / name)
    with StoreWriter(work / "data.h5", attributes=_JOURNALED) as writer:
        for number in range(writer.num_episodes, 4):
            writer.append(tape(30 * number, 30))
    return {"file": (work / "data.h5").read_bytes()}, []


def make_lerobot(folder: Path) -> None:
    """A LeRobot data set with images in its tables."""
    write_lerobot_v2(folder / "set", [4, 5], as_images=True)


def make_newer_lerobot(folder: Path) -> None:
    """One of version 3, with a video."""
    write_lerobot_v3(folder / "set", [4, 5])


def use_lerobot(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """All of its episodes."""
    source = LeRobotEpisodes(folder / "set")
    source.identity()
    return {"episodes": list(source(0, range(source.num_episodes))), "fps": source.fps}, []


def make_recordings(folder: Path) -> None:
    """Videos with a table each."""
    write_recordings(folder / "set", [4, 5])


def use_recordings(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """All of their episodes."""
    source = Recordings(folder / "set")
    source.identity()
    return {"episodes": list(source(0, range(source.num_episodes)))}, []


def make_distilled(folder: Path) -> None:
    """The small dynamics of a shipped model."""
    (network,) = sorted((PRETRAINED / "two-room-tiny" / "distilled").glob("k*"))[:1]
    shutil.copytree(network, folder / "k")


def use_distilled(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The network."""
    description = DYNAMICS.describe(folder / "k")
    return dict(DYNAMICS.read(folder / "k", description["weights_sha256"]).state_dict()), []


STEP = "step-00000003"
SUBJECTS = {
    "data": Subject(make_data, use_data, ("data.h5",), is_sealed=True),
    "data version 1": Subject(make_older_data, use_data, ("data.h5",), is_sealed=False, is_slow=True),
    "data of others": Subject(make_field_data, use_data, ("data.h5",), is_sealed=False),
    "sidecars": Subject(make_sidecars, use_data, ("data.splits.json", "data.pairs.json"), is_sealed=False),
    "checkpoint": Subject(
        make_checkpoint,
        use_checkpoint,
        (f"{STEP}/model.safetensors", f"{STEP}/training.safetensors", f"{STEP}/checkpoint.json"),
        is_sealed=True,
    ),
    "older checkpoint": Subject(
        make_older_checkpoint,
        use_checkpoint,
        (f"{STEP}/model.safetensors", f"{STEP}/training.safetensors", f"{STEP}/checkpoint.json"),
        is_sealed=False,
    ),
    "pairs": Subject(make_pairs, use_pairs, ("pairs.safetensors",), is_sealed=True),
    "run folder": Subject(
        make_run,
        use_run,
        ("config.json", "provenance.json", "result.json", "metrics.jsonl", "episodes.jsonl"),
        is_sealed=False,
    ),
    "journal": Subject(make_journal, use_journal, ("data.h5.journal", "data.h5.partial"), is_sealed=True),
    "LeRobot 2": Subject(
        make_lerobot,
        use_lerobot,
        ("set/meta/info.json", "set/meta/episodes.jsonl", "set/data/chunk-000/episode_000000.parquet"),
        is_sealed=False,
    ),
    "LeRobot 3": Subject(
        make_newer_lerobot,
        use_lerobot,
        (
            "set/meta/info.json",
            "set/meta/episodes/chunk-000/file-000.parquet",
            "set/data/chunk-000/file-000.parquet",
            f"set/videos/{CAMERA}/chunk-000/file-000.mp4",
        ),
        is_sealed=False,
    ),
    "recordings": Subject(make_recordings, use_recordings, ("set/take0.csv", "set/take0.mp4"), is_sealed=False),
    "distilled": Subject(make_distilled, use_distilled, ("k/distilled.json", "k/model.safetensors"), is_sealed=True),
    "LeWM files": Subject(make_lewm, use_lewm, ("lewm/config.json", "lewm/weights.pt"), is_sealed=False),
}
