"""The page in a real browser while its group changes, its server is away, or the machine sleeps."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from streaming_app.sandbox.child_process import reserve_port
from streaming_app.web.access import Access
from streaming_app.web.page import PageServer
from streaming_app.web.window import url_time
from tests.support.browser import view
from tests.support.sample_groups import NOW, beat, clock, group, replace_group
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_dozen_tabs_stay_live(chromium: Browser, serve_page: Callable[..., str], sample: Path) -> None:
    """A browser opens six connections to a server at most."""
    with view(chromium, serve_page(sample)) as seen:
        seen.open("/?q=payments-enrichment")
        tabs = [seen.page, *(seen.page.context.new_page() for _ in range(11))]
        for tab in tabs[1:]:
            tab.goto(seen.page.url)
            tab.wait_for_selector("tbody tr:has-text('payments-enrichment')")
        replace_group(sample, group("payments-enrichment", "NotReady", NOW, 0))
        for tab in tabs:
            tab.wait_for_selector("tbody tr:has-text('NotReady')")
        for tab in tabs[1:]:
            tab.close()
        replace_group(sample, group("payments-enrichment", "Assigning", NOW, 0))
        seen.page.wait_for_selector("tbody tr:has-text('Assigning')")


def test_a_page_catches_up_when_its_server_is_back(
    chromium: Browser, serve_page: Callable[..., str], sample: Path
) -> None:
    """As after a sleep: the connection is gone, and the tables have changed meanwhile."""
    with reserve_port() as kept:  # and until the end nobody else gets it
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # but for the server
        listen = f"127.0.0.1:{kept.getsockname()[1]}"
        server = PageServer(sample, "default", Access(listen=listen), clock=clock)
        server.start()
        assert wait_until(lambda: server._server.started)
        with view(chromium, server.url) as seen:
            beat(sample, NOW)
            seen.open("/?q=payments-enrichment")
            seen_at = NOW - timedelta(seconds=1)
            beat(sample, seen_at)  # the page asks for it
            times = seen.page.locator("#success time")
            expect(times).to_have_attribute("datetime", re.compile(f"^{url_time(seen_at)[:-1]}"))
            server.stop()
            server._thread.join()
            expect(seen.page.locator("#connection")).not_to_have_text("")
            expect(seen.page.locator("main")).to_have_css("filter", re.compile("grayscale"))
            replace_group(sample, group("payments-enrichment", "NotReady", NOW, 0))
            beat(sample, NOW)
            serve_page(sample, listen=listen)
            seen.page.wait_for_selector("tbody tr:has-text('NotReady')")
            expect(seen.page.locator("#connection")).to_have_text("")
            expect(seen.page.locator("main")).to_have_css("filter", "none")
            seen.problems = [one for one in seen.problems if "ERR_" not in one]


def test_a_change_appears_while_somebody_types(chromium: Browser, serve_page: Callable[..., str], sample: Path) -> None:
    with view(chromium, serve_page(sample)) as seen:
        seen.open("/")
        search = seen.page.get_by_label("Group", exact=True)
        search.press_sequentially("payments-e", delay=30)
        seen.page.wait_for_selector("tbody tr:has-text('payments-enrichment')")
        expect(seen.page.locator("tbody tr")).to_have_count(1)
        search.press("Home")
        replace_group(sample, group("payments-enrichment", "NotReady", NOW, 0))
        seen.page.wait_for_selector("tbody tr:has-text('NotReady')")
        search.press("x")
        assert search.input_value() == "xpayments-e"
        assert seen.page.evaluate("document.activeElement.name") == "q"


def test_a_change_keeps_what_is_open_selected_and_scrolled(
    chromium: Browser, serve_page: Callable[..., str], sample: Path
) -> None:
    with view(chromium, serve_page(sample)) as seen:
        seen.open("/group?id=fraud-detection")
        seen.wait_for_picture()
        seen.page.locator("details summary").first.click()
        seen.page.locator("#picture .node a").first.focus()
        seen.page.evaluate("scrollTo(0, 200)")
        drawn = seen.page.evaluate_handle("document.querySelector('#picture svg')")
        replace_group(sample, group("fraud-detection", "Stable", NOW, 0))
        seen.page.wait_for_selector("p.lead :text('Stable')")
        assert seen.page.locator("details").first.evaluate("one => one.open")
        assert abs(seen.page.evaluate("scrollY") - 200) < 150  # what is above may be shorter now
        assert drawn.evaluate("one => one.isConnected")
        assert seen.page.locator("#picture .node.selected").count() == 1
