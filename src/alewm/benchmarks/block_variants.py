"""The training update with plain and with fused blocks of the encoder, each in a process of its own.

A process in which recording a CUDA graph failed cannot be trusted with the next measurement; so one failure costs one
row.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from alewm.benchmarks.timing import print_line
from alewm.errors import InputError


def bench_block_variants(
    *,
    encoder_blocks: Sequence[str],
    deterministic: bool,
    profile: bool,
    reference: bool,
    preset_name: str,
    **options: Any,
) -> None:
    """Prints milliseconds and memory of each variant, or the last line of what went wrong."""
    if not encoder_blocks:
        raise InputError("--encoder-blocks needs at least one of auto, plain and fused.")
    flags = [f"--preset={preset_name}", *(f"--{name}={value}" for name, value in options.items())]
    flags += ["--deterministic"] * deterministic + ["--reference"] * reference + ["--profile"] * profile
    rows: dict[str, dict[str, Any]] = {}
    print(f"{'blocks':<8}{'ms':>9}{'ratio':>8}{'GiB':>8}  updates")
    for which in encoder_blocks:
        row = rows[which] = _measured([*flags, f"--encoder-blocks={which}"], shows=profile)
        if "error" in row:
            print(f"{which:<8}{'-':>9}{'-':>8}{'-':>8}  {row['error']}", flush=True)
            continue
        first = next(found["milliseconds"] for found in rows.values() if "error" not in found)
        peak = "-" if row["peak_mebibytes"] is None else f"{row['peak_mebibytes'] / 1024:.1f}"
        ratio = f"{first / row['milliseconds']:.2f}x"
        print(f"{which:<8}{row['milliseconds']:>9.2f}{ratio:>8}{peak:>8}  {row['updates']}", flush=True)
    print_line("train-step", variants=rows, preset=preset_name, deterministic=deterministic, **options)


def _measured(flags: Sequence[str], *, shows: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "alewm", "bench", "train-step", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return {"error": said[-1] if said else f"status {done.returncode}"}
    *table, last = done.stdout.splitlines()
    if shows:
        print("\n".join(table))
    line = json.loads(last)
    return {name: line[name] for name in ("milliseconds", "peak_mebibytes", "updates", "encoder_blocks", "rows")}
