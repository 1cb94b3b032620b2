"""What the explorer does, without its page: runs that can be planned with, a start and a goal, and plans step by step.

`Explored.attempt` plans and acts like an evaluation does, with the same noise, and shows every iteration of the search
and every step as it happens.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from alewm.capacity.support import modal_index
from alewm.devices import find_device
from alewm.envs.contract import VectorGoalEnv
from alewm.envs.task import Task
from alewm.errors import InputError
from alewm.evaluation.animations import replayed
from alewm.evaluation.closed_loop import GoalPairs
from alewm.evaluation.decoder import PixelDecoder, find_decoder
from alewm.evaluation.held_out import NoEnvironmentError, drawing_of, find_pairs, task_of
from alewm.evaluation.settings import EvaluationSettings
from alewm.evaluation.success import BUDGET, EpisodeRecord, read_records
from alewm.files import read_if_there
from alewm.model.checkpoint_files import weights_sha256
from alewm.model.world_model import WorldModel
from alewm.planning.distilled import DISTILLED, DistilledModel, distilled_capacities, load_distilled
from alewm.planning.noise import candidate_noise
from alewm.planning.planner import Planner, PlanningConfig
from alewm.planning.rollout import prefix_distance, sliced_roll_out
from alewm.planning.search import CEMConfig, refine
from alewm.resize import area_downsample
from alewm.runs.folder import require_run
from alewm.shapes import Float, Tensor, UInt8
from alewm.training.checkpoint import data_set_of, latest_checkpoint, load_world_model

SHOWN_SIZE = 224
"""Most pixels per side of the frames on the page."""
CLICKABLE = {"two-room": "proprio"}
"""Tasks whose state is a place in the picture, with the column that has it in native pixels."""

NAMES = {
    ("push-t", "state"): {0: "pusher x", 1: "pusher y", 2: "block x", 3: "block y", 4: "block angle"},
    ("reacher", "qpos"): {0: "shoulder", 1: "wrist"},
    ("cube", "qpos"): {
        **{i: f"arm joint {i + 1}" for i in range(4)},
        6: "gripper",
        **{14 + i: f"cube {axis}" for i, axis in enumerate("xyz")},
    },
}
"""What numbers of the state are called, by task and column."""

Rows = Mapping[str, Tensor]
"""State columns [1, ...] of one start or goal."""


@dataclass(frozen=True)
class StateNumber:
    """A number of the state that frames show, with the range that held-out pairs have."""

    column: str
    index: int
    name: str
    low: float
    high: float

    def read(self, rows: Rows) -> float:
        """Its value in a state."""
        return float(rows[self.column].reshape(-1)[self.index])

    def written(self, rows: Rows, value: float) -> dict[str, Tensor]:
        """The state with another value of it."""
        changed = {name: values.clone() for name, values in rows.items()}
        changed[self.column].view(-1)[self.index] = value
        return changed


@dataclass(frozen=True)
class SearchSize:
    """How much a plan may cost."""

    num_candidates: int = 300
    num_iterations: int = 30

    def within(self, most: "SearchSize") -> "SearchSize":
        """This size, no larger than `most` and large enough to have elites."""
        return SearchSize(
            min(max(20, int(self.num_candidates)), most.num_candidates),
            min(max(1, int(self.num_iterations)), most.num_iterations),
        )


@dataclass
class Attempt:
    """An episode while it is planned and acted out; grows from one yield to the next."""

    capacity: int
    q: dict[int, float]
    elite_costs: list[list[float]] = field(default_factory=list)
    """Mean cost of the elites by iteration, for each plan."""
    spreads: list[list[float]] = field(default_factory=list)
    """Mean standard deviation of the candidates by iteration, for each plan."""
    imagined: list[np.ndarray] = field(default_factory=list)
    """Decoded frames, one per block from the first frame on; plans follow each other. Empty without a decoder."""
    imagined_costs: list[float] = field(default_factory=list)
    """Distance from the imagined latent to the goal's after each of those blocks."""
    frames: list[np.ndarray] = field(default_factory=list)
    """Real frames by step, the start first."""
    distances: list[float] = field(default_factory=list)
    """Distance to the goal by step, as the environment measures it."""
    blocks_per_frame: int = 1
    """Environment steps from one imagined frame to the next."""
    success: bool = False
    is_over: bool = False
    note: str = ""


