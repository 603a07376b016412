"""The page in a real browser: no request elsewhere, nothing that the policy forbids, accessible, by keyboard."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from streaming_app.text import duration
from streaming_app.web.window import url_time
from streaming_app.web.words import group_query
from tests.support.browser import View, view
from tests.support.sample_groups import HOSTILE, NOW, RICH, group, part, replace_group, rich_group, task, write_sample
from tests.support.warehouses import append
from tests.web.sample_others import CONSUMER

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def _numbers(text: str | None) -> list[float]:
    return [float(one) for one in re.findall(r"-?[\d.]+", text or "")]


VIEWS = {
    "overview": "/",
    "group": f"/group?id={RICH}",
    "instant": f"/group?id={RICH}&range=24h&at=700m",
    "other": f"/group?id={CONSUMER}",
    "alerts": "/alerts",
    "error": "/no-such-page",
}


@pytest.mark.parametrize("scheme", ["light"])  # and the other one in tests/long
def test_axe_finds_nothing_on_any_view(chromium: Browser, url: str, scheme: str) -> None:
    with view(chromium, url, color_scheme=scheme) as seen:
        for name, path in VIEWS.items():
            seen.open(path)
            if name in {"group", "instant"}:
                seen.wait_for_picture()
                seen.page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
            assert seen.axe(only_contrast=scheme == "dark") == [], name
            seen.problems = [one for one in seen.problems if "404" not in one]  # of the error page


def test_the_picture_is_followed_by_keyboard_searched_saved_and_opened_again_as_it_was(
    chromium: Browser, url: str
) -> None:
    with view(chromium, url) as seen:
        seen.open(f"/group?id={RICH}")
        seen.wait_for_picture()
        titles = seen.page.locator("#picture .node .title").all_text_contents()
        assert {"orders", "Subtopology 1", "…totals-repartition", "audit-.*"} <= {title.strip() for title in titles}
        title = seen.page.locator(".title", has_text=re.compile(r"^\s*orders\s*$"))
        orders = seen.page.locator("#picture .node", has=title)
        orders.locator("a").focus()
        seen.page.keyboard.press("ArrowRight")
        assert "Subtopology 0" in seen.page.evaluate("document.activeElement.textContent")
        assert "subtopology_id" in seen.page.evaluate("document.activeElement.getAttribute('href')")  # to its rows
        seen.page.keyboard.press("+")
        address = seen.page.url
        transform = _numbers(seen.page.locator("#picture svg > g").get_attribute("transform"))
        seen.page.goto("about:blank")
        seen.page.goto(address)
        seen.wait_for_picture()
        expect(seen.page.locator("#picture .node.selected .title")).to_have_text("Subtopology 0")
        reopened = _numbers(seen.page.locator("#picture svg > g").get_attribute("transform"))
        assert reopened == pytest.approx(transform, abs=0.01)
        seen.page.get_by_label("Find in the picture").fill("refund")
        assert seen.page.locator("#picture .node.match").count() == 2
        with seen.page.expect_download() as download:
            seen.page.get_by_role("button", name="Download SVG").click()
        assert "Subtopology 1" in Path(download.value.path()).read_text("utf-8")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_shown_and_drawn_as_text(chromium: Browser, url: str, name: str) -> None:
    with view(chromium, url) as seen:
        seen.open(f"/group?{group_query(name, at='10m')}")
        seen.wait_for_picture()
        seen.page.locator("#timeline").focus()
        seen.page.keyboard.press("Shift+ArrowLeft")
        assert seen.page.locator("#picture .node").count() == 4
        assert "no event of this group that is so old" in seen.page.inner_text(".picture-notes")
        assert seen.page.locator("b:has-text('alert'), #picture script").count() == 0
        assert seen.width_overflow() <= 0


def test_every_control_is_reached_by_tab(chromium: Browser, url: str) -> None:
    with view(chromium, url) as seen:
        seen.open("/")
        kinds = ("a[href]", "summary", "input:not([type=hidden])", "select", "[tabindex='0']")
        controls = seen.page.locator(", ".join(f"{kind}:visible" for kind in kinds)).count()
        reached = set()
        for _ in range(controls + 5):
            seen.page.keyboard.press("Tab")
            reached.add(seen.page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
            outline = seen.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none" or seen.page.evaluate("document.activeElement === document.body")
        assert len(reached) >= controls


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 groups, 40 of them with one cause, and one group with 1,000 tasks of which three are in trouble."""
    path = write_sample(tmp_path_factory.mktemp("huge") / "w", NOW, more=2_000, hostile=False)
    judged = {"cluster": "default", "verdict": "Stalled", "severity": "critical", "why": "broker 2 is away"}
    judged |= {"since": NOW - timedelta(minutes=20), "at": NOW, "judged_at": NOW}
    ids = [f"application-{number:05}" for number in range(40)]
    append(path, "group_health_history", *({**judged, "group_id": one} for one in ids))
    alert = {"cluster": "default", "rule": "StreamsGroupStalled", "severity": "critical", "cause": "broker_away:2"}
    alert |= {"since": judged["since"], "opened_at": judged["since"], "summary": "broker 2 is away"}
    append(path, "alerts", *({**alert, "alert_id": one, "group_id": one} for one in ids))
    common = {"cluster": "default", "group_id": "payments-enrichment", "topic": "in", "log_start_offset": 0, "lag": 5}
    ends = {
        "committed_offset": 0,
        "log_end_offset": 5,
        "offset_status": "OK",
        "observed_at": NOW - timedelta(minutes=9),
    }
    rows = [{**common, **ends, "partition": n, "lag_seconds": 4_000.0 * (n in {5, 500, 995})} for n in range(1_000)]
    append(path, "lag_history", *rows)
    append(path, "lag", *({**one, "task_id": f"0_{one['partition']}"} for one in rows))
    return path


