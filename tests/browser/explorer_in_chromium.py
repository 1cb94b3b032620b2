"""The explorer in a real Chromium: click, slide, plan, see success, on a desk and on a phone, with good and bad runs.

Run by `make browser`, not by `make test`: it needs Chromium, the extra `explore` and playwright.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect, sync_playwright

SHIPPED = Path(__file__).parents[2] / "pretrained"
ALEWM, LEWM = SHIPPED / "two-room-tiny", SHIPPED / "two-room-tiny-lewm"
CHROMIUM = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
WIDTHS = (1280, 390)
pytestmark = pytest.mark.filterwarnings("default")  # what other packages warn of while serving is not ours


@pytest.fixture(scope="module")
def browser():
    assert CHROMIUM, "Chromium must be installed: apt-get install chromium"
    with sync_playwright() as player:
        opened = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """Runs `alewm explore` and gives the address that it prints; the server itself may connect to this machine only."""
    folder = tmp_path_factory.mktemp("connections")
    (folder / "sitecustomize.py").write_text(LOGS_CONNECTIONS)
    log = folder / "log.txt"

    @contextmanager
    def serve(*arguments):
        command = [sys.executable, "-m", "alewm", "explore", *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": str(folder), "CONNECTIONS": str(log)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
            try:
                yield server.stdout.readline().strip()
            finally:
                server.terminate()
        elsewhere = [line for line in log.read_text().splitlines() if not line.startswith(("127.0.0.1", "localhost"))]
        assert not elsewhere

    return serve


LOGS_CONNECTIONS = """
import os, sys

def hook(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple) or event == "socket.getaddrinfo":
        host = arguments[1][0] if event == "socket.connect" else arguments[0]
        with open(os.environ["CONNECTIONS"], "a") as file:
            file.write(f"{host} {event}\\n")

