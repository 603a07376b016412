"""A headless Chromium, and a view of the page that fails a test if the browser reports any problem."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.support.waiting import MINUTES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, ViewportSize

LONGEST_WAIT = 1_000 * MINUTES  # milliseconds
_OPTIONS = (
    "--no-sandbox",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # requests to other hosts fail
    "--renderer-process-limit=1",  # pages of a context share the process and its compiled scripts
)
AXE = Path(__file__).parents[1] / "web" / "vendor" / "axe.min.js"
_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation",
    (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
_RULES = """
async (only) => (await axe.run(document, {resultTypes: ["violations"], ...only})).violations.map(
    ({id, nodes}) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).slice(0, 3).join("; ")}`)
"""


_shared: dict[tuple[Browser, bool], BrowserContext] = {}


def find_chromium() -> str | None:
    """Return the path of the Chromium of this machine; None if there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=find_chromium(), args=_OPTIONS)


@dataclass
class View:
    """A page in the browser, and the problems that the browser reported."""

    page: Page
    origin: str
    problems: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(self.origin + path)

    def wait_for_picture(self) -> None:
        self.page.wait_for_selector("#picture svg .node")

    def axe(self, *, only_contrast: bool = False) -> list[str]:
        self.page.evaluate(AXE.read_text("utf-8"))
        found: list[str] = self.page.evaluate(_RULES, {"runOnly": ["color-contrast"]} if only_contrast else {})
        return found

    def width_overflow(self) -> int:
        overflow: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return overflow


@contextmanager
def view(
    browser: Browser,
    url: str,
    *,
    own_context: bool = False,
    java_script_enabled: bool = True,
    viewport: ViewportSize | None = None,
    **media: Any,
) -> Iterator[View]:
    """Open a page; `media` are arguments of `emulate_media`. At the end, raises AssertionError for errors,
    violations of the policy, and requests to any other origin.

    Views share a browser context unless one has its `own_context`. A new context costs as much as the rest of a view,
    since it has no compiled scripts. The page stores nothing in it, and each server is a separate origin.
    """
    origin = url.rstrip("/")
    make = _make_context if own_context else _shared_context
    context = make(browser, java_script_enabled=java_script_enabled)
    before = context.pages
    page = context.new_page()
    page.set_viewport_size(viewport or {"width": 1360, "height": 860})
    page.emulate_media(**media)
    seen = View(page, origin)

    def watch_request(request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(origin).netloc and not request.url.startswith(("data:", "blob:")):
            seen.problems.append(f"request to {request.url}")

    def watch_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            seen.problems.append(f"console: {message.text} ({message.location.get('url')})")

    page.on("request", watch_request)
    page.on("console", watch_console)
    page.on("pageerror", lambda error: seen.problems.append(f"error: {error}"))
    try:
        yield seen
        if java_script_enabled:
            seen.problems += page.evaluate("window.violations")
        assert seen.problems == [], seen.problems
    finally:
        for one in context.pages:
            if one not in before:
                one.close()
        if own_context:
            context.close()


def _make_context(browser: Browser, *, java_script_enabled: bool) -> BrowserContext:
    made = browser.new_context(java_script_enabled=java_script_enabled)
    made.set_default_timeout(LONGEST_WAIT)
    made.add_init_script(_VIOLATIONS)
    return made


def _shared_context(browser: Browser, *, java_script_enabled: bool) -> BrowserContext:
    if (browser, java_script_enabled) not in _shared:
        made = _shared[browser, java_script_enabled] = _make_context(browser, java_script_enabled=java_script_enabled)
        made.new_page()  # without any page a context would lose its process
    return _shared[browser, java_script_enabled]
