"""Takes the pictures of the documentation: `python -m docs.screenshots` writes those in `docs/figures`."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.browser import view
from tests.support.sample_groups import NOW, RICH, clock, write_sample
from tests.support.warehouses import append

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
_DOWN = "fraud-detection"
_SIZE = {"width": 1200, "height": 800}


def write_clean_sample(directory: Path) -> Path:
    """Create the sample without the hostile names, and with a change before a group was down."""
    warehouse = write_sample(directory / "warehouse", NOW, hostile=False)
    change = {"kind": "config_changed", "old": "{}", "new": '{"streams.num.standby.replicas": "1"}'}
    of_group = {"cluster": "default", "group_id": _DOWN, "source_partition": 0, "offset": 1}
    append(warehouse, "group_events", {**of_group, **change, "at": NOW - timedelta(minutes=21)})
    return warehouse


def take(browser: Browser, url: str, directory: Path) -> list[Path]:
    """Write the pictures of a page on the sample, and return them."""
    taken = []
    for scheme in ("light", "dark"):
        with view(browser, url, color_scheme=scheme, viewport=_SIZE, reduced_motion="reduce") as seen:
            seen.open("/")
            seen.wait_for_frames()
            taken.append(directory / f"page-overview{_suffix(scheme)}.png")
            seen.page.screenshot(path=taken[-1])
            if scheme == "dark":
                continue
            seen.open(f"/group?id={_DOWN}&range=1h")
            seen.wait_for_frames()
            taken.append(directory / "page-questions.png")
            seen.page.screenshot(path=taken[-1], clip={"x": 0, "y": 0, "width": 1200, "height": 740})
            for name, instant in ((f"page-group{_suffix(scheme)}.png", ""), ("page-instant.png", "&at=700m")):
                seen.open(f"/group?id={RICH}&range=24h{instant}")
                seen.wait_for_picture()
                seen.wait_for_frames()
                taken.append(directory / name)
                bottom = seen.page.locator("#tasks").bounding_box()
                height = round(bottom["y"] + bottom["height"] + 15) if bottom else 1600
                clip = {"x": 0, "y": 0, "width": 1200, "height": height}
                seen.page.screenshot(path=taken[-1], full_page=True, clip=clip)
    return taken


def _suffix(scheme: str) -> str:
    return "" if scheme == "light" else f"-{scheme}"


def main() -> None:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    from streaming_app.web.access import Access  # noqa: PLC0415
    from streaming_app.web.page import PageServer  # noqa: PLC0415
    from tests.support.browser import launch  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        access = Access(listen="127.0.0.1:0")
        server = PageServer(write_clean_sample(Path(directory)), "default", access, clock=clock)
        server.start()
        browser = launch(playwright)
        for file in take(browser, server.url, FIGURES):
            print(f"{file.name}: {file.stat().st_size:,} bytes")
        browser.close()
        server.close()


if __name__ == "__main__":
    main()
