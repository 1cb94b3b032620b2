"""The picture of what each prefix keeps: held-out frames of several runs, recorded and decoded from every capacity.

`python -m alewm_lab.publishing.prefixes RUN ... docs/images/prefixes.webp` draws it from the decoders of these runs
(`alewm decode RUN`), the first two of their example frames each, and prints the errors that the caption has.
"""

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from alewm.errors import InputError
from alewm.evaluation.decoder import DECODER, EXAMPLES, FITTED_DECODER, NUM_EXAMPLES
from alewm.files import read_object

FRAMES = 2
"""Rows of each run."""
CELL, LEFT, TOP, GAP = 112, 74, 24, 10
"""Pixels of a frame, beside and above the frames, and between runs."""
FONT = ImageFont.load_default(size=14)


def picture(runs: list[Path]) -> Image.Image:
    """All runs below each other; they must have the same capacities."""
    described = [FITTED_DECODER.describe(run / DECODER) for run in runs]
    supports = {tuple(each["config"]["capacities"]) for each in described}
    if len(supports) > 1:
        raise InputError(f"The runs have different capacities: {' and '.join(map(str, sorted(supports)))}.")
    heads = ["recorded", *(f"k = {k}" for k in supports.pop())]
    block = FRAMES * CELL + GAP
    sheet = Image.new("RGB", (LEFT + len(heads) * CELL, TOP + len(runs) * block - GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for column, head in enumerate(heads):
        draw.text((LEFT + (column + 0.5) * CELL, TOP / 2), head, fill="black", font=FONT, anchor="mm")
    for row, run in enumerate(runs):
        with Image.open(run / DECODER / EXAMPLES) as examples:
            own = examples.convert("RGB").crop((0, 0, examples.width, examples.height * FRAMES // NUM_EXAMPLES))
        top = TOP + row * block
        sheet.paste(own.resize((len(heads) * CELL, FRAMES * CELL), Image.Resampling.NEAREST), (LEFT, top))
        task = str(read_object(run / "config.json")["task"])
        draw.text((LEFT - 8, top + FRAMES * CELL / 2), task, fill="black", font=FONT, anchor="rm")
    return sheet


def main(arguments: list[str]) -> None:
    """Draw the picture and print the errors."""
    *runs, out = map(Path, arguments)
    picture(runs).save(out, quality=88, method=6)
    for run in runs:
        about = FITTED_DECODER.describe(run / DECODER)
        errors = ", ".join(f"{100 * error:.1f} % at k = {k}" for k, error in about["validation_error"].items())
        print(f"{run.name}: {errors} ({about['settings']['num_updates']} updates)")
    print(out)


if __name__ == "__main__":
    main(sys.argv[1:])
