"""`alewm collect`: episodes of a task, recorded into one file."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from alewm.cli.flags import Flag, Maybe
from alewm.errors import InputError

if TYPE_CHECKING:
    from alewm.data.collect import Collected


@dataclass(frozen=True)
class Collect:
    """Record episodes of a task into one HDF5 file.

    The same settings give the same bytes, whatever the number of processes. Repeating the command after an
    interruption continues; a complete file is left as it is.
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """The task, for example two-room."""
    out: Path
    """The file to write; its folder is made if it does not exist."""
    episodes: Maybe[int] = None
    """How many episodes: 10,000 if not given, and all copies of --demonstrations."""
    seed: int = 0
    """Every episode is determined by this seed and its number."""
    image_size: Maybe[int] = None
    """Pixels per side of a frame; if not given, the task's own (224). Smaller frames are exact area averages."""
    behaviour: Maybe[str] = None
    """What acts while recording, for tasks that have a choice; if not given, the task's first."""
    demonstrations: Maybe[Path] = None
    """Push-T: the file of human demonstrations, pusht_cchi_v7_replay.zarr (folder, zip or tar) or an npz. Noisy copies
    of them are recorded, as in the published training data."""
    copies: Maybe[int] = None
    """Episodes per demonstration; if not given, 101, as published. The first is exact, the others have noise."""
    noise: Maybe[float] = None
    """Mean standard deviation of the noise on the actions of copies; if not given, 0.038, which gives all actions the
    standard deviation that they have in the published file."""
    held_out: Flag = False
    """Record the demonstrations that the published training file leaves out (21 of 206), for a test on demonstrations
    never seen; otherwise the others (185)."""
    max_steps: Maybe[int] = None
    """Cut episodes after this many environment steps, for a quick try; if not given, where the task does."""
    draw_every: int = 1
    """Draw one of so many steps, 1 or the frame skip. Training looks at frames that are a frame skip apart; windows
    then start at drawn steps only. Where drawing takes the time (reacher, cube), 5 gives four times as many episodes in
    the same time."""
    frame_skip: Maybe[int] = None
    """Environment steps per latent step, stored in the file; training takes it from there. If not given, training
    decides: 5, as in the paper."""
    drawing: Literal["auto", "mujoco", "batched"] = "auto"
    """Who draws (reacher, cube): MuJoCo's OpenGL, or our rasteriser in batches, ten times as fast on a CPU and nearly
    the same frames. auto is batched where that works, and goes on as a file was begun. The file says which."""
    shadow_size: Maybe[int] = None
    """Texels per side of the shadow map (reacher, cube); if not given, the model's own, 2048 and 4096."""
    jobs: int = 0
    """Processes to use; 0 means one per core."""

    WHEN_INTERRUPTED: ClassVar[str] = "What was finished is kept; repeat the command to continue."

    def run(self) -> None:
        """Records what is missing of the file."""
        print(self.collected().in_words(self.out))
        print(self.out)

    def collected(self) -> "Collected":
        """What was recorded now."""
        from alewm.envs.collect_task import Demonstrations, collect_task
        from alewm.envs.registry import get_task

        task = get_task(self.task)
        chosen = None
        if self.demonstrations is not None:
            chosen = Demonstrations(self.demonstrations, self.copies, self.noise, self.held_out)
        elif self.copies is not None or self.noise is not None or self.held_out:
            raise InputError("--copies, --noise and --held-out are about copies of --demonstrations: give those, too.")
        elif task.demonstrations_home is not None and self.behaviour is None:
            print(
                f"No --demonstrations were given: the behaviour {task.default_behaviour!r} is recorded instead. "
                f"{task.where_demonstrations}",
                file=sys.stderr,
            )
        return collect_task(
            self.task,
            self.out,
            num_episodes=self.episodes,
            seed=self.seed,
            image_size=self.image_size,
            behaviour=self.behaviour,
            demonstrations=chosen,
            max_steps=self.max_steps,
            draw_every=self.draw_every,
            frame_skip=self.frame_skip,
            drawing=self.drawing,
            shadow_size=self.shadow_size or 0,
            jobs=self.jobs,
        )
