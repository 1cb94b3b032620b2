"""Jobs as tasks of Ray: on this machine with no set-up, or on the machines of a running cluster.

Ray decides where and when a job runs, by the cores and GPUs it asks for. Machines of a cluster need this package, and
the working folder, the runs and the data on storage that all of them share.
"""

import logging
import os
import socket
from typing import Any

from alewm.devices import find_device
from alewm.errors import InputError
from alewm.sweeps.jobs import Job, JobResources, JobResult
from alewm.workers import num_available_cores

LOCAL = "local"
ANSWER_SECONDS = 5.0
OBJECT_STORE_BYTES = 100 * 2**20


class RayCluster:
    """Ray, started here or found at an address."""

    def __init__(self, address: str | None, device: str, resources: JobResources) -> None:
        """`address` is HOST:PORT or auto; without one, RAY_ADDRESS counts if it is set, else Ray starts here."""
        self._ray = _import_ray()
        address = address or os.environ.get("RAY_ADDRESS") or LOCAL
        device = resources.device(device)
        if address == LOCAL:
            find_device(device)
        _connect(self._ray, address)
        found: dict[str, float] = self._ray.cluster_resources()
        resources = resources.completed(device, found.get("CPU", 0.0), found.get("GPU", 0.0))
        assert resources.cpus is not None
        assert resources.gpus is not None
        self._check_room(address, resources.cpus, resources.gpus)
        # Ray hides all GPUs that a job did not ask for, so that the first visible one is the right one.
        self.device, self.num_threads = resources.device(device), resources.cpus
        # Failures are counted and reported by whoever submits, for all executors alike; Ray retries nothing itself.
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


def _import_ray() -> Any:
    # Without these, Ray reports its use to its makers and warns of defaults that are going to change.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise InputError(
            "Ray is not installed. Install it: pip install 'alewm[sweep]'; or give --jobs N, which runs N processes on "
            "this machine without it."
        ) from None
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
    """Ray itself tries for minutes before it gives up."""
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
