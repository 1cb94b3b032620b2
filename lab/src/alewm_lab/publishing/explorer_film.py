"""Film and picture of the explorer: a start and a goal are clicked, both shipped models plan, the episode is scrubbed.

`python -m alewm_lab.publishing.explorer_film` writes `docs/images/explorer.webp` and `explorer.png`. It needs Chromium,
playwright and the extra `explore`, as `make browser` does.
"""

import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image

RUNS = ("pretrained/two-room-tiny", "pretrained/two-room-tiny-lewm")
OUT = Path("docs/images")
SIZE, FILM_WIDTH = (1280, 1010), 800
"""Pixels of the browser's window, and of the film's width."""
CLICKS = (("start", 0.24, 0.72), ("goal", 0.4, 0.42))
"""Where the pictures are clicked, as shares of their width and height."""


def record(page: Any) -> list[tuple[Image.Image, int]]:
    """Pictures of the page with the milliseconds that each is shown; the second one is of the first pair, planned."""
    shots: list[tuple[Image.Image, int]] = []

    def shoot(milliseconds: int) -> None:
        shots.append((Image.open(io.BytesIO(page.screenshot())).convert("RGB"), milliseconds))

    def plan() -> None:
        page.click("#plan")
        page.locator("#view-0 .strip").wait_for()
        ended = "[...document.querySelectorAll('.outcome')].filter(each => each.innerText.includes('steps'))"
        page.wait_for_function(f"count => {ended}.length === count", arg=len(RUNS))
        shoot(1500)

    page.locator("#view-0 .bars").wait_for()
    shoot(900)
    plan()
    for name, x, y in CLICKS:
        picture = page.locator(f"#{name} img").first
        before, box = picture.get_attribute("src"), picture.bounding_box()
        picture.click(position={"x": box["width"] * x, "y": box["height"] * y})
        changed = "([name, before]) => document.querySelector(`#${name} img`).src !== before"
        page.wait_for_function(changed, arg=[name, before])
        shoot(700)
    plan()
    number = page.locator("#timeline input[type=number]")
    last = int(number.input_value())
    for step in [*range(0, last, 3), last]:
        number.fill(str(step))
        page.get_by_text(f"real, step {step}", exact=True).first.wait_for()
        shoot(180)
    return [*shots, (shots[-1][0], 2000)]


def main() -> None:
    """Serve the page, record it and write both pictures."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "alewm", "explore", *RUNS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as player:
        assert server.stdout is not None
        try:
            browser = player.chromium.launch(
                executable_path=shutil.which("chromium") or shutil.which("chromium-browser"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
            page.goto(server.stdout.readline().strip())
            shots = record(page)
            browser.close()
        finally:
            server.terminate()
    last = shots[1][0]
    last.quantize(128).save(OUT / "explorer.png", optimize=True)
    height = FILM_WIDTH * last.height // last.width
    films = [shot.resize((FILM_WIDTH, height), Image.Resampling.LANCZOS) for shot, _ in shots]
    options: dict[str, Any] = {"duration": [shown for _, shown in shots], "loop": 0, "quality": 60, "method": 6}
    films[0].save(OUT / "explorer.webp", save_all=True, append_images=films[1:], **options)
    print(OUT / "explorer.webp")


if __name__ == "__main__":
    main()
