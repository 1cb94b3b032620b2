"""Windows per second of the loader; for gzip with every decoder there is, of which Python's own is the reference."""

import tempfile
import time
from pathlib import Path

from alewm.data.codec import Compression
from alewm.data.decoders import all_inflaters, fastest_inflater
from alewm.data.frames import MappedFrames, chunk_table
from alewm.data.loader import LoaderConfig, WindowLoader
from alewm.data.normalize import ActionStatistics
from alewm.data.store import EpisodeStore
from alewm.envs.collection import collect_task
from alewm.errors import InputError
from alewm.workers import num_available_cores
from alewm_lab.benchmarks.timing import print_line


def bench_loader(
    *,
    data: Path | None,
    episodes: int,
    image_size: int | None,
    compression: str,
    batch: int,
    batches: int,
    threads: int,
) -> None:
    """Prints windows per second; without `data`, Two-Room episodes are recorded for the occasion."""
    if batches < 1:
        raise InputError(f"--batches must be at least 1, got {batches}.")
    with tempfile.TemporaryDirectory() as folder:
        path = data or Path(folder) / "episodes.h5"
        if data is None:
            chosen = Compression(compression)
            collect_task("two-room", path, num_episodes=episodes, seed=0, image_size=image_size, compression=chosen)
        with EpisodeStore.open(path) as store:
            _measure(store, batch, batches, threads or num_available_cores(), path.stat().st_size)


def _measure(store: EpisodeStore, batch: int, batches: int, threads: int, num_bytes: int) -> None:
    statistics = ActionStatistics.fit(store.actions)
    config = LoaderConfig(batch_size=batch, num_threads=threads)
    rows = {}
    with WindowLoader(store, range(store.num_episodes), statistics, config) as loader:
        table, description = chunk_table(store.pixels), loader.frames.description
        rows["HDF5" if isinstance(table, str) else table.decoder.library] = _rate(loader, batches)
        if not isinstance(table, str) and table.decoder is fastest_inflater():
            for inflater in all_inflaters()[1:]:
                loader.frames = MappedFrames(store, table, inflater)
                rows[inflater.library] = _rate(loader, batches)
    size = store.frame_shape[0]
    print(f"{store.num_episodes:,} episodes, windows of 4 frames of {size} x {size}, batch {batch}, {threads} threads")
    print(f"{'decoder':<12}{'windows/s':>12}{'frames/s':>12}")
    for library, rate in rows.items():
        reference = "  (reference)" if library == "zlib" else ""
        print(f"{library:<12}{rate:>12,.0f}{4 * rate:>12,.0f}{reference}")
    print(f"{description}; {num_bytes / 1e6:,.1f} MB, {num_bytes / store.num_frames:,.0f} bytes per frame")
    print_line(
        "loader",
        episodes=store.num_episodes,
        frame_size=size,
        batch=batch,
        threads=threads,
        windows_per_second=rows,
        file_bytes=num_bytes,
        bytes_per_frame=num_bytes / store.num_frames,
    )


def _rate(loader: WindowLoader, num_batches: int) -> float:
    batches = loader.forever()
    for _ in range(loader.config.prefetch_batches + 2):  # until all memory has been used once: fresh pages cost time
        next(batches).release()
    began = time.perf_counter()
    for _ in range(num_batches):
        next(batches).release()
    seconds = time.perf_counter() - began
    batches.close()
    return num_batches * loader.config.batch_size / seconds
