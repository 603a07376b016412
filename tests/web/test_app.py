"""The application with Starlette's client: what each path returns, to whom, and how often the tables are read."""

import asyncio
import gzip
import html
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from streaming_app.job_status import JobStatus
from streaming_app.web import page_snapshot
from streaming_app.web.access import PAGE_CSP, WORKER_CSP, Access
from streaming_app.web.page import Page
from streaming_app.web.page_snapshot import SnapshotSource
from streaming_app.web.words import group_query, short_name
from tests.support.heartbeats import write_heartbeat
from tests.support.sample_groups import HOSTILE, NOW, RICH, beat, clock, group, replace_group
from tests.support.waiting import MINUTES, wait_until
from tests.support.warehouses import append, make_warehouse, replace_rows
from tests.web import sample_others

pytestmark = pytest.mark.slow

LOCAL = "http://localhost"


@pytest.fixture(scope="module")
def client(page: Page) -> Iterator[TestClient]:
    with TestClient(page.app, base_url=LOCAL) as connected:
        yield connected


def look(warehouse: Path, cluster: str = "default", **settings: Any) -> TestClient:
    return TestClient(Page(SnapshotSource(warehouse, cluster, clock), Access(**settings), clock).app, base_url=LOCAL)


def shown(text: str) -> list[str]:
    """Return the ids of the groups on a page of the overview."""
    return [
        html.unescape(one) for one in re.findall(r'<th scope="row"><a href="[^"]*"><bdi class="name">(.*?)</bdi>', text)
    ]


@pytest.mark.parametrize(
    ("query", "groups"),
    [
        ("q=FRAUD", ["fraud-detection"]),
        ("q=CARD-PAY", ["fraud-detection"]),  # a topic
        ("q=orders-2-stream", [RICH]),  # a client
        ("q=' OR true --", []),
        ("state=Dead", ["legacy-reports"]),
        ("state=Empty&state=Assigning", ["inventory-sync", "nightly-settlement"]),
        ("health=Off&health=Stalled", ["ledger-reconciler", "nightly-settlement"]),
        ("description=FAILED", ["ledger-reconciler"]),
        ("show=moving", [RICH]),
    ],
)
def test_filters_find_groups_by_name_topic_member_state_and_description(
    client: TestClient, query: str, groups: list[str]
) -> None:
    assert sorted(shown(client.get(f"/?{query}&type=streams").text)) == groups


def test_an_overview_says_that_no_group_is_in_trouble_only_if_no_verdict_is(tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path / "warehouse")
    append(warehouse, "groups", group("calm", "Stable", NOW, 60), group("other", "Stable", NOW, 60))
    beat(warehouse, NOW)
    said = []
    for verdict in ("Unknown", "Ok", "Down"):
        judged = {"verdict": verdict, "since": NOW, "at": NOW, "judged_at": NOW, "why": "w"}
        replace_rows(warehouse, "group_health_history", *({**judged, "group_id": one} for one in ("calm", "other")))
        said.append(re.findall(r"No group is[^.;]*[.;]", look(warehouse).get("/").text))
    assert said == [["No group is known to be in trouble;"], ["No group is in trouble."], []]


def test_many_alerts_of_one_rule_hide_no_other_and_the_page_stays_small(sample: Path) -> None:
    at = NOW - timedelta(minutes=30)
    common = {"cluster": "default", "rule": "StreamsGroupStandbyBehind", "severity": "warning", "evidence": "{}"}
    alerts = [
        {**common, "alert_id": str(n), "group_id": f"flood-{n}", "summary": f"flood-{n} is behind", "since": at}
        for n in range(2_000)
    ]
    append(sample, "alerts", *({**one, "opened_at": at, "deliveries": []} for one in alerts))
    response = look(sample).get("/alerts")
    shown = html.unescape(re.sub("<[^>]+>", "", response.text))
    assert "fraud-detection is NotReady and processes nothing" in shown
    assert "StreamsGroupStandbyBehind: 2,000 alerts" in shown
    assert "The oldest 50 of 2,000; all groups with alerts." in shown
    assert shown.index("fraud-detection") < shown.index("flood-") < shown.index("pending for")
    assert len(response.content) < 60_000  # 1.3 MB before


def test_a_group_shows_its_topology_tasks_copies_members_lag_history_and_changes(client: TestClient) -> None:
    text = html.unescape(client.get(f"/group?id={RICH}&range=24h").text)
    for expected in (
        f"{RICH}-by-customer-repartition",
        "No member has 1_3 as active",
        "1_0: active, restores its state and processes nothing yet, 88,000 offsets behind",
        "orders-2-StreamThread-1",
        'class="lag-bar"',
        "commits is its oldest input",
        "assignment epoch: 5 → 6 (the configuration changed)",
    ):
        assert expected in text, expected


