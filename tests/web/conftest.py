"""A warehouse with sample groups, the page on it, and a browser."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from streaming_app.web.access import PageAccess
from streaming_app.web.page import Page, PageServer
from streaming_app.web.source import SnapshotSource
from tests.web.browser import LONGEST_WAIT, find_chromium, launch
from tests.web.sample import write_sample


@pytest.fixture(scope="session")
def sample_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample warehouse: do not write to it. The last tests of a run see it half an hour old; none sees it new."""
    then = datetime.now(timezone.utc) - timedelta(minutes=12)
    return write_sample(tmp_path_factory.mktemp("page") / "warehouse", then)


@pytest.fixture
def sample(sample_template: Path, tmp_path: Path) -> Path:
    """A copy of the sample warehouse that a test may change."""
    return Path(shutil.copytree(sample_template, tmp_path / "warehouse"))


@pytest.fixture(scope="session")
def page(sample_template: Path) -> Page:
    """The application on the sample warehouse."""
    return Page(SnapshotSource(sample_template, "default"), PageAccess())


@pytest.fixture(scope="session")
def serve_page() -> Iterator[Callable[..., str]]:
    """Serves a warehouse at a free port until the end of the session, and returns the URL: `serve_page(path)`."""
    servers: list[tuple[PageServer, threading.Thread]] = []

    def serve(warehouse: Path, **settings: object) -> str:
        server = PageServer(warehouse, "default", PageAccess(**{"listen": "127.0.0.1:0", **settings}))
        thread = threading.Thread(target=server.run, name="page", daemon=True)
        thread.start()
        deadline = time.monotonic() + 60
        while not server.is_started and time.monotonic() < deadline:
            time.sleep(0.01)
        servers.append((server, thread))
        return server.url

    yield serve
    for server, _ in servers:
        server.stop()
    for _, thread in servers:
        thread.join(5)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless Chromium that all tests share; without one the test is skipped."""
    if find_chromium() is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    expect.set_options(timeout=LONGEST_WAIT)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()