def test_an_overview_of_two_thousand_groups_is_small_and_a_cause_unfolds_by_keyboard(
    chromium: Browser, serve_page: Callable[..., str], huge: Path
) -> None:
    with view(chromium, serve_page(huge), own_context=True) as seen:
        sizes: list[int] = []
        seen.page.on(
            "requestfinished",
            lambda one: sizes.append(sum(one.sizes()[f"response{part}Size"] for part in ("Body", "Headers"))),
        )
        seen.open("/")
        seen.page.wait_for_load_state("load")
        assert sum(sizes) < 200_000, sizes
        summary = seen.page.locator("details.incident summary")
        expect(summary).to_contain_text("40 groups, cause broker_away:2")
        summary.focus()
        seen.page.keyboard.press("Enter")
        expect(seen.page.get_by_role("link", name="application-00007")).to_be_visible()
        seen.page.get_by_role("link", name="All 40 groups with this cause").click()
        expect(seen.page.locator("tbody tr")).to_have_count(40)


@pytest.mark.parametrize("width", [320])  # others, also of the tests below, in tests/long
def test_no_view_is_wider_than_the_window(chromium: Browser, url: str, width: int) -> None:
    """320 pixels are those of a window of 1,280 at 400 %."""
    with view(chromium, url, viewport={"width": width, "height": 640}) as seen:
        for path in list(VIEWS.values())[:5]:
            seen.open(path)
            assert seen.width_overflow() <= 0, path


def test_the_timeline_is_used_by_keyboard(chromium: Browser, url: str) -> None:
    with view(chromium, url) as seen:
        seen.open(f"/group?id={RICH}&range=24h")
        slider = seen.page.get_by_role("slider", name="Instant")
        slider.focus()
        seen.page.keyboard.press("ArrowLeft")
        heading = seen.page.get_by_role("heading", name=re.compile("^At 20"))
        expect(heading).to_be_visible()
        before = heading.inner_text()
        seen.page.keyboard.press("Shift+ArrowLeft")
        expect(heading).not_to_have_text(before)  # after the pause after a key, and the answer
        seen.page.keyboard.press("+")
        expect(slider).to_have_attribute("data-selected", "")
        assert seen.page.evaluate("document.activeElement.id") == "timeline"
        seen.page.keyboard.press("Escape")
        expect(heading).to_have_count(0)
        seen.page.keyboard.press("Escape")
        expect(slider).not_to_have_attribute("data-selected", "")