def test_groups_of_every_type_are_listed_and_filtered(client: TestClient) -> None:
    others = {getattr(sample_others, name) for name in ("CONSUMER", "CONNECT", "CLASSIC_STREAMS", "SHARE", "TOOL")}
    assert wait_until(lambda: others <= set(shown(client.get("/").text)))
    assert shown(client.get("/?type=consumer&type=share").text) == [sample_others.CONSUMER, sample_others.SHARE]
    assert set(shown(client.get("/?state=none").text)) == {sample_others.CONNECT, sample_others.CLASSIC_STREAMS}
    hostile = short_name(sample_others.HOSTILE_OTHER)
    assert hostile in html.unescape(client.get(f"/group?{group_query(sample_others.HOSTILE_OTHER)}").text)
    assert others.isdisjoint(shown(client.get("/?type=streams").text))
    text = client.get("/").text
    assert "classic, Kafka Streams" in text
    assert "1,950" in text  # the lag of the consumer group


def test_a_group_of_another_type_shows_what_is_known_of_it(client: TestClient) -> None:
    assert wait_until(lambda: sample_others.CONSUMER in client.get("/").text)
    text = client.get(f"/group?id={sample_others.CONSUMER}").text
    for expected in ("A consumer group", "Reconciling", "1,902", 'class="lag-bar"', "mailer-2", "(4,5)"):
        assert expected in text, expected
    assert "Generation" not in text
    assert "Generation" in client.get(f"/group?id={sample_others.CONNECT}").text
    classic = client.get(f"/group?id={sample_others.CLASSIC_STREAMS}").text
    assert classic.count("&lt;b&gt;clicks&lt;/b&gt;(0,1)") == classic.count("&lt;b&gt;clicks&lt;/b&gt;,pages") == 2
    assert "A classic group: a Kafka Streams application" in classic
    assert classic.count("Coordinator") == classic.count("b1.example:9092 (1)") == 1
    assert client.get(f"/graph?id={sample_others.CONSUMER}").status_code == 404


def test_a_cluster_is_chosen_by_the_url_and_kept_by_every_link(client: TestClient) -> None:
    assert '<option value="eu-west">' in client.get("/").text
    text = client.get("/?cluster=eu-west").text
    assert shown(text) == ["eu-orders"]
    assert "No job has written cluster &#39;eu-west&#39; here yet" in text
    group_url = html.unescape(re.findall(r'<th scope="row"><a href="([^"]*)"', text)[0])
    page = client.get(f"/{group_url}")
    assert page.status_code == 200
    for link in re.findall(r'(?:href|data-graph|data-changes|data-url|action)="([^"#]*)["#]', page.text):
        plain = link.startswith("static/") or link in {"", "group"}
        assert plain or "cluster=eu-west" in link, link
    assert 'name="cluster" value="eu-west"' in page.text
    assert client.get("/group?id=eu-orders").status_code == 404
    assert client.get("/?cluster=unknown").status_code == 404
    assert client.get("/changes?cluster=unknown").status_code == 404


def test_an_instant_shows_who_had_what_then(client: TestClient) -> None:
    def instant(query: str) -> str:
        return html.unescape(client.get(f"/group?id={RICH}&{query}").text).split('id="instant"')[1]

    assert "orders-0-StreamThread-1" in instant("at=700m&range=24h")
    assert "<dt>Lag</dt><dd>" in instant("at=100m")
    assert "offsets," not in instant("at=2026-01-01T00:00Z").split("</section>")[0]
    assert "no event of this group that is so old" in instant("at=2d")
    assert "A time must be like" in client.get(f"/group?id={RICH}&at=%3Cscript%3E&from=x").text


def test_the_link_of_an_event_shows_the_group_after_it(sample: Path) -> None:
    at = NOW.replace(microsecond=345_000) - timedelta(minutes=20)
    replace_group(sample, group("first-event", "Stable", at, 0))
    created = {"cluster": "default", "group_id": "first-event", "at": at, "kind": "state", "new": "Stable"}
    append(sample, "group_events", created)
    client = look(sample)
    (link,) = re.findall(r'href="([^"]*&amp;at=[^"]*)#instant"', client.get("/group?id=first-event").text)
    text = client.get(f"/{html.unescape(link)}").text.split('id="instant"')[1]
    assert "no event of this group that is so old" not in text
    assert "Stable" in text.split("<dl")[1].split("</dl>")[0]


