"""Jobs in processes of this machine, each with its part of the GPUs and cores."""

import os
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait

import torch

from alewm.errors import InputError
from alewm.sweeps.jobs import Job, JobResources, JobResult
from alewm.workers import WorkerProcess, num_available_cores, num_processes

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


class _Worker(WorkerProcess):
    """A process that does one job after the other, and sees these GPUs."""

    def __init__(self, gpus: tuple[int, ...]) -> None:
        super().__init__(_serve, gpus)
        self.job: Job | None = None


class LocalProcesses:
    """Processes that stay between jobs; one whose job failed, or that died, is replaced by a fresh one."""

    def __init__(self, gpus: Sequence[tuple[int, ...]], device: str, num_threads: int) -> None:
        """One process per entry of `gpus`, which names the GPUs it sees; an empty entry leaves that as it is."""
        self.device, self.num_threads = device, num_threads
        self._gpus = gpus
        self._workers: list[_Worker | None] = [None] * len(gpus)
        self._queue: deque[Job] = deque()

    @classmethod
    def sharing(cls, jobs: int, device: torch.device, resources: JobResources) -> "LocalProcesses":
        """`jobs` processes; 0 is as many as the machine's GPUs, or else its cores, have room for."""
        is_spread = device.type == "cuda" and device.index is None
        gpus = _dealt(torch.cuda.device_count(), resources) if is_spread else []
        if is_spread and not gpus:
            wanted, found = resources.gpus or resources.ranks, torch.cuda.device_count()
            raise InputError(f"A trial asks for {wanted:g} GPUs, but this machine has {found}.")
        room = len(gpus) or max(1, num_available_cores() // (resources.cpus or resources.ranks))
        count = num_processes(jobs) if jobs else room
        if gpus and resources.gpus:
            count = min(count, room)
        threads = resources.cpus or max(1, num_available_cores() // count)
        return cls([gpus[i % len(gpus)] if gpus else () for i in range(count)], str(device), threads)

    def submit(self, job: Job) -> None:
        """Start `job` in the next free process."""
        self._queue.append(job)

    def wait(self, seconds: float) -> list[JobResult]:
        """The jobs that ended since the last call."""
        self._fill()
        busy = [each for each in self._workers if each is not None and each.job is not None]
        # A pipe is ready when its process has answered, and also when it has died.
        ready = wait([each.pipe for each in busy], seconds)
        ended = []
        for worker in (each for each in busy if each.pipe in ready):
            assert worker.job is not None
            try:
                failure: str | None = worker.pipe.recv()
            except (EOFError, OSError):  # it died, perhaps amid its answer
                worker.process.join()
                failure = _death(worker.process.exitcode)
            ended.append(JobResult(worker.job, failure))
            worker.job = None
            if failure is not None:
                self._dismiss(self._workers.index(worker))
        self._fill()
        return ended

    def close(self) -> None:
        """End all processes. A training continues from its last checkpoint when its command is repeated."""
        self._queue.clear()
        for slot in range(len(self._workers)):
            self._dismiss(slot)

    def _fill(self) -> None:
        for slot, worker in enumerate(self._workers):
            if not self._queue:
                return
            if worker is not None and worker.job is None and not worker.process.is_alive():
                self._dismiss(slot)  # it died between jobs
                worker = None
            if worker is None:
                worker = self._workers[slot] = _Worker(self._gpus[slot])
            if worker.job is None:
                worker.job = self._queue.popleft()
                with suppress(BrokenPipeError):  # it died just now, which `wait` will find
                    worker.pipe.send(worker.job)

    def _dismiss(self, slot: int) -> None:
        worker = self._workers[slot]
        if worker is not None:
            worker.kill()
        self._workers[slot] = None


def _dealt(num_gpus: int, resources: JobResources) -> list[tuple[int, ...]]:
    """The GPUs that each process sees: first one process on each GPU, then a second."""
    wanted = resources.gpus or resources.ranks
    if wanted < 1:
        return [(gpu,) for _ in range(int(1 / wanted + 1e-9)) for gpu in range(num_gpus)]
    size = int(wanted)
    return [tuple(range(start, start + size)) for start in range(0, num_gpus - size + 1, size)]


def _serve(pipe: Connection, gpus: tuple[int, ...]) -> None:
    if gpus:
        visible = os.environ.get(VISIBLE_GPUS, "")
        names = visible.split(",") if visible else [str(gpu) for gpu in range(max(gpus) + 1)]
        os.environ[VISIBLE_GPUS] = ",".join(names[gpu] for gpu in gpus)
    while True:
        pipe.send(pipe.recv().perform())


def _death(status: int | None) -> str:
    if status is not None and status < 0:
        return f"its process was killed by {signal.Signals(-status).name}"
    return f"its process ended with status {status}"
