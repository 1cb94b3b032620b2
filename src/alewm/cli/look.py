"""What one looks at of a trained run: `alewm evaluate`, `probe`, `decode`, `explore` and `report`."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from alewm.cli.flags import Flag, Maybe, Several
from alewm.errors import InputError

if TYPE_CHECKING:
    from alewm.evaluation.evaluate_run import EvaluatedRun
    from alewm.planning.planner import PlanningConfig


@dataclass(frozen=True)
class Evaluate:
    """Plan to goals of held-out episodes and count how many are reached.

    Writes result.json, episodes.jsonl and animations/ into the run folder; with other than the default settings, into
    a folder below RUN/evaluations named after what differs, so that no result replaces another. A run that learned
    from several data sets has such a folder for each.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...", help_behavior_hint="")]
    """Run folders of `alewm train`, folders of shared models, which bring their held-out pairs along, or repositories
    of the Hub (OWNER/NAME), which are fetched into runs/OWNER/NAME."""
    data: Maybe[Path] = None
    """The data file, if it is no longer where the run was trained."""
    task: Maybe[str] = None
    """Of a run that learned from several data sets, the one to evaluate by name, for example two-room; if neither this
    nor --data is given, all."""
    split: Literal["test", "validation", "train"] = "test"
    """Which episodes the pairs come from."""
    episodes: Maybe[int] = None
    """How many pairs, the first ones; if not given, all that are stored (200 test, 100 validation)."""
    pairs_per_episode: Annotated[tuple[int, ...], tyro.conf.arg(help_behavior_hint="(default: 1)")] = (1,)
    """Pairs of each episode. With 5, 1,000 test pairs tell methods apart more finely; they are others than the 200,
    drawn once per data file and kept beside it, and their results have a folder of their own. 1 5 evaluates on both."""
    capacity: str = "modal"
    """modal (the most probable), modal-every-plan (chosen anew at each plan), sample, best-of, best-of:8,32, or one
    supported capacity such as 32."""
    goal_cost: Literal["active", "full"] = "active"
    """Compare the goal on the planned prefix, or on the whole latent."""
    dynamics: str = "own"
    """What imagines the future of a plan: own (the model's predictor), distilled (the small networks that `alewm
    distill RUN` wrote beside the run), or a folder of such networks."""
    search: Literal["cem", "icem", "mppi", "gradient"] = "cem"
    """How candidates are improved: cem (the paper's), icem (smooth noise, elites kept), mppi (weighted average), or
    gradient (descent from the elites of the first candidates)."""
    candidates: int = 300
    """CEM: action sequences scored per iteration."""
    iterations: int = 30
    """CEM: times the distribution is refined."""
    elites: Maybe[int] = None
    """CEM: best candidates it is refined from; if not given, 30 of 300, and a tenth of any other number."""
    horizon: int = 5
    """Blocks of actions planned ahead; a block is one frame skip, 5 actions unless the model has another."""
    executed: Maybe[int] = None
    """Blocks executed before replanning from what is left of the plan; if not given, all of them."""
    budget: int = 50
    """Environment steps per episode."""
    seed: int = 42
    """Seed of the planner's noise."""
    drawing: Literal["as-trained", "mujoco", "batched"] = "as-trained"
    """Who draws what the model sees (reacher, cube): whoever drew the data it was trained on, or one of the two."""
    reference: Flag = False
    """Use the reference search in float32, even if a faster one is available."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda, cuda:1 or mps."""
    animations: int = 4
    """Episodes to film."""
    out: Maybe[Path] = None
    """Another folder for the results; with one run only."""

    WHEN_INTERRUPTED: ClassVar[str] = "Nothing is kept of an unfinished evaluation; repeat the command to start again."

    def run(self) -> None:
        """Evaluates the runs one after the other and prints them side by side."""
        from alewm.evaluation.evaluate_run import comparison_lines, success_table

        evaluated = self.evaluated()
        results = {name: found.result for name, found in evaluated.items()}
        records = {name: found.records for name, found in evaluated.items()}
        print("\n".join([success_table(results), *comparison_lines(records)]))
        for found in evaluated.values():
            if found.agreement is not None:
                print(found.agreement)
        for found in evaluated.values():
            print(found.path)

    def evaluated(self) -> "dict[str, EvaluatedRun]":
        """What was found for each run and data set, by name."""
        from alewm.devices import find_device
        from alewm.evaluation.evaluate_run import evaluate_run
        from alewm.evaluation.settings import EvaluationSettings
        from alewm.interop.hub import run_here_or_fetched

        if not self.runs:
            raise InputError("Name a run folder: alewm evaluate RUN.")
        if self.out is not None and len(self.runs) > 1:
            raise InputError(f"--out holds the result of one run, but {len(self.runs)} are named. Leave --out away.")
        if self.animations < 0:
            raise InputError(f"--animations must not be negative, got {self.animations}.")
        planning = asked_planning(
            self.candidates, self.iterations, self.elites, self.horizon, self.executed, seed=self.seed
        )
        planning = replace(planning, goal_cost=self.goal_cost, capacity=self.capacity, search=self.search)
        settings = EvaluationSettings(
            *(self.split, self.episodes, self.budget, planning, self.reference, self.task or "", self.dynamics),
            drawing=self.drawing,
        )
        device = find_device(self.device)
        asked = [
            (run, replace(settings, data_set=each, pairs_per_episode=count))
            for run in map(run_here_or_fetched, self.runs)
            for each in self.data_sets(run)
            for count in dict.fromkeys(self.pairs_per_episode)
        ]
        if self.out is not None and len(asked) > 1:
            raise InputError(
                f"--out holds one result, but {len(asked)} were asked for: give one number of --pairs-per-episode and, "
                f"where a run learned from several data sets, name one with --task."
            )
        evaluated = [
            evaluate_run(run, one, data_path=self.data, device=device, num_animations=self.animations, out=self.out)
            for run, one in asked
        ]
        named = {}
        for (run, one), found in zip(asked, evaluated, strict=True):
            data_set = found.result["evaluated"].get("data_set")
            count = f"{one.pairs_per_episode} per episode" if len(self.pairs_per_episode) > 1 else ""
            named[", ".join(part for part in (str(run), data_set, count) if part)] = found
        return named

    def data_sets(self, run: Path) -> tuple[str, ...]:
        """The names of those to evaluate; one that is empty where the run, or the file that was given, decides."""
        from alewm.training.checkpoint import latest_checkpoint, read_description

        known = read_description(latest_checkpoint(run)).config.data_sets
        if self.task is not None or self.data is not None or len(known) == 1:
            return (self.task or "",)
        return tuple(known)