def test_picture_and_tables_are_those_of_the_chosen_instant(
    chromium: Browser, serve_page: Callable[..., str], sample: Path
) -> None:
    """Two hours ago the group had four members, and read another topic."""
    newest = rich_group(NOW)["subtopologies"]
    topology = {"cluster": "default", "group_id": RICH, "topology_epoch": 0, "source_partition": 0}
    for number, minutes, parts in ((10, 1_000, [part("0", ["orders-of-old"])]), (11, 60, newest)):
        times = {"first_seen_at": NOW - timedelta(minutes=minutes), "offset": number}
        append(sample, "topologies", {**topology, **times, "topology_hash": str(number), "subtopologies": parts})
    samples = {
        "cluster": "default",
        "group_id": RICH,
        "topic": "orders-of-old",
        "log_start_offset": 0,
        "offset_status": "OK",
    }
    offsets = {"committed_offset": 1_000, "log_end_offset": 1_777, "lag": 777, "lag_seconds": 70.0}
    append(sample, "lag_history", {**samples, **offsets, "partition": 0, "observed_at": NOW - timedelta(minutes=121)})
    at = url_time(NOW - timedelta(minutes=120))
    with view(chromium, serve_page(sample)) as seen:
        nodes = seen.page.locator("#picture .node")
        seen.open(f"/group?{group_query(RICH, range='24h')}")
        seen.wait_for_picture()
        expect(nodes.filter(has_text="orders-of-old")).to_have_count(0)
        seen.page.get_by_label("Instant, UTC").fill(at)
        seen.page.get_by_role("button", name="Show").click()
        expect(nodes.filter(has_text="orders-of-old")).to_contain_text("lag 777 · 1 min 10 s")
        expect(nodes.filter(has_text="Subtopology 0")).to_contain_text("4 active")
        expect(nodes.filter(has_text="Subtopology 1")).to_have_count(0)
        assert "refunds" not in seen.page.inner_text("#topology table")
        assert "orders-of-old" in seen.page.get_by_role("region", name="Lag").inner_text()
        members = seen.page.get_by_role("region", name="Members").inner_text()
        assert "orders-1-StreamThread-1" in members
        assert "orders-2-StreamThread-1" not in members  # joined nine minutes ago
        for section in ("topology", "tasks", "lag", "members"):
            expect(seen.page.locator(f"#{section} h2")).to_contain_text(f"at {at[:10]} {at[11:19]}")
        seen.page.locator("#timeline").focus()
        seen.page.keyboard.press("Escape")
        expect(nodes.filter(has_text="Subtopology 1")).to_have_count(1)
        expect(seen.page.get_by_role("region", name="Lag")).not_to_contain_text("orders-of-old")


TROUBLES = {
    "payments-down": ("Down", 17, "no members since the deployment; 12,000 offsets wait in 8 partitions", 180),
    "payments-not-ready": (
        "Down",
        70,
        "NotReady since the deployment, it processes nothing: MISSING_SOURCE_TOPICS: Source topics cards are missing.",
        None,
    ),
    "payments-losing": ("Losing", 31, "retention deletes records that wait in 1 partition", 45),
    "payments-restoring": ("Restoring", 50, "4 tasks restore their state, and records will be lost before it ends", 20),
}
"""Group -> its verdict, for how many minutes, why, and in how many minutes records are lost."""
FIRST = {
    "which": "h1.group",
    "since when": ".verdict time[data-time]",
    "why": ".verdict strong",
    "what to do": "#answer-step dd",
    "the command": "#command",
    "what is lost": "#answer-lost dd",
    "what is known": "#answer-known dd",
}
_SEEN = """
([selectors, height]) => Object.fromEntries(Object.entries(selectors).map(([question, one]) => {
  const found = document.querySelector(one);
  const box = found?.getBoundingClientRect();
  const isSeen = box && box.height > 0 && box.top >= 0 && box.bottom <= height && box.right <= innerWidth;
  return [question, isSeen ? found.innerText : null];
}))
"""


