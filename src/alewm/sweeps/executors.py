"""What runs jobs: processes of this machine, or Ray on this machine or a cluster.

Ray places jobs by the cores and GPUs they ask for. On this machine it listens to this machine alone, and whoever
connects needs a token. Machines of a cluster need this package, and the working folder,
the runs and the data on shared storage.
"""

import logging
import os
import re
import secrets
import signal
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from alewm.devices import find_device
from alewm.errors import InputError, install_line
from alewm.sweeps.jobs import Job, JobResources, JobResult
from alewm.workers import WorkerProcess, end_workers, num_available_cores, num_processes

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


class _Worker(WorkerProcess):
    """A process that does one job after the other, and sees one GPU; None leaves that as it is."""

    def __init__(self, gpu: int | None) -> None:
        super().__init__(_serve, gpu)
        self.job: Job | None = None


class LocalProcesses:
    """Processes that stay between jobs; one whose job failed, or that died, is replaced by a fresh one."""

    def __init__(self, gpus: Sequence[int | None], device: str, num_threads: int) -> None:
        """One process per entry of `gpus`, the GPU that it sees."""
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
            raise InputError("A trial asks for a GPU, but this machine has none.")
        room = len(gpus) or max(1, num_available_cores() // (resources.cpus or 1))
        count = num_processes(jobs) if jobs else room
        if gpus and resources.gpus:
            count = min(count, room)
        threads = resources.cpus or max(1, num_available_cores() // count)
        return cls([gpus[i % len(gpus)] if gpus else None for i in range(count)], str(device), threads)

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
        """End all processes. A training writes a checkpoint, from which it continues when its command is repeated."""
        self._queue.clear()
        end_workers([worker for worker in self._workers if worker is not None])
        self._workers = [None] * len(self._workers)

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
                with suppress(BrokenPipeError):  # it died just now; `wait` reports that
                    worker.pipe.send(worker.job)

    def _dismiss(self, slot: int) -> None:
        worker = self._workers[slot]
        if worker is not None:
            worker.kill()
        self._workers[slot] = None


def _dealt(num_gpus: int, resources: JobResources) -> list[int]:
    """The GPU that each process sees: first one process on each GPU, then a second."""
    per_gpu = int(1 / (resources.gpus or 1) + 1e-9)
    return [gpu for _ in range(per_gpu) for gpu in range(num_gpus)]


def _serve(pipe: Connection, gpu: int | None) -> None:
    if gpu is not None:
        visible = os.environ.get(VISIBLE_GPUS, "")
        os.environ[VISIBLE_GPUS] = visible.split(",")[gpu] if visible else str(gpu)
    while True:
        pipe.send(pipe.recv().perform())


def _death(status: int | None) -> str:
    if status is not None and status < 0:
        return f"its process was killed by {signal.Signals(-status).name}"
    return f"its process ended with status {status}"


LOCAL = "local"
ANSWER_SECONDS = 5.0
WITH_TOKENS = (2, 52)
"""The first version of Ray in which whoever connects must have a token."""
OBJECT_STORE_BYTES = 100 * 2**20


class RayCluster:
    """Ray, started here or found at an address."""

    def __init__(self, address: str | None, device: str, resources: JobResources) -> None:
        """`address` is HOST:PORT or auto; without one, RAY_ADDRESS counts if it is set, else Ray starts here."""
        address = address or os.environ.get("RAY_ADDRESS") or LOCAL
        self._ray = _import_ray(address)
        device = resources.device(device)
        if address == LOCAL:
            find_device(device)
        _connect(self._ray, address)
        found: dict[str, float] = self._ray.cluster_resources()
        resources = resources.completed(device, found.get("CPU", 0.0), found.get("GPU", 0.0))
        assert resources.cpus is not None
        assert resources.gpus is not None
        self._check_room(address, resources.cpus, resources.gpus)
        # Ray hides the GPUs that a job did not request, so the first visible GPU is the job's.
        self.device, self.num_threads = resources.device(device), resources.cpus
        # `finish_all` counts and retries failures for every executor; Ray itself must not retry.
        self._task = self._ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=0)(_perform)
        self._jobs: dict[Any, Job] = {}

    def submit(self, job: Job) -> None:
        """Start `job` where the cluster has room."""
        self._jobs[self._task.remote(job)] = job

    def wait(self, seconds: float) -> list[JobResult]:
        """The jobs that ended since the last call."""
        references = list(self._jobs)
        if self._ray.wait(references, num_returns=1, timeout=seconds)[0]:
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
            return [JobResult(self._jobs.pop(each), self._failure(each)) for each in ready]
        return []

    def close(self) -> None:
        """End this command's tasks, and Ray if it was started here."""
        for reference in self._jobs:
            self._ray.cancel(reference, force=True)
        self._jobs.clear()
        self._ray.shutdown()

    def _failure(self, reference: Any) -> str | None:
        try:
            failure: str | None = self._ray.get(reference)
        except self._ray.exceptions.WorkerCrashedError:
            return "its process was killed, or crashed"
        except self._ray.exceptions.RayError as error:
            return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        return failure

    def _check_room(self, address: str, cpus: int, gpus: float) -> None:
        """Check that some machine has what one job asks for; a cluster may still grow, this machine will not."""
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if any(each.get("CPU", 0) >= cpus and each.get("GPU", 0) >= gpus for each in machines):
            return
        asked = f"A trial asks for {cpus} cores and {gpus:g} GPUs"
        found = "; ".join(f"{each.get('CPU', 0):g} cores, {each.get('GPU', 0):g} GPUs" for each in machines)
        if address == LOCAL:
            self._ray.shutdown()
            raise InputError(f"{asked}, but this machine has {found}. Choose less with --cpus-per-trial or others.")
        print(f"{asked}; no machine of the cluster has that now ({found}), so that trials wait until one does.")


def _perform(job: Job) -> str | None:
    return job.perform()


def _import_ray(address: str) -> Any:
    # Without these, Ray reports its use to its makers and warns of defaults that are going to change.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address == LOCAL:
        # Nobody else is to submit code. Ray listens on all interfaces of a Linux machine, unless it is told that there
        # is no cluster by a variable that is named after other systems. The token keeps out other users of the machine.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
    except ImportError:
        raise InputError(
            f"Ray is not installed. {install_line('sweep')} Or give --jobs N, which runs N processes on this machine "
            f"without it."
        ) from None
    if tuple(int(part) for part in re.findall(r"\d+", ray.__version__)[:2]) < WITH_TOKENS:
        raise InputError(
            f"Ray {ray.__version__} cannot ask for a token, so that others could run code through it. Update it: pip "
            f"install --upgrade ray; or give --jobs N, which runs N processes on this machine without it."
        )
    return ray


def _connect(ray: Any, address: str) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        # The store is for large objects, of which there are none here.
        small = {"object_store_memory": OBJECT_STORE_BYTES}
        ray.init(address=LOCAL, num_cpus=num_available_cores(), include_dashboard=False, **small, **quiet)
        return
    _check_answer(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(
            f"Ray could not connect to a cluster at {address}: {str(error).strip().splitlines()[0]}. Start one with "
            f"`ray start --head`, or leave --address out to run on this machine. A cluster with token authentication "
            f"needs its token here too, the way Ray's documentation says."
        ) from error


def _check_answer(address: str) -> None:
    """Fail at once if nothing answers; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        if address == "auto":
            return
        raise InputError(f"--address is HOST:PORT or auto, got {address!r}.")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise InputError(
            f"Nothing answers at {address} ({error}). Start a cluster with `ray start --head`, which prints its "
            f"address, or leave --address out to run on this machine."
        ) from error