def asked_planning(
    candidates: int, iterations: int, elites: int | None, horizon: int, executed: int | None, *, seed: int
) -> "PlanningConfig":
    """The planner that flags ask for; if not given, a tenth of candidates are elites and a plan is executed whole."""
    from alewm.planning.planner import PlanningConfig
    from alewm.planning.search import CEMConfig

    cem = CEMConfig.with_a_tenth_elite(candidates, iterations)
    if elites is not None:
        cem = replace(cem, num_elites=elites)
    return PlanningConfig(
        cem=cem, horizon=horizon, executed_blocks=horizon if executed is None else executed, seed=seed
    )


@dataclass(frozen=True)
class Probe:
    """Read the true state from every prefix of a trained model's latent, by a linear map and by a small network.

    Prints R² on held-out episodes for each part of the state that one frame shows. What is near 0 there is not in the
    latent, and no plan in it can reach for it. Kept in RUN/measurements/probes.json, which is published with the run.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...", help_behavior_hint="")]
    """Run folders of `alewm train`, or folders of shared models."""
    data: Maybe[Path] = None
    """The data file, if it is no longer where the run was trained."""
    capacities: Several[int] = ()
    """Lengths of the prefixes; if not given, those the model supports."""
    frames: int = 20_000
    """Frames of training episodes that probes are fitted to, at most."""
    test_frames: int = 5_000
    """Frames of test episodes that they are scored on, at most."""
    updates: int = 3_000
    """Updates of the networks."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda, cuda:1 or mps."""

    WHEN_INTERRUPTED: ClassVar[str] = "Nothing is kept of unfinished probes; repeat the command to start again."

    def run(self) -> None:
        """Probes the runs one after the other and prints a table of each."""
        from alewm.devices import find_device
        from alewm.evaluation.probes import probe_run, probe_table
        from alewm.runs.folder import require_run

        if not self.runs:
            raise InputError("Name a run folder: alewm probe RUN.")
        for name in ("frames", "test_frames", "updates"):
            if getattr(self, name) < 2:
                raise InputError(f"--{name.replace('_', '-')} must be at least 2, got {getattr(self, name)}.")
        device = find_device(self.device)
        amounts = {"num_train": self.frames, "num_test": self.test_frames, "num_steps": self.updates}
        for run in self.runs:
            require_run(run)
            print(f"reading at most {self.frames + self.test_frames:,} frames with {run}", file=sys.stderr)
            path, measured = probe_run(run, self.capacities, amounts, data_path=self.data, device=device)
            print(probe_table(measured))
            print(path)