def test_a_reset_of_many_partitions_is_one_event_and_is_named_among_what_changed_before(sample: Path) -> None:
    at = NOW - timedelta(minutes=20)
    replace_group(sample, group("was-reset", "Empty", at, 0))
    reset = {"group_id": "was-reset", "at": at, "kind": "offsets_reset", "old": "7", "new": "0", "cause": "while_empty"}
    append(sample, "group_events", *({**reset, "topic": "in", "partition": n, "offset": n} for n in range(300)))
    text = look(sample).get("/group?id=was-reset").text
    said = "offsets reset: in-0 from 7 to 0 and 299 more partitions (while the group was Empty)"
    assert [text.split('id="events"')[1].count(said), text.count("offsets reset")] == [1, 2]
    assert said in text.split('id="answer-changed"')[1].split("</dd>")[0]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_text_wherever_they_are_shown(client: TestClient, name: str) -> None:
    url = f"/group?{group_query(name)}"
    assert len(url) < 5_000
    assert url.split("?")[1] in html.unescape(client.get("/").text)
    response = client.get(url)
    assert response.status_code == 200
    shown = html.escape(short_name(name), quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    assert shown in response.text
    assert "<script>alert" not in response.text
    assert not re.search("[\x00-\x09\x0b-\x1f\u200b\u202e\u2066\x9b]", response.text)
    assert client.get(f"/graph?{group_query(name)}").status_code == 200


@pytest.mark.parametrize("path", ["/", f"/group?id={RICH}", f"/group?id={sample_others.CONSUMER}", "/alerts"])
def test_every_table_has_its_sql_which_runs_and_its_rows_as_json(client: TestClient, path: str) -> None:
    text = client.get(path).text
    links = [html.unescape(one) for one in re.findall(r'href="(sql\?q=[^"]*)"', text)]
    ours = [one for one in links if "format=json" in one]
    assert len(ours) == text.count('role="region"') + (path == "/alerts")  # which are no table
    for one in ours:
        rows = client.get(f"/{one}").json()["rows"]
        assert rows, one
        assert f"{len(rows):,} row" in client.get(f"/{one.replace('&format=json', '')}").text


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("DROP TABLE groups", 400, "Only one SELECT"),
        ("SELECT 1; COPY groups TO '/tmp/x'", 400, "Only one SELECT"),
        ("SELECT * FROM '/etc/passwd'", 400, "The query failed"),
        ("SELECT nosuch FROM groups", 400, "No field named nosuch"),
        ("SELECT '<script>alert(1)</script>' AS \"<b>\"", 200, "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("SELECT count(DISTINCT cluster) || ' cluster' AS n FROM groups", 200, "1 cluster"),
        ("SELECT value FROM generate_series(1, 5000)", 200, "1,000 rows; there are more"),
        ("SELECT repeat('x', 9000) AS x FROM generate_series(1, 900)", 200, "there are more"),
    ],
)
def test_a_query_only_reads_within_limits_and_its_error_is_one_line(
    client: TestClient, query: str, status: int, said: str
) -> None:
    answer = client.get("/sql", params={"q": query})
    assert answer.status_code == status
    assert said in html.unescape(answer.text) or said in answer.text
    assert "<script>alert" not in answer.text
    assert len(answer.content) < 1_100_000


def test_each_node_of_a_picture_leads_to_its_rows(client: TestClient) -> None:
    for query in (f"id={RICH}", f"id={RICH}&cluster=default"):
        nodes = client.get(f"/graph?{query}").json()["nodes"]
        links = [one["href"] for one in nodes if one["kind"] not in {"pattern", "folded"} and len(one["name"]) < 500]
        assert links
        for link in links:
            assert ("cluster=default" in link) == ("cluster=default" in query)
            assert client.get(f"/{link}").status_code == 200, link


def test_a_query_that_another_site_asks_for_is_shown_and_not_run(client: TestClient) -> None:
    answer = client.get("/sql?q=SELECT+41%2B1+AS+n", headers={"Sec-Fetch-Site": "cross-site"})
    assert "SELECT 41+1 AS n" in answer.text
    assert ">42<" not in answer.text
    assert ">42<" in client.get("/sql?q=SELECT+41%2B1+AS+n", headers={"Sec-Fetch-Site": "same-origin"}).text


def test_more_queries_than_may_run_are_refused(sample_template: Path) -> None:
    page = Page(SnapshotSource(sample_template, "default", clock), Access(), clock)
    page._running = threading.Semaphore(0)
    assert TestClient(page.app, base_url=LOCAL).get("/sql?q=SELECT+1").status_code == 503


