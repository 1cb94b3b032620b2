"""What one job takes of a machine."""

from dataclasses import dataclass, replace

from alewm.errors import InputError


@dataclass(frozen=True)
class Share:
    """Cores and GPUs of one job; where a number is not given, the executor decides by what there is."""

    cpus: int | None = None
    """Cores, for arithmetic and for decoding frames."""
    gpus: float | None = None
    """GPUs, or a fraction of one; 0 keeps it on the CPU."""
    ranks: int = 1
    """Processes that share every batch of one model, each with a GPU of its own where there are GPUs."""

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise InputError(f"--ranks-per-trial is a number of processes of 1 or more, got {self.ranks}.")
        if self.cpus is not None and self.cpus < 1:
            raise InputError(f"--cpus-per-trial is a number of cores of 1 or more, got {self.cpus}.")
        if self.gpus is None:
            return
        if self.gpus < 0 or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise InputError(f"--gpus-per-trial is a whole number or a fraction of one, got {self.gpus:g}.")
        if self.gpus and self.ranks > 1 and self.gpus != self.ranks:
            raise InputError(
                f"{self.ranks} processes per trial need as many GPUs, but --gpus-per-trial is {self.gpus:g}. Leave it "
                f"out."
            )

    def completed(self, device: str, num_cpus: float, num_gpus: float) -> "Share":
        """The share with both numbers given, on machines that have so many cores and GPUs in all.

        Unless asked otherwise a job has a GPU for each of its ranks where there are GPUs, and as many cores as come
        with them; where there are none, a core per rank.
        """
        gpus = self.gpus
        if gpus is None:
            gpus = float(self.ranks) if device.startswith("cuda") or (device == "auto" and num_gpus > 0) else 0.0
        even = int(num_cpus / num_gpus * gpus) if num_gpus else self.ranks
        return replace(self, gpus=gpus, cpus=self.cpus or max(even, self.ranks))

    def device(self, asked: str) -> str:
        """The name of the device to compute on, where `asked` may be auto: without a GPU, the CPU."""
        if self.gpus != 0:
            return asked
        if asked.startswith("cuda"):
            raise InputError(f"--device {asked} needs a GPU, but --gpus-per-trial is 0. Leave one of them out.")
        return "cpu" if asked == "auto" else asked