@dataclass(frozen=True)
class Decode:
    """Fit a small decoder to a trained model's frozen latents, so that what it imagines can be seen.

    One network draws frames from prefixes of every capacity. Writes RUN/decoder with a picture of held-out frames,
    recorded and decoded from each capacity; `alewm report RUN` and `alewm explore RUN` use it. The model itself is not
    changed and needs no decoder to plan. Repeating the command finds what is there.
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder of `alewm train`, or the folder of a shared model."""
    data: Maybe[Path] = None
    """The data file, if it is no longer where the run was trained."""
    frames: int = 20_000
    """Training frames to fit."""
    updates: int = 3000
    """Updates."""
    batch_size: int = 128
    """Frames per update."""
    learning_rate: float = 2e-3
    """Highest learning rate."""
    hidden: int = 96
    """Units of the hidden layer."""
    channels: int = 24
    """Channels of the feature maps."""
    seed: int = 3072
    """Of the first weights and the order of frames."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda, cuda:1 or mps."""

    def run(self) -> None:
        """Writes the folder, and prints the errors by capacity and the path of the picture."""
        from alewm.devices import find_device
        from alewm.evaluation.decoder import EXAMPLES, DecodeConfig, decode, decoder_table

        config = DecodeConfig(
            hidden_dim=self.hidden,
            channels=self.channels,
            num_updates=self.updates,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            num_frames=self.frames,
            seed=self.seed,
        )
        found = decode(self.run_folder, config, data_path=self.data, device=find_device(self.device))
        print(decoder_table(found.description))
        print(found.path / EXAMPLES)


@dataclass(frozen=True)
class Explore:
    """Open a page on this machine: choose a start, a goal and a capacity, plan, and watch what the model imagines.

    Two runs of the same task plan side by side to the same goal. The page works without a network and answers only
    browsers on this machine. Needs the extra `explore`; imagined frames need `alewm decode RUN`.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN2]", help_behavior_hint="")]
    """One run folder or two."""
    data: Maybe[Path] = None
    """The data file, if it is no longer where the run was trained and the run brings no pairs."""
    port: Maybe[int] = None
    """The port to listen on; if not given, the first free one from 7860 on."""
    public: Flag = False
    """Listen to other machines too, as a Hugging Face Space does, with at most 300 candidates and 30 iterations."""

    WHEN_INTERRUPTED: ClassVar[str] = "The page is closed; nothing was written."

    def run(self) -> None:
        """Prints the address and serves until it is interrupted."""
        from alewm.explorer.page import explore

        explore(self.runs, data_path=self.data, is_public=self.public).launch(self.port)


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page about runs: films, imagined frames, capacities, success, curves."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...", help_behavior_hint="")]
    """Run folders; those below RUN/evaluations are runs too."""
    out: Maybe[Path] = None
    """The folder to write index.html and figures/ to; if not given, `report` in the run's folder, or beside it for
    several."""

    data: Maybe[Path] = None
    """The data file, if it is no longer where the run was trained; what the run imagines is measured on it."""

    def run(self) -> None:
        from alewm.report.page import write_report

        if not self.runs:
            raise InputError("Name at least one run folder: alewm report RUN.")
        home = self.runs[0] if len(self.runs) == 1 else self.runs[0].parent
        print(write_report(self.runs, self.out or home / "report", data_path=self.data))