def test_columns_that_are_left_out_stay_left_out_in_every_link(client: TestClient) -> None:
    text = client.get("/?without=lag&without=state&type=streams").text
    heads = re.findall(r'<th scope="col"[^>]*>\s*(?:<a[^>]*>)?([^<]*)', text)
    assert {"Lag, time", "Members"} <= set(heads)
    assert not {"Lag, offsets", "State"} & set(heads)
    sorts = [one for one in re.findall(r'data-soft href="(\./[^"]*)"', text) if "sort" in one]
    assert {"without=lag&amp;without=state" in one for one in sorts} == {True}


def test_every_response_has_the_policy_and_the_worker_its_own(client: TestClient) -> None:
    for path in ("/", "/group?id=unknown", "/alerts", "/static/page.js", "/no-such-page", "/health"):
        headers = client.get(path).headers
        assert headers["Content-Security-Policy"] == PAGE_CSP, path
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
    assert client.get("/static/layout-worker.js").headers["Content-Security-Policy"] == WORKER_CSP
    assert "unsafe" not in PAGE_CSP


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("[::1]:8080", 200),
        ("streams.example.org", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("evil.example@localhost", 421),
        ("", 421),
    ],
)
def test_only_addresses_and_names_that_were_allowed_are_answered(sample_template: Path, host: str, status: int) -> None:
    client = look(sample_template, allowed_hosts=frozenset({"Streams.example.org"}))
    assert client.get("/health", headers={"Host": host}).status_code == status


def test_a_page_that_has_not_changed_is_not_sent_again(sample: Path) -> None:
    beat(sample, NOW - timedelta(minutes=1))
    client = look(sample)
    assert wait_until(lambda: sample_others.CONSUMER in client.get("/").text)  # groups of other types come later
    etag = client.get("/").headers["ETag"]
    assert client.get("/", headers={"If-None-Match": etag}).status_code == 304
    assert client.get("/?q=x", headers={"If-None-Match": etag}).status_code == 200
    beat(sample, NOW)  # only the time of the heartbeat
    assert client.get("/", headers={"If-None-Match": etag}).status_code == 304
    replace_group(sample, group("fraud-detection", "Stable", NOW, 0))

    def changed() -> bool:
        return client.get("/", headers={"If-None-Match": etag}).status_code == 200

    assert wait_until(changed)


def test_a_group_that_is_set_aside_is_named(sample: Path) -> None:
    aside = {"set_aside_reason": "ValueError: x", "set_aside_at": NOW}
    replace_group(sample, group("fraud-detection", "Stable", NOW, 1, **aside))
    opened = {"cluster": "default", "severity": "warning", "state": "firing", "pending_since": NOW, "opened_at": NOW}
    alert = {**opened, "details": "{}", "deliveries": []}
    append(sample, "alerts", {**alert, "rule": "StreamsGroupSetAside", "group_id": "fraud-detection", "summary": ""})
    client = look(sample)
    overview = html.unescape(client.get("/").text)
    assert "1 group is set aside, and an earlier state is shown: fraud-detection" in overview
    assert "and is shown as it was before: ValueError: x" in html.unescape(client.get("/group?id=fraud-detection").text)


def test_the_tables_are_read_once_for_all_viewers(sample: Path) -> None:
    source = SnapshotSource(sample, "default", clock)
    client = TestClient(Page(source, Access(), clock).app, base_url=LOCAL)
    for number in range(20):
        assert client.get(f"/?q={number}").status_code == 200
        assert client.get(f"/group?id={RICH}&range={number}").status_code == 200
    assert source._streams.count == 1


def test_what_is_wrong_is_said_on_the_page(tmp_path: Path, sample: Path) -> None:
    empty = look(tmp_path / "none")
    response = empty.get("/")
    assert response.status_code == 200
    assert "No streams-groups warehouse at" in response.text
    assert "Nothing can be shown until the tables can be read" in response.text
    other = look(sample, "other")
    assert "No job has written cluster &#39;other&#39; here yet" in other.get("/").text
    beat(sample, datetime(2026, 1, 1, tzinfo=timezone.utc))
    dead = look(sample)
    assert "has died: the tables are as of 2026-01-01 00:00:00Z" in html.unescape(dead.get("/").text)
    missing = dead.get("/group?id=unknown")
    assert (missing.status_code, "There is no such group" in missing.text) == (404, True)


