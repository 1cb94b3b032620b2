"""Flags that several commands have, under one name each."""

from typing import Annotated, Literal

import tyro

PresetName = Annotated[str, tyro.conf.arg(name="preset")]
"""`--preset`."""

Filter = Annotated[Literal["gzip", "zstd"], tyro.conf.arg(name="filter")]
"""`--filter`, how frames are compressed."""

BatchSize = Annotated[int, tyro.conf.arg(name="batch-size", aliases=("--batch",))]
"""`--batch-size`, as for `alewm train`; benchmarks that were published have the short form."""