sys.addaudithook(hook)
"""


@pytest.fixture(scope="module")
def address(serving):
    with serving(ALEWM, LEWM) as address:
        yield address


@pytest.fixture
def visit(browser):
    """Opens a page; at the end, nothing may have been asked of elsewhere."""
    pages = []

    def visit(address, width=1280):
        page = browser.new_page(viewport={"width": width, "height": 900})
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        pages.append((page, address, asked))
        return page

    yield visit
    for page, address, asked in pages:
        elsewhere = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
        assert not elsewhere
        page.close()


def ready(page):
    expect(page.locator("#view-0 .bars")).to_be_visible(timeout=60_000)


def plan(page):
    page.click("#plan")
    return page.locator("#view-0 .outcome", has_text="steps")


@pytest.mark.parametrize("width", WIDTHS)
def test_two_runs_plan_and_the_goal_is_reached(visit, address, width):
    page = visit(address, width)
    ready(page)
    began = time.monotonic()
    page.click("#plan")
    expect(page.locator("#view-0 .outcome")).to_be_visible()
    assert time.monotonic() - began < 30, "far above the second that an idle machine takes"
    expect(page.locator("#view-0 .outcome")).to_contain_text("Reached the goal", timeout=120_000)
    expect(page.locator("#view-1 .outcome")).to_contain_text("steps", timeout=120_000)
    assert page.locator("#view-0 .strip img").count() >= 6, "imagined frames, decoded"
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"


def test_a_start_and_a_goal_are_clicked(visit, address):
    page = visit(address)
    ready(page)
    before = page.locator("#start img").first.get_attribute("src")
    page.locator("#start img").first.click(position={"x": 100, "y": 150})
    expect(page.locator("#start img").first).not_to_have_attribute("src", before, timeout=30_000)
    before = page.locator("#goal img").first.get_attribute("src")
    page.locator("#goal img").first.click(position={"x": 90, "y": 100})
    expect(page.locator("#goal img").first).not_to_have_attribute("src", before, timeout=30_000)
    expect(plan(page)).to_be_visible(timeout=120_000)


def test_the_capacity_slides_and_the_timeline_scrubs(visit, address):
    page = visit(address)
    ready(page)
    page.locator("#capacity input[type=number]").fill("4")
    page.locator("#capacity input[type=number]").press("Enter")
    expect(plan(page)).to_be_visible(timeout=120_000)
    expect(page.locator("#view-0")).to_contain_text("capacity 16")
    page.locator("#timeline input[type=number]").fill("1")
    page.locator("#timeline input[type=number]").press("Enter")
    expect(page.locator("#view-0")).to_contain_text("real, step 1", timeout=30_000)


def test_any_evaluated_episode_is_one_click_away(visit, address):
    page = visit(address)
    ready(page)
    page.click("#replay")
    expect(page.locator("#view-0 .outcome")).to_contain_text("The evaluation reached", timeout=60_000)
    chosen = page.locator("#pair input").input_value()
    plot = page.locator("#distances-0 img").first
    box = plot.bounding_box()
    plot.click(position={"x": box["width"] * 0.8, "y": box["height"] * 0.15})
    expect(page.locator("#pair input")).not_to_have_value(chosen, timeout=30_000)
    assert "missed" in page.locator("#pair input").input_value()


@pytest.fixture
def damaged(tmp_path):
    for name in ("broken", "bare", "young"):
        shutil.copytree(ALEWM, tmp_path / name)
    weights = next((tmp_path / "broken").glob("checkpoints/*/*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:1000])
    (tmp_path / "bare/pairs.safetensors").unlink()
    (tmp_path / "young/result.json").unlink()
    return tmp_path


def test_a_broken_run_says_so_and_the_other_one_works(visit, serving, damaged):
    with serving(damaged / "broken", ALEWM) as address:
        page = visit(address)
        expect(page.get_by_text("broken cannot be opened")).to_be_visible(timeout=60_000)
        ready(page)
        expect(plan(page)).to_be_visible(timeout=120_000)
    with serving(damaged / "broken") as address:
        alone = visit(address)
        expect(alone.get_by_text("There is nothing to plan with here")).to_be_visible(timeout=60_000)


@pytest.mark.parametrize(("name", "said"), [("bare", "No held-out pairs"), ("young", "Still training: update 3,300")])
def test_a_run_without_data_and_one_in_training_plan(visit, serving, damaged, name, said):
    with serving(damaged / name) as address:
        page = visit(address)
        expect(page.get_by_text(said)).to_be_visible(timeout=60_000)
        ready(page)
        expect(plan(page)).to_be_visible(timeout=120_000)


FEW = ("--max-steps", 30, "--draw-every", 5, "--image-size", 28, "--jobs", 1)
TASKS = {
    "push-t": (60, ()),
    "reacher": (10, ("--drawing", "mujoco")),  # OpenGL, whose contexts belong to a thread
    "cube": (10, ("--drawing", "batched")),
}
"""Episodes that are recorded of each task, and how."""


@pytest.fixture(scope="module", params=TASKS)
def other_task(request, tmp_path_factory):
    """A run of another task, hardly trained, with a decoder and an evaluation."""
    folder, (episodes, options) = tmp_path_factory.mktemp(request.param), TASKS[request.param]
    data, run = folder / "data.h5", folder / "run"
    train = ("--data", data, "--split", "episode", "--steps", 4, "--batch-size", 4, "--threads", 1)
    for command in (
        ("collect", request.param, "--episodes", episodes, *FEW, *options, "--out", data),
        ("train", request.param, "--width", "tiny", *train, "--out", run),
        ("decode", run, "--updates", 5),
        ("evaluate", run, "--animations", 0),
    ):
        subprocess.run([sys.executable, "-m", "alewm", *map(str, command)], check=True)
    return run


@pytest.mark.parametrize("width", WIDTHS)
def test_sliders_of_the_state_place_start_and_goal_in_the_other_tasks(visit, serving, other_task, width):
    with serving(other_task) as address:
        page = visit(address, width)
        ready(page)
        page.get_by_role("button", name="State").click()
        number = page.locator("#state-start-0 input[type=number]")
        slider = page.locator("#state-start-0 input[type=range]")
        low, high, value = (
            float(slider.get_attribute("min")),
            float(slider.get_attribute("max")),
            number.input_value(),
        )
        expect(number).not_to_have_value("")
        picture = page.locator("#start img").first
        before, chosen = picture.get_attribute("src"), page.locator("#pair input").input_value()
        other = low if float(value) - low > high - float(value) else high
        number.fill(f"{other:.2f}")
        expect(picture).not_to_have_attribute("src", before, timeout=30_000)
        expect(page.locator("#pair input")).not_to_have_value(chosen)
        expect(plan(page)).to_be_visible(timeout=120_000)
        assert page.locator("#view-0 .strip img").count() >= 6, "imagined frames, decoded"
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
        page.locator("#pair input").click()
        page.get_by_role("option").first.click()
        expect(number).to_have_value(value, timeout=30_000)
        page.click("#replay")
        expect(page.locator("#view-0 .outcome")).to_contain_text("The evaluation", timeout=60_000)


def refused(url, **headers):
    with pytest.raises(HTTPError) as error:
        urlopen(Request(url, headers=headers))
    with error.value as answer:
        return answer.code


def test_other_origins_hosts_and_files_are_refused(visit, address, tmp_path):
    assert refused(address, Origin="https://evil.example") == 403
    assert refused(address, Host="evil.example") == 403
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    assert refused(f"{address}gradio_api/file={secret}") in (403, 404)
    assert refused(f"{address}gradio_api/file={ALEWM}/config.json") in (403, 404)


def test_a_page_of_another_server_cannot_read_it(browser, address):
    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<!doctype html>")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    read = "url => fetch(url).then(answer => answer.text(), error => 'refused')"
    assert page.evaluate(read, f"{address}config") in ("refused", "The explorer answers its own page only.")
    page.close()
    server.shutdown()
    server.server_close()


def test_a_public_page_limits_the_search_and_serves_no_file(visit, serving):
    with serving(ALEWM, "--public") as address:
        local = address.replace("0.0.0.0", "127.0.0.1")
        page = visit(local)
        ready(page)
        assert page.locator("#candidates input[type=range]").get_attribute("max") == "300"
        assert page.locator("#iterations input[type=range]").get_attribute("max") == "30"
        assert refused(f"{local}gradio_api/file={ALEWM}/config.json") in (403, 404)
        assert page.locator("input[type=file]").count() == 0, "nothing can be sent to it"
