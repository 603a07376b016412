"""Records the story of the demo as `docs/figures/story.gif`: `python -m tests.web.film`, some four minutes."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from tests.web.browser import launch, view
from tests.web.screenshots import FIGURES
from tests.web.test_demo import Demo, demo_web

if TYPE_CHECKING:
    from playwright.sync_api import Page

_STEPS = 9
_SIZE = {"width": 1080, "height": 720}
_SHOWN = 840, 560  # pixels of the film
_COLORS = 128
_FRAMES, _PAUSE_MS, _FRAME_MS = 4, 2_500, 1_400  # of a step; between two; how long each is shown
_CAPTION = """
(text) => {
    const bar = document.createElement("div");
    bar.textContent = text;
    Object.assign(bar.style, {position: "fixed", inset: "auto 0 0 0", padding: "14px 24px", font: "600 19px sans-serif",
        background: "#16181d", color: "#fff", zIndex: "1000"});
    document.body.append(bar);
}
"""


def frames(page: Page, demo: Demo) -> Iterator[Image.Image]:
    """Yield what the page shows of each step, with the step below it."""
    with ThreadPoolExecutor(1) as pool:
        step = demo.find(r"^(1\. .*)$")
        for number in range(2, _STEPS + 2):
            url = demo.find(r"Look at (http://\S+)$")
            following = pool.submit(demo.find, rf"^({number}\. .*)$" if number <= _STEPS else "(The story is over)")
            for _ in range(_FRAMES):
                page.goto(re.sub(r"#.*", "", url))
                page.evaluate(_CAPTION, step)
                page.wait_for_timeout(_PAUSE_MS)
                yield Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize(_SHOWN, Image.Resampling.LANCZOS)
                if following.done():
                    break
            step = following.result()


def main() -> None:
    """Write the film."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - tests import this package without it

    with (
        tempfile.TemporaryDirectory() as directory,
        sync_playwright() as playwright,
        demo_web(Path(directory), "--story", "--pace", "2") as demo,
    ):
        browser = launch(playwright)
        url = demo.find(r"The page is at (\S+)$")
        with view(browser, url, viewport=_SIZE, reduced_motion="reduce") as seen:
            taken = [
                one.quantize(_COLORS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
                for one in frames(seen.page, demo)
            ]
        browser.close()
    file = FIGURES / "story.gif"
    taken[0].save(file, save_all=True, append_images=taken[1:], duration=_FRAME_MS, loop=0, optimize=True)
    print(f"{file.name}: {len(taken)} frames, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
