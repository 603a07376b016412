"""The page in a real browser in the other theme, at other widths, and with 10,000 groups; the pictures of the docs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from docs import screenshots
from tests.support.browser import view
from tests.support.warehouses import make_warehouse
from tests.web import test_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_axe_finds_nothing_on_any_view_in_the_dark(chromium: Browser, url: str) -> None:
    test_browser.test_axe_finds_nothing_on_any_view(chromium, url, "dark")


def test_axe_finds_nothing_where_there_is_nothing_or_very_much_or_nothing_can_be_read(
    chromium: Browser, serve_page: Callable[..., str], huge: Path, tmp_path: Path
) -> None:
    empty, broken = make_warehouse(tmp_path / "empty"), make_warehouse(tmp_path / "broken")
    shutil.rmtree(broken / "groups")
    group_url = "/group?id=payments-enrichment&range=1h"
    states = {empty: ["/", "/alerts"], broken: ["/"], huge: ["/", group_url, f"{group_url}&tasks=all"]}
    for warehouse, paths in states.items():
        with view(chromium, serve_page(warehouse)) as seen:
            for path in paths:
                seen.open(path)
                seen.page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
                assert seen.axe() == [], (warehouse.name, path)


@pytest.mark.parametrize("width", [360, 768, 3840])
def test_no_view_is_wider_than_the_window(chromium: Browser, url: str, width: int) -> None:
    test_browser.test_no_view_is_wider_than_the_window(chromium, url, width)


def test_the_same_holds_in_a_wide_window(chromium: Browser, large_url: str) -> None:
    test_browser.test_a_large_topology_opens_where_something_is(chromium, large_url, 1360)


def test_the_pictures_of_the_documentation_can_be_taken(
    chromium: Browser, serve_page: Callable[..., str], tmp_path: Path
) -> None:
    taken = screenshots.take(chromium, serve_page(screenshots.write_clean_sample(tmp_path)), tmp_path)
    assert {file.name for file in taken} == {file.name for file in screenshots.FIGURES.glob("page-*.png")}
    assert all(file.stat().st_size > 20_000 for file in taken)
