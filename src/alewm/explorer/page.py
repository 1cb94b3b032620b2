"""The explorer's page, made with Gradio: controls on top, a column per run below.

It works without a network, listens on this machine only and refuses other origins. Nothing on the page is a path: runs
are named on the command line.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from alewm.errors import InputError, install_line
from alewm.evaluation.success import EpisodeRecord
from alewm.explorer.drawing import COLORS, STYLE, DistancePlot, attempt_view, bars
from alewm.explorer.session import CLICKABLE, Attempt, Explored, SearchSize

FASTEST_UPDATE_SECONDS = 0.12
MOST_AT_HOME, MOST_IN_PUBLIC = SearchSize(3000, 100), SearchSize(300, 30)
OWN_HOSTS = ("127.0.0.1", "localhost")

T = TypeVar("T")


def _gradio() -> Any:
    # Both are read when Gradio is imported.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    try:
        import gradio
    except ImportError as error:
        raise InputError(
            f"The explorer needs Gradio, which cannot be imported ({error}). {install_line('explore')}"
        ) from error
    return gradio


class OwnOriginOnly:
    """ASGI middleware that answers requests for this machine by its own pages only."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes a request on, or answers 403."""
        if scope["type"] in ("http", "websocket") and not is_own(dict(scope["headers"])):
            if scope["type"] == "http":
                await send({"type": "http.response.start", "status": 403, "headers": []})
                await send({"type": "http.response.body", "body": b"The explorer answers its own page only."})
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        await self.app(scope, receive, send)


def is_own(headers: dict[bytes, bytes]) -> bool:
    """Whether a request names this machine as its host, and comes from a page of that very host and port."""
    host = headers.get(b"host", b"").decode("latin-1")
    if urlsplit(f"//{host}").hostname not in OWN_HOSTS:
        return False
    origin = headers.get(b"origin", b"").decode("latin-1")
    return not origin or urlsplit(origin).netloc == host


@dataclass
class Scene:
    """What one visitor has chosen and seen."""

    start: dict[str, Any]
    goal: dict[str, Any]
    stream: int = 0
    """What names the noise: the episode of a held-out pair."""
    attempts: tuple[Attempt, ...] = ()
    record: int | None = None
    """The place of the pair among the first run's evaluated episodes."""