@pytest.fixture(scope="module")
def troubled_url(serve_page: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of groups that are in trouble, each in another way, and of one of which nothing is known."""
    path = write_sample(tmp_path_factory.mktemp("troubled") / "w", NOW, hostile=False)
    change = {"kind": "config_changed", "old": "{}", "new": '{"streams.num.standby.replicas": "1"}', "offset": 1}
    for name, (verdict, minutes, why, loses_in) in TROUBLES.items():
        since, of_group = NOW - timedelta(minutes=minutes), {"cluster": "default", "group_id": name}
        append(path, "groups", group(name, "NotReady" if "NotReady" in why else "Stable", NOW, minutes))
        times = {"since": since, "judged_at": since, "inputs_at": NOW - timedelta(seconds=40)}
        losing = {"losing_at": NOW + timedelta(minutes=loses_in)} if loses_in else {}
        common = {"severity": "critical", **of_group}
        append(
            path,
            "group_health_history",
            {**common, "at": since, **times, **losing, "verdict": verdict, "why": why, "evidence": "{}"},
        )
        opened = {"alert_id": name, "opened_at": since, "since": since, "summary": f"{name}: {why}", "evidence": "{}"}
        rule = f"StreamsGroup{'Losing' if verdict == 'Restoring' else verdict}"
        append(path, "alerts", {**common, **opened, "rule": rule, "deliveries": []})
        append(path, "group_events", {**of_group, **change, "source_partition": 0, "at": since - timedelta(minutes=9)})
        offsets = {
            "lag": 9_000,
            "lag_seconds": 60.0 * minutes,
            "offset_status": "WAITS",
            "late_since": since,
            "task_id": "0_0",
            "observed_at": NOW,
        }
        append(path, "lag", {**of_group, **offsets, "topic": "cards", "partition": 0, "committed_offset": 1})
    append(path, "groups", group("of-no-verdict", "Stable", NOW, 5))
    return serve_page(path)


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_the_first_screen_of_a_group_in_trouble_answers_five_questions(
    chromium: Browser, troubled_url: str, width: int, height: int
) -> None:
    with view(chromium, troubled_url, viewport={"width": width, "height": height}) as seen:
        for name, (verdict, minutes, why, loses_in) in TROUBLES.items():
            seen.open(f"/group?id={name}")
            found = seen.page.evaluate(_SEEN, [FIRST, height])
            assert all(found.values()), (name, found)
            assert name in found["which"]
            assert verdict in found["which"]
            assert why in found["why"]
            assert ("records from" in found["what is lost"]) == (loses_in is not None)
            assert f"{duration(60 * minutes)}" in seen.page.inner_text(".verdict b")
            assert found["the command"].startswith(("streams-groups ", "kafka-"))
            said = seen.page.inner_text("main").split("Over time")[0]
            sentences = [one.strip() for one in re.split(r"[.:;]\s|\n", said) if len(one.strip()) > 25]
            assert not [one for one, times in Counter(sentences).items() if times > 1], name
            assert seen.width_overflow() <= 0
        seen.open("/group?id=of-no-verdict")
        assert "not known" in seen.page.inner_text("#answer-lost")
        assert seen.page.locator("#answer-who, #answer-step").count() == 0  # nobody says that no task is behind


def _deep(subtopologies: int = 33) -> list[dict[str, object]]:
    """Return a chain of subtopologies, with about twelve nodes each."""
    return [
        part(
            str(number),
            [f"in-{number}-{other}" for other in range(9)],
            [f"r-{number - 1}"] if number else [],
            [f"r-{number}"],
            [f"deep-s-{number}-changelog"],
        )
        for number in range(subtopologies)
    ]


@pytest.fixture(scope="module")
def large_url(serve_page: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a warehouse with a large topology, `deep`, of which a task is processed by nobody."""
    warehouse = tmp_path_factory.mktemp("large") / "warehouse"
    trouble = [task("m-0", "7_0"), task("m-0", "7_1", "standby")]
    write_sample(warehouse, NOW, hostile=False)
    replace_group(warehouse, group("deep", "Stable", NOW, 5, subtopologies=_deep(), assignments=trouble))
    return serve_page(warehouse)


_IN_SIGHT = """
() => {
  const stage = document.querySelector("#picture svg").getBoundingClientRect();
  return [...document.querySelectorAll("#picture .node")].filter((node) => {
    const box = node.getBoundingClientRect();
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    return x >= stage.left && x <= stage.right && y >= stage.top && y <= stage.bottom;
  }).map((node) => node.textContent);
}
"""


def _nodes_in_sight(seen: View) -> list[str]:
    """Return the texts of the nodes whose middle is within the picture's stage."""
    texts: list[str] = seen.page.evaluate(_IN_SIGHT)
    return texts


@pytest.mark.parametrize("width", [360])
def test_a_large_topology_opens_where_something_is(chromium: Browser, large_url: str, width: int) -> None:
    with view(chromium, large_url, viewport={"width": width, "height": 860}) as seen:
        for opened in ("", "#open=*"):
            seen.open("/alerts")
            seen.open(f"/group?id=deep{opened}")
            seen.wait_for_picture()
            assert _nodes_in_sight(seen), opened


def test_four_hundred_nodes_are_boxes_that_open_and_close_by_click_and_by_keyboard(
    chromium: Browser, large_url: str
) -> None:
    with view(chromium, large_url) as seen:
        seen.open("/group?id=deep")
        seen.wait_for_picture()
        nodes, picture = seen.page.locator("#picture .node"), seen.page.locator("#picture")
        expect(nodes).to_have_count(33)
        closed = picture.locator(".node.k-folded", has_text="Subtopology 7")
        assert "12 nodes 1 active · 1 copy 1 without an active member" in " ".join(
            (closed.text_content() or "").split()
        )
        seen.page.get_by_label("Find in the picture").fill("in-7-3")  # which is in a box
        expect(picture.locator(".node.match")).to_have_count(1)
        seen.page.get_by_label("Find in the picture").fill("")
        closed.click()
        expect(nodes).to_have_count(33 - 1 + 1 + 12)  # its title takes the place of the box
        assert seen.page.evaluate("document.activeElement.closest('.k-frame') !== null")
        assert "Subtopology 7" in " ".join(_nodes_in_sight(seen))
        assert seen.axe() == []
        address = seen.page.url
        seen.page.keyboard.press("Enter")
        expect(nodes).to_have_count(33)
        assert seen.page.evaluate("document.activeElement.closest('.k-folded') !== null")
        seen.page.goto("about:blank")
        seen.page.goto(address)
        expect(nodes).to_have_count(45)
        seen.page.get_by_role("button", name="Open all").click()
        expect(nodes).to_have_count(33 * 13)
        seen.page.get_by_role("button", name="Close all").click()
        expect(nodes).to_have_count(33)


def test_without_javascript_groups_are_found_and_an_instant_is_shown_by_a_form(chromium: Browser, url: str) -> None:
    with view(chromium, url, java_script_enabled=False) as seen:
        seen.open("/")
        seen.page.get_by_label("Group", exact=True).fill("orders")
        seen.page.get_by_role("button", name="Filter").click()
        seen.page.get_by_role("link", name=RICH).click()
        assert "needs JavaScript" in seen.page.inner_text("main")
        seen.page.get_by_label("Instant, UTC").fill("700m")
        seen.page.get_by_role("button", name="Show").click()
        assert "orders-0-StreamThread-1" in seen.page.inner_text("#tasks")
        seen.page.get_by_role("link", name="30d", exact=True).click()
        assert "range=30d" in seen.page.url
        assert "orders-0-StreamThread-1" in seen.page.inner_text("#tasks")
        seen.open(f"/group?{group_query(HOSTILE[2])}")
        seen.page.get_by_label("Instant, UTC").fill("1m")
        seen.page.get_by_role("button", name="Show").click()
        assert "no event of this group" in seen.page.inner_text("#instant")


def test_keys_filter_show_the_keys_and_change_between_local_time_and_utc(chromium: Browser, url: str) -> None:
    with view(chromium, url, own_context=True) as seen:
        session = seen.page.context.new_cdp_session(seen.page)
        session.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
        seen.open("/")
        seen.page.keyboard.press("/")
        seen.page.keyboard.type("fraud?u")
        assert seen.page.input_value("#filter input[type=search]") == "fraud?u"
        seen.page.keyboard.press("Escape")
        assert not seen.page.input_value("#filter input[type=search]")
        seen.page.locator("h1").click()
        seen.page.keyboard.press("?")
        expect(seen.page.locator("#keys")).to_be_visible()
        seen.page.keyboard.press("Escape")
        expect(seen.page.locator("#keys")).to_be_hidden()
        shown = seen.page.locator("footer time[data-time]").first
        assert shown.inner_text().endswith("+05:30")
        seen.page.keyboard.press("u")
        assert shown.inner_text().endswith("Z")
        seen.page.reload()
        assert shown.inner_text().endswith("Z")
