"""A headless Chromium, and a view of the page that fails a test for whatever a browser complains about."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route

LONGEST_WAIT = 60_000  # milliseconds until a test fails: four processes share the two cores of CI
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation",
    (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
_RULES = """
async (only) => (await axe.run(document, {resultTypes: ["violations"], ...only})).violations.map(
    ({id, nodes}) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).slice(0, 3).join("; ")}`)
"""


def find_chromium() -> str | None:
    """Return the path of the Chromium of this machine; None if there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@dataclass
class View:
    """A page in the browser, and what is wrong with it."""

    page: Page
    origin: str
    problems: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Go to a path of the page."""
        self.page.goto(self.origin + path)

    def wait_for_picture(self) -> None:
        """Wait until the picture is drawn."""
        self.page.wait_for_selector("#picture svg .node")

    def axe(self, *, only_contrast: bool = False) -> list[str]:
        """Return what axe-core finds."""
        self.page.evaluate(AXE.read_text("utf-8"))
        found: list[str] = self.page.evaluate(_RULES, {"runOnly": ["color-contrast"]} if only_contrast else {})
        return found

    def width_overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        overflow: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return overflow


@contextmanager
def view(browser: Browser, url: str, **context: Any) -> Iterator[View]:
    """Open a browser context. At the end, raises AssertionError for errors, violations of the policy, and requests
    to any other origin, which are stopped.
    """
    origin = url.rstrip("/")
    opened = browser.new_context(**{"viewport": {"width": 1360, "height": 860}, **context})
    opened.set_default_timeout(LONGEST_WAIT)
    opened.add_init_script(_VIOLATIONS)
    page = opened.new_page()
    seen = View(page, origin)

    def watch_route(route: Route, request: Request) -> None:
        if urlsplit(request.url).netloc == urlsplit(origin).netloc or request.url.startswith(("data:", "blob:")):
            route.continue_()
        else:
            seen.problems.append(f"request to {request.url}")
            route.abort()

    def watch_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            seen.problems.append(f"console: {message.text}")

    page.route("**/*", watch_route)
    page.on("console", watch_console)
    page.on("pageerror", lambda error: seen.problems.append(f"error: {error}"))
    try:
        yield seen
        if context.get("java_script_enabled", True):
            seen.problems += page.evaluate("window.violations")
        assert seen.problems == []
    finally:
        opened.close()