class Page:
    """The page of one or two runs; `build` makes it and `launch` serves it."""

    def __init__(self, runs: Sequence[Explored], *, is_public: bool = False) -> None:
        self.runs, self.is_public = list(runs), is_public
        self.most = MOST_IN_PUBLIC if is_public else MOST_AT_HOME
        self.usable = [run for run in self.runs if not run.problem and run.can_act]
        # What draws with OpenGL must always do so on the same thread; Gradio answers on many.
        self._thread = ThreadPoolExecutor(1)
        self.lead = next(iter(self.usable), None)
        if len({run.task.name for run in self.usable if run.task is not None}) > 1:
            raise InputError("Two runs side by side must be of the same task.")

    def pair_labels(self) -> list[tuple[str, int]]:
        """The held-out pairs, each with the outcome of its evaluation where there is one."""
        if self.lead is None:
            return []
        known = {record.pair_name: record for record in self.lead.records}
        labels = []
        for i, name in enumerate(self._pair_names()):
            record = known.get(name)
            told = "" if record is None else f": {'reached' if record.success else 'missed'} in {record.steps} steps"
            labels.append((f"episode {name[0]} from step {name[1]}{told}", i))
        return labels

    def here(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's value, computed on the page's own thread."""
        return self._thread.submit(function, *arguments).result()

    def place_of(self, record: EpisodeRecord) -> int | None:
        """The index of an evaluated episode among the held-out pairs."""
        names = self._pair_names()
        return names.index(record.pair_name) if record.pair_name in names else None

    def _pair_names(self) -> list[tuple[int, int]]:
        """Episode and first step of every held-out pair."""
        return [] if self.lead is None or self.lead.pairs is None else self.lead.pairs.pair_names

    def choose_pair(self, index: int) -> Scene:
        """The scene of a held-out pair."""
        assert self.lead is not None
        start, goal = self.lead.pair(int(index))
        name = self._pair_names()[index]
        places = [i for i, record in enumerate(self.lead.records) if record.pair_name == name]
        return Scene(start, goal, name[0], record=places[0] if places else None)

    def first_scene(self) -> Scene | None:
        """The first held-out pair; without pairs, two places in the picture where the task has such."""
        if self.lead is None:
            return None
        if self.lead.pairs is not None:
            return self.choose_pair(0)
        if self.lead.task is not None and self.lead.task.name in CLICKABLE:
            size = self.lead.shown_size()
            return Scene(self.lead.clicked(size * 0.25, size * 0.6), self.lead.clicked(size * 0.75, size * 0.6))
        return None

    def attempts(
        self, scene: Scene, capacity_index: int, candidates: int, iterations: int
    ) -> Iterator[tuple[Attempt, ...]]:
        """All runs planning at the same time, a step of each in turn."""
        size = SearchSize(candidates, iterations).within(self.most)
        going = []
        for run in self.usable:
            capacity = run.capacities[min(capacity_index, len(run.capacities)) - 1] if capacity_index else None
            going.append(run.attempt(scene.start, scene.goal, size, capacity, scene.stream))
        latest: list[Attempt | None] = [None] * len(going)
        while not all(each is not None and each.is_over for each in latest):
            for i, each in enumerate(going):
                latest[i] = self.here(next, each, latest[i])
            yield tuple(each for each in latest if each is not None)

    def build(self) -> Any:
        """The Gradio blocks."""
        gr = _gradio()
        title = " and ".join(run.name for run in self.runs)
        with gr.Blocks(title=f"alewm explore: {title}", analytics_enabled=False) as blocks:
            gr.Markdown(f"## {title}", sanitize_html=True)
            for run in self.runs:
                if told := run.problem or run.note:
                    gr.Markdown(f"**{run.name}**: {told}", sanitize_html=True)
            scene = self.first_scene()
            if scene is None or self.lead is None:
                gr.Markdown("There is nothing to plan with here: see the lines above.")
                return blocks
            lead, state = self.lead, gr.State(scene)
            can_click = lead.task is not None and lead.task.name in CLICKABLE
            first, last = self.here(lead.draw, scene.start, scene.goal)
            labels = self.pair_labels()
            with gr.Row():
                with gr.Column(scale=2, min_width=300):
                    pair = gr.Dropdown(labels, value=0 if labels else None, label="Held-out pair", elem_id="pair")
                    with gr.Row():
                        hint = ", click to place" if can_click else ""
                        options: dict[str, Any] = {"interactive": False, "format": "png", "buttons": []}
                        start = gr.Image(first, label=f"Start{hint}", elem_id="start", min_width=120, **options)
                        goal = gr.Image(last, label=f"Goal{hint}", elem_id="goal", min_width=120, **options)
                    numbers = []
                    if not can_click and lead.sliders():
                        with gr.Accordion("State", open=False), gr.Row():
                            for role in ("start", "goal"):
                                with gr.Column(min_width=240):
                                    for i, each in enumerate(lead.sliders()):
                                        label, place = f"{role}: {each.name}", f"state-{role}-{i}"
                                        value = round(each.read(getattr(scene, role)), 2)
                                        span = {"minimum": each.low, "maximum": each.high, "step": 0.01}
                                        slider = gr.Slider(**span, value=value, label=label, elem_id=place)
                                        numbers.append((role, each, slider))
                with gr.Column(scale=1, min_width=280):
                    count = max(len(run.capacities) for run in self.usable)
                    told = "0: the model chooses. " + ", ".join(f"{i}: {k}" for i, k in enumerate(lead.capacities, 1))
                    capacity = gr.Slider(0, count, 0, step=1, label="Capacity", info=told, elem_id="capacity")
                    most = self.most
                    candidates = gr.Slider(
                        20, most.num_candidates, 300, step=20, label="Candidates", elem_id="candidates"
                    )
                    iterations = gr.Slider(1, most.num_iterations, 30, step=1, label="Iterations", elem_id="iterations")
                    with gr.Row():
                        plan = gr.Button("Plan", variant="primary", elem_id="plan")
                        again = gr.Button("Replay the evaluation", elem_id="replay", visible=bool(lead.records))
            step = gr.Slider(0, 50, 0, step=1, label="Timeline (steps)", elem_id="timeline")
            with gr.Row():
                views = []
                for i in range(len(self.usable)):
                    with gr.Column(min_width=320):
                        views.append(gr.HTML(elem_id=f"view-{i}", min_height=80))
            plots = [DistancePlot(run.records, f"{run.name}: click a line") for run in self.usable if run.records]
            with gr.Row():
                shown = [
                    gr.Image(each.picture, elem_id=f"distances-{i}", show_label=False, **options)
                    for i, each in enumerate(plots)
                ]

            def draw(chosen: Scene) -> list[Any]:
                """Both pictures, and q before any plan."""
                pictures = self.here(lead.draw, chosen.start, chosen.goal)
                told = []
                for run, color in zip(self.usable, COLORS, strict=False):
                    q = self.here(run.selection, chosen.start, chosen.goal)
                    told.append(f'<div class="alewm">{bars(q, max(q, key=lambda k: q[k]), color)}</div>')
                values = [round(each.read(getattr(chosen, role)), 2) for role, each, _ in numbers]
                return [chosen, *pictures, *told, *values]

            def on_pair(index: int | None) -> list[Any]:
                return draw(self.choose_pair(0 if index is None else index))

            def moved(chosen: Scene, ends: Callable[[], dict[str, Any]]) -> list[Any]:
                """The scene with other ends, or as it was where these are no states."""
                try:
                    return [None, *draw(Scene(**ends()))]
                except InputError as error:
                    gr.Warning(str(error))
                    return [gr.skip(), *draw(chosen)]

            def on_start(chosen: Scene, event: gr.SelectData) -> list[Any]:
                return moved(chosen, lambda: {"start": self.here(lead.clicked, *event.index), "goal": chosen.goal})

            def on_goal(chosen: Scene, event: gr.SelectData) -> list[Any]:
                return moved(chosen, lambda: {"start": chosen.start, "goal": self.here(lead.clicked, *event.index)})

            def on_number(index: int, chosen: Scene, value: float) -> list[Any]:
                ends, (role, number, _) = {"start": chosen.start, "goal": chosen.goal}, numbers[index]
                shown = moved(chosen, lambda: {**ends, role: number.written(ends[role], value)})
                shown[index - len(numbers)] = gr.skip()  # a hand is on this slider
                return shown

            def on_plan(chosen: Scene, index: int, num_candidates: int, num_iterations: int) -> Iterator[list[Any]]:
                picture, began = self.here(lead.draw, chosen.start, chosen.goal)[1], 0.0
                try:
                    for found in self.attempts(chosen, int(index), num_candidates, num_iterations):
                        chosen.attempts = found
                        over = all(each.is_over for each in found) and len(found) == len(self.usable)
                        if not over and time.monotonic() - began < FASTEST_UPDATE_SECONDS:
                            continue
                        began = time.monotonic()
                        yield [chosen, gr.skip(), *self._columns(found, picture)]
                except InputError as error:
                    raise gr.Error(str(error)) from error
                length = max(len(each.frames) for each in chosen.attempts) - 1
                timeline = gr.Slider(maximum=max(1, length), value=length)
                yield [chosen, timeline, *self._columns(chosen.attempts, picture)]

            def on_step(chosen: Scene, at: int) -> list[Any]:
                if not chosen.attempts:
                    return [gr.skip()] * len(views)
                picture = self.here(lead.draw, chosen.start, chosen.goal)[1]
                return self._columns(chosen.attempts, picture, int(at))

            def on_replay(chosen: Scene) -> list[Any]:
                if chosen.record is None:
                    gr.Warning("This start and goal were not evaluated: choose a held-out pair.")
                    return [gr.skip()] * (2 + len(views))
                record = lead.records[chosen.record]
                told = f"The evaluation {'reached' if record.success else 'missed'} the goal in {record.steps} steps."
                q = dict(zip(lead.capacities, record.q, strict=True))
                kept = Attempt(record.capacity, q, distances=list(record.distances), blocks_per_frame=lead.frame_skip)
                kept.frames, kept.success = self.here(lead.replay, chosen.record), record.success
                kept.note, kept.is_over = told, True
                chosen.attempts = (kept,)
                picture = self.here(lead.draw, chosen.start, chosen.goal)[1]
                views_now = self._columns(chosen.attempts, picture)
                rest = [gr.skip()] * (len(views) - 1)
                return [chosen, gr.Slider(maximum=max(1, record.steps), value=record.steps), *views_now, *rest]

            sliders = [each for *_, each in numbers]
            pictures = [state, start, goal, *views, *sliders]
            pair.input(on_pair, pair, pictures, show_progress="hidden")
            if can_click:
                start.select(on_start, state, [pair, *pictures], show_progress="hidden")
                goal.select(on_goal, state, [pair, *pictures], show_progress="hidden")
            for index, slider in enumerate(sliders):
                given, moves = [state, slider], partial(on_number, index)
                slider.input(moves, given, [pair, *pictures], show_progress="hidden", trigger_mode="always_last")
            size = [capacity, candidates, iterations]
            plan.click(on_plan, [state, *size], [state, step, *views], show_progress="hidden", concurrency_limit=1)
            step.input(on_step, [state, step], views, show_progress="hidden")
            again.click(on_replay, state, [state, step, *views], show_progress="hidden")
            for run, picture, plot in zip((r for r in self.usable if r.records), shown, plots, strict=True):

                def on_line(event: gr.SelectData, run: Any = run, plot: Any = plot) -> list[Any]:
                    index = self.place_of(run.records[plot.nearest(*event.index)])
                    if index is None:
                        gr.Warning(f"{lead.name} has not this pair.")
                        return [gr.skip()] * (1 + len(pictures))
                    return [index, *draw(self.choose_pair(index))]

                picture.select(on_line, None, [pair, *pictures], show_progress="hidden")
            blocks.load(draw, state, pictures, show_progress="hidden")
        return blocks

    def _columns(self, attempts: Sequence[Attempt], goal: Any, step: int | None = None) -> list[str]:
        return [attempt_view(self.usable[i].name, COLORS[i], each, goal, step) for i, each in enumerate(attempts)]

    def launch(self, port: int | None = None) -> None:
        """Serve the page until the server is stopped; prints its address."""
        gr, blocks = _gradio(), self.build()
        from starlette.middleware import Middleware

        fonts = ["system-ui", "sans-serif"]
        theme = gr.themes.Default(font=fonts, font_mono=["ui-monospace", "monospace"])
        guard = {} if self.is_public else {"app_kwargs": {"middleware": [Middleware(OwnOriginOnly)]}}
        _, address, _ = blocks.queue(default_concurrency_limit=2, max_size=20).launch(
            server_name="0.0.0.0" if self.is_public else OWN_HOSTS[0],
            server_port=port,
            share=False,
            allowed_paths=[],
            enable_monitoring=False,
            footer_links=[],
            ssr_mode=False,
            mcp_server=False,
            pwa=False,
            quiet=True,
            max_file_size=1,
            theme=theme,
            css=STYLE,
            prevent_thread_lock=True,
            **guard,
        )
        print(address, flush=True)
        blocks.block_thread()


def explore(runs: Sequence[Path], *, data_path: Path | None = None, is_public: bool = False) -> Page:
    """The page of one or two run folders."""
    if not 1 <= len(runs) <= 2:
        raise InputError(f"Name one run or two: alewm explore RUN [RUN2]; got {len(runs)}.")
    if len({run.resolve() for run in runs}) < len(runs):
        raise InputError("The same run folder is named twice.")
    return Page([Explored(run, data_path) for run in runs], is_public=is_public)