class Explored:
    """One run: its model, its pairs and its environment, as far as they are there; `problem` says what is not."""

    def __init__(self, run: Path, data_path: Path | None = None, device: str = "cpu") -> None:
        require_run(run)
        self.run, self.name, self.device = run, run.resolve().name, find_device(device)
        self.problem, self.note = "", ""
        self.model: WorldModel | None = None
        self.task: Task | None = None
        self.pairs: GoalPairs | None = None
        self.decoder: PixelDecoder | None = None
        self.records: list[EpisodeRecord] = []
        try:
            self._load(data_path)
        except (InputError, OSError, KeyError, ValueError) as error:
            self.problem = f"{self.name} cannot be opened. {error}"

    def _load(self, data_path: Path | None) -> None:
        checkpoint = latest_checkpoint(self.run)
        model, description = load_world_model(checkpoint, self.device)
        learned = data_set_of(description)
        planning: WorldModel | DistilledModel = model
        if distilled_capacities(self.run / DISTILLED):
            planning = load_distilled(model, weights_sha256(checkpoint), self.run / DISTILLED)
        planning.requires_grad_(False)
        self.learned, self.frame_skip, self.planning_model = learned, description.config.frame_skip, planning
        self.model, self.decoder = model, find_decoder(self.run, self.device)
        notes = []
        if "training" not in read_if_there(self.run / "result.json"):
            notes.append(f"Still training: update {description.step:,} is used.")
        if self.decoder is None:
            notes.append(f"No decoder: imagined frames are not drawn. alewm decode {self.run}")
        try:
            self.task = task_of(learned)
            _ = self.task.vector_env_class  # its simulator may not be installed
            self.pairs = find_pairs(self.run, learned, EvaluationSettings(), data_path)
        except NoEnvironmentError as error:
            notes.append(f"Plans cannot be acted out: {error}")
        except InputError as error:
            notes.append(f"No held-out pairs: {error}")
        records = self.run / "episodes.jsonl"
        if records.is_file() and self.pairs is not None:
            known = set(self.pairs.pair_names)
            self.records = [record for record in read_records(records) if record.pair_name in known]
        self.note = " ".join(notes)

    @property
    def capacities(self) -> tuple[int, ...]:
        """The capacities it may plan with."""
        return () if self.model is None else self.model.support.capacities

    @property
    def can_act(self) -> bool:
        """Whether an environment can be put into a start and act."""
        return self.model is not None and self.task is not None

    def environment(self) -> VectorGoalEnv:
        """One episode of its task, drawn at the task's own size by whoever drew what the model was trained on."""
        if self.task is None or self.model is None:
            raise InputError(f"{self.name} has no environment to act in. {self.note}")
        return self.task.make_vector_env(1, drawing=drawing_of(self.task, self.learned, EvaluationSettings()))

    def placed(self, start: Rows, goal: Rows) -> VectorGoalEnv:
        """A new environment at a start and with a goal, which it refuses where they are no states."""
        envs = self.environment()
        envs.reset_to(start, goal)
        return envs

    def seen(self, *frames: UInt8[Tensor, "1 Y X 3"]) -> UInt8[Tensor, "1 frames y x 3"]:
        """Frames as the encoder reads them."""
        assert self.model is not None
        return area_downsample(torch.stack(frames, 1), self.model.image_size)

    def shown_size(self) -> int:
        """Pixels per side of frames for the page."""
        assert self.task is not None
        return min(SHOWN_SIZE, self.task.image_size)

    def shown(self, frame: UInt8[Tensor, "1 Y X 3"]) -> np.ndarray:
        """A frame for the page."""
        return area_downsample(frame[0], self.shown_size()).cpu().numpy()

    def pair(self, index: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The start and the goal of a held-out pair."""
        if self.pairs is None:
            raise InputError(f"{self.name} has no held-out pairs. {self.note}")
        if not 0 <= index < len(self.pairs):
            raise InputError(f"{self.name} has pairs 0 to {len(self.pairs) - 1}, not {index}.")
        one = self.pairs.take([index])
        return (
            {name: torch.as_tensor(values) for name, values in one.start_rows.items()},
            {name: torch.as_tensor(values) for name, values in one.goal_rows.items()},
        )

    def clicked(self, x: int | float, y: int | float) -> dict[str, Tensor]:
        """The state of a dot at this place in a frame of `shown_size`; the environment refuses what is no state."""
        if self.task is None or self.task.name not in CLICKABLE:
            raise InputError(f"A place in the picture is no state of {self.task.name if self.task else 'this task'}.")
        scale = self.task.image_size / self.shown_size()
        rows = {CLICKABLE[self.task.name]: torch.tensor([[x * scale, y * scale]])}
        self.placed(rows, rows)
        return rows

    def sliders(self) -> list[StateNumber]:
        """The numbers of the state that can be moved."""
        if self.task is None or self.pairs is None:
            return []
        found = []
        for each in self.task.visible:
            if each.column in self.pairs.start_rows:
                ends = [torch.as_tensor(rows[each.column]) for rows in (self.pairs.start_rows, self.pairs.goal_rows)]
                values = torch.cat([end.reshape(len(end), -1)[:, each.index] for end in ends]).double()
                low, high = (values.min() * 100).floor() / 100, (values.max() * 100).ceil() / 100
                name = NAMES.get((self.task.name, each.column), {}).get(each.index, f"{each.column}[{each.index}]")
                found.append(StateNumber(each.column, each.index, name, float(low), float(high)))
        return found

    def draw(self, start: Rows, goal: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Frames of a start and a goal for the page."""
        envs = self.placed(start, goal)
        return self.shown(envs.render()), self.shown(envs.render_goal())

    def selection(self, start: Rows, goal: Rows) -> dict[int, float]:
        """q(k | start, goal)."""
        envs, planner = self.placed(start, goal), self._planner(SearchSize())
        features, _ = planner.encode(self.seen(envs.render(), envs.render_goal()))
        return dict(zip(self.capacities, planner.capacity_distribution(features)[0].tolist(), strict=True))

    def replay(self, record: int) -> list[np.ndarray]:
        """The frames of an evaluated episode, drawn again from its kept actions."""
        frames, _ = replayed(self.run, [record], self.shown_size())[0]
        return list(frames.numpy())

    def attempt(
        self, start: Rows, goal: Rows, size: SearchSize, capacity: int | None = None, stream: int = 0
    ) -> Iterator[Attempt]:
        """Plan and act until the goal is reached or the budget is used; yields as the search and the episode go on.

        `stream` names the noise, as the episode of an evaluation does; without a `capacity` the model chooses.
        """
        planner, envs = self._planner(size), self.placed(start, goal)
        frame = envs.render()
        features, latents = planner.encode(self.seen(frame, envs.render_goal()))
        q = planner.capacity_distribution(features)
        k = capacity or self.capacities[int(modal_index(q))]
        planner.support.index_of(k)
        found = Attempt(k, dict(zip(self.capacities, q[0].tolist(), strict=True)), blocks_per_frame=self.frame_skip)
        found.frames.append(self.shown(frame))
        found.distances.append(float(envs.distance()[0]))
        z_now, z_goal, num_plans = latents[:, 0], latents[:, 1], 0
        while not found.is_over:
            key = (planner.config.seed, stream, num_plans)
            blocks = z_now.new_zeros(0)
            for mean in self._search(planner, z_now, z_goal, k, key, found):
                blocks = mean
                yield found
            num_plans += 1
            self._imagine(planner, z_now, z_goal, blocks, k, found)
            yield found
            for action in planner.to_actions(blocks)[0]:
                envs.step(action[None])
                frame = envs.render()
                found.distances.append(float(envs.distance()[0]))
                found.frames.append(self.shown(frame))
                found.success = bool(envs.success()[0])
                found.is_over = found.success or len(found.distances) > BUDGET
                if found.is_over:
                    break
                if len(found.frames) % self.frame_skip == 1:
                    yield found
            if not found.is_over:
                z_now = planner.encode(self.seen(frame))[1][:, 0]
        steps = len(found.distances) - 1
        found.note = f"Reached the goal in {steps} steps." if found.success else f"Not at the goal after {steps} steps."
        yield found

    def _planner(self, size: SearchSize) -> Planner:
        config = PlanningConfig(cem=CEMConfig.with_a_tenth_elite(size.num_candidates, size.num_iterations))
        statistics = self.learned.statistics
        return Planner(self.planning_model, statistics.mean, statistics.std, config.at_frame_skip(self.frame_skip))

    def _search(
        self, planner: Planner, z_now: Tensor, z_goal: Tensor, k: int, key: tuple[int, int, int], found: Attempt
    ) -> Iterator[Float[Tensor, "1 H A"]]:
        """The mean of the candidates after each iteration of CEM: `alewm.planning.search.solve`, one step at a time."""
        config, cem = planner.config, planner.config.cem
        shape = (cem.num_iterations, cem.num_candidates, config.horizon, planner.block_dim)
        noise = candidate_noise([key], *shape, device=planner.device)

        def score(candidates: Tensor) -> Tensor:
            imagined = sliced_roll_out(planner.model, z_now, candidates, k, last_width=k, context=planner.context)
            return prefix_distance(imagined[-1], z_goal)

        mean = noise.new_zeros(1, config.horizon, planner.block_dim)
        std = torch.full_like(mean, cem.initial_std)
        found.elite_costs.append([])
        found.spreads.append([])
        for step in range(cem.num_iterations):
            found.spreads[-1].append(float(std.mean()))
            mean, std, cost = refine(score, mean, std, noise[step], cem.num_elites)
            if not bool(cost.isfinite().all()):
                raise InputError("The model's predictions are not finite: its weights have diverged.")
            found.elite_costs[-1].append(float(cost[0]))
            yield mean

    def _imagine(
        self, planner: Planner, z_now: Tensor, z_goal: Tensor, blocks: Float[Tensor, "1 H A"], k: int, found: Attempt
    ) -> None:
        """Add what the plan is imagined to lead to."""
        rolled = sliced_roll_out(planner.model, z_now, blocks[:, None], k, last_width=k, context=planner.context)
        z = torch.stack([z_now[:, :k], *(each[:, 0] for each in rolled)], 1)[0]
        first = 0 if not found.imagined_costs else 1  # the frame that the next plan begins at is there already
        found.imagined_costs += prefix_distance(z[None], z_goal)[0, first:].tolist()
        if self.decoder is not None:
            drawn: UInt8[Tensor, "H Y X 3"] = self.decoder.frames(z.float())
            found.imagined += list(drawn[first:].cpu().numpy())