def test_while_the_job_reads_for_the_first_time_the_page_does_not_say_that_there_is_no_group(tmp_path: Path) -> None:
    """Seen while ten groups were being read: "There is no group in this cluster yet", "late (0 offsets behind)"."""
    make_warehouse(tmp_path)
    none, still = "There is no group in this cluster yet", "The job is still reading."
    for facts, said in ((JobStatus(NOW), still), (JobStatus(NOW, caught_up=True, caught_up_at=NOW), none)):
        write_heartbeat(tmp_path, facts=facts, at=NOW)
        text = html.unescape(look(tmp_path).get("/").text)
        assert [one for one in (none, still) if one in text] == [said]
        assert ("is late (still reading): the tables are not complete yet" in text) is (said == still)


def test_a_warehouse_that_becomes_unreadable_is_shown_as_it_was(sample: Path) -> None:
    client = look(sample)
    assert RICH in client.get("/").text
    (sample / "alerts").rename(sample / "gone")
    assert wait_until(lambda: "lacks the table alerts" in client.get("/").text)
    assert RICH in client.get("/").text
    (sample / "gone").rename(sample / "alerts")
    assert wait_until(lambda: "lacks the table alerts" not in client.get("/").text)


def test_an_error_of_a_page_is_one_line_for_the_reader_and_one_for_the_job(
    sample_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    page = Page(SnapshotSource(sample_template, "default", clock), Access(), clock, lines.append)
    monkeypatch.setattr("streaming_app.web.page.overview", lambda *_, **__: 1 / 0)
    client = TestClient(page.app, base_url=LOCAL, raise_server_exceptions=False)
    for _ in range(3):
        response = client.get("/")
        assert response.status_code == 500
        assert "The page could not be made: ZeroDivisionError" in response.text
        assert "Traceback" not in response.text
    assert lines == ["The page could not be made: ZeroDivisionError: division by zero"]
    assert client.get("/alerts").status_code == 200


def test_readers_who_wait_for_the_same_slow_page_keep_no_other_page_waiting(
    sample_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Page(SnapshotSource(sample_template, "default", clock), Access(), clock)
    is_slow, may_end = threading.Event(), threading.Event()

    def wait(_: object) -> list[object]:
        is_slow.set()
        assert may_end.wait(MINUTES)
        return []

    monkeypatch.setattr("streaming_app.web.group_page.alerts_by_rule", wait)

    async def look_at_both() -> list[int]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(page.app), base_url=LOCAL) as client:
            await client.get("/")
            slow = [asyncio.create_task(client.get("/alerts")) for _ in range(12)]
            try:
                assert await asyncio.to_thread(is_slow.wait, MINUTES)
                other = await asyncio.wait_for(client.get("/?sort=name"), MINUTES)
            finally:
                may_end.set()
            return [other.status_code, *(answer.status_code for answer in await asyncio.gather(*slow))]

    assert asyncio.run(look_at_both()) == [200] * 13


def test_groups_of_other_types_that_cannot_be_read_do_not_hide_streams_groups(sample: Path) -> None:
    for file in (sample / "group_records").rglob("*.parquet"):
        file.unlink()
    assert RICH in look(sample).get("/").text


def test_a_page_that_many_load_is_compressed_once(sample_template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 viewers load it at each change."""
    compressed: list[bytes] = []
    compress = gzip.compress

    def counted(data: bytes, *level: int) -> bytes:
        compressed.append(data)
        return compress(data, *level)

    with look(sample_template) as client:
        assert wait_until(lambda: sample_others.CONSUMER in client.get("/").text)  # groups of other types come later
        monkeypatch.setattr(gzip, "compress", counted)
        answers = [client.get("/?sort=name") for _ in range(5)]
        plain = client.get("/?sort=name", headers={"Accept-Encoding": "identity"})
    assert compressed == [plain.content]
    assert {one.text for one in answers} == {plain.text}
    assert {one.headers.get("Content-Encoding") for one in (*answers, plain)} == {"gzip", None}
    assert {one.headers["Vary"] for one in (*answers, plain)} == {"Accept-Encoding"}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("alerts", {"alert_id": "i"}),
        ("broker_facts", {"subject": "s", "kind": "isr"}),
        ("topologies", {"group_id": "g"}),
        ("lag_history", {"group_id": "g"}),
        ("group_health_history", {"group_id": "g"}),
    ],
)
def test_a_change_of_a_table_that_the_page_shows_is_a_new_snapshot(
    name: str, row: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_snapshot, "CHECK_SECONDS", 0)
    warehouse = make_warehouse(tmp_path / "warehouse")
    snapshots = SnapshotSource(warehouse, "default", clock)
    before = snapshots.current()
    append(warehouse, name, row)
    assert wait_until(lambda: snapshots.current().tag != before.tag)
