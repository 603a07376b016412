"""What earlier engines misjudged: what waits, one host, habits, clocks, ends of logs, and groups with one topology."""

from tests.histories.history import (
    BEGINS,
    DAY,
    DOWN,
    FEW,
    FEW_AND_LOG,
    HOUR,
    MINUTE,
    STALLED,
    STATE,
    TOPICS,
    TRAFFIC,
    Operations,
    chosen_incident,
    chosen_ordinary,
    do,
    hang,
    hours_of,
    incident,
    names,
    start,
    steady,
    stop,
    windows,
    working,
)

ONE_HOST = {"host": "10.0.0.1"}
LIVES_ON = "ledger"
TEAMS = ("orders", "payments", "search", LIVES_ON)
DEATHS = {team: BEGINS + n * 4 * MINUTE for n, team in enumerate(TEAMS) if team != LIVES_ON}
"""When each application of the history about one host dies; one lives on."""
BERLIN_SPRING, NEW_YORK_SPRING = 27 * DAY, 6 * DAY  # 29 March and 8 March 2026: the simulation starts on 2 March


def _of_teams() -> Operations:
    """Run an application of each team, all of whose clients have one address."""
    return [
        one
        for team in TEAMS
        for one in (
            *start(names(2, team), group=team, sources=("in", team), **ONE_HOST),
            *do(TRAFFIC, "read", group=team),
        )
    ]


IGNORED_AT, COUNTED_AGAIN_AT = BEGINS + 20 * MINUTE, BEGINS + HOUR
_IGNORED = {IGNORED_AT: {"ignore_groups": ["app"]}, COUNTED_AGAIN_AT: {}}
ONE_MORE, MENDED = BEGINS + 2 * HOUR, BEGINS + 3 * HOUR
"""When one more group lacks its description, and when one of those before gets it."""


def _at_the_end(denied: bool, offsets: int) -> tuple[Operations, ...]:
    """Let a transaction that left no record be the last thing that is written."""
    return (
        working(2),
        do(BEGINS, "change", rate=0.0),
        do(BEGINS + MINUTE, "end_transaction", offsets=offsets, denied=denied),
        do(BEGINS + 2 * HOUR, "expire_all"),
    )


def _spring(day: float, offset: float) -> Operations:
    """Run from 8 to 18 h by the clocks of a place, three days around the day on which they go forward.

    Before that they are so many seconds ahead of UTC.
    """
    first = round(day / DAY) - 2
    before, after = range(first, first + 2), range(first + 2, first + 4)
    return [
        *start(names(2), first * DAY + 60),  # the group exists, and its offsets
        *do(first * DAY + 120, "read", rate=0.2),
        *stop(names(2), first * DAY + 600),
        *windows(before, (8 * HOUR - offset,), 10 * HOUR, names(2)),
        *windows(after, (7 * HOUR - offset,), 10 * HOUR, names(2)),
    ]


def _flaps(topic: str, times: int, away: float, there: float) -> Operations:
    """Delete a topic, and create it again, so many times."""
    return [
        one
        for at in (BEGINS + n * (away + there) for n in range(times))
        for one in (
            *do(at, "set_topic", topic=topic, partitions=None),
            *do(at + away, "set_topic", topic=topic, partitions=12),
        )
    ]


_OTHER = {"group": "audit", "sources": ("in",), "changelogs": ("log",)}
_LOST_AT_REST = (
    working(2, STATE),
    do(HOUR, "change", rate=0.0),
    do(BEGINS, "set_topic", topic="log", partitions=None),
)
"""Nothing waits for an application, and its changelog is deleted."""


_LEFT, _RIGHT = ["a", "b"], ["c", "d"]
_STORES = {"orders": "sums", "payments": "totals", "search": "index"}
DEATHS_OF_READERS = {group: BEGINS + n * 10 * MINUTE for n, group in enumerate(_STORES)}
"""When each of the applications that read one topic dies."""


def _blue() -> Operations:
    return start(_LEFT, group="blue", **STATE) + do(TRAFFIC, "read", group="blue")


def _green(at: float) -> Operations:
    return start(_RIGHT, at, group="green", **STATE) + do(
        at + 5, "read", group="green", log_of="blue", begins="committed"
    )


def _overlap(blue: str, green: str) -> Operations:
    """Run green next to blue for five minutes, and stop blue; these are the changelogs of both."""
    return [
        *start(_LEFT, group="blue", changelogs=(blue,)),
        *do(TRAFFIC, "read", group="blue"),
        *start(_RIGHT, BEGINS, group="green", changelogs=(green,)),
        *do(BEGINS + 5, "read", group="green", log_of="blue", begins="committed"),
        *stop(_LEFT, BEGINS + 5 * MINUTE),
    ]


def _of_one_topic() -> Operations:
    """Run three applications that read one topic; each dies some minutes after the one before."""
    first, *others = DEATHS_OF_READERS
    return [
        one
        for group, store in _STORES.items()
        for one in (
            *start(names(2, group), group=group, changelogs=(f"{group}-{store}-changelog",)),
            *do(TRAFFIC + (group != first) * 5, "read", group=group, log_of=first if group in others else None),
            *stop(names(2, group), DEATHS_OF_READERS[group], action="crash"),
        )
    ]


MISJUDGED = (
    chosen_ordinary(
        "The job starts a minute after the first records of three days came, which are processed three minutes later",
        working(2),
        do(HOUR, "change", rate=0.0),
        hang(names(2), 73 * HOUR, 4 * MINUTE),
        do(73 * HOUR, "change", rate=10.0),
        hours=75,
        topics=FEW,
        watched_from=73 * HOUR + MINUTE,
    ),
    chosen_ordinary(
        "Three instances are scaled to zero within two minutes of the last record",
        working(3),
        do(BEGINS, "change", rate=0.0),
        stop(names(3), BEGINS + 90, every=10),
    ),
    chosen_ordinary(
        "The last thing that is written are three markers of transactions, and retention deletes all of it",
        *_at_the_end(denied=False, offsets=3),
    ),
    chosen_ordinary(
        "The last thing that is written is a transaction of 20 records that is aborted, and retention deletes all of "
        "it, of a topic that the job may not read",
        *_at_the_end(denied=True, offsets=21),
    ),
    chosen_ordinary(
        "The clocks of New York go forward, and an application that runs from 8 to 18 h there declares that",
        _spring(NEW_YORK_SPRING, -5 * HOUR),
        hours=(NEW_YORK_SPRING + 2 * DAY) / HOUR,
        topics=FEW,
        watched_from=NEW_YORK_SPRING - 2 * DAY + 60,
        running_hours=hours_of(("08:00", "18:00"), location="America/New_York"),
    ),
    # Groups with the same topology on the same topics
    chosen_ordinary(
        "Green overlaps blue for five minutes, and each has its prefix in its internal topics",
        _overlap("blue-sums-changelog", "green-sums-changelog"),
        topics={"in": 2, "blue-sums-changelog": 2, "green-sums-changelog": 2},
    ),
    chosen_ordinary(
        "Green overlaps blue for five minutes, and both have the same internal topics",
        _overlap("shop-sums-changelog", "shop-sums-changelog"),
        topics={"in": 2, "shop-sums-changelog": 2},
    ),
    chosen_ordinary(
        "Green runs next to blue for two hours, and blue is stopped",
        _blue(),
        _green(BEGINS),
        stop(_LEFT, BEGINS + 2 * HOUR),
        hours=12,
        topics=FEW_AND_LOG,
    ),
    chosen_ordinary(
        "An application gets another topology under another id, which is declared as the successor",
        _blue(),
        start(_RIGHT, BEGINS, group="green", changelogs=("other",)),
        do(BEGINS + 5, "read", group="green", log_of="blue", begins="latest"),
        stop(_LEFT, BEGINS + HOUR),
        topics={**FEW_AND_LOG, "other": 2},
        settings={"successors": {"blue": "green"}},
    ),
    chosen_incident(
        "The clocks of Berlin go forward, and an application that runs from 8 to 18 h there declares nothing",
        DOWN,
        _spring(BERLIN_SPRING, 1 * HOUR),
        hours=(BERLIN_SPRING + 2 * DAY) / HOUR,
        topics=FEW,
        watched_from=BERLIN_SPRING - 2 * DAY + 60,
        begins=BERLIN_SPRING - 2 * DAY + 600,
    ),
    chosen_incident(
        "With exactly-once, an application crashes two seconds after a commit, and nothing starts it",
        DOWN,
        working(2, transactional=True),
        stop(names(2), BEGINS + 2, action="crash"),
        begins=BEGINS + 2,
    ),
    chosen_incident(
        "A changelog is deleted and created again and again, so that the group is NotReady for three of four minutes",
        DOWN,
        working(2, STATE),
        _flaps("log", 12, away=180.0, there=60.0),
        topics=TOPICS,
    ),
    chosen_incident(
        "A changelog is deleted under an application for which nothing waits and nothing comes",
        DOWN,
        *_LOST_AT_REST,
        topics=TOPICS,
    ),
    chosen_incident(
        "A changelog is deleted under an application for which nothing waits, and later records come",
        DOWN,
        *_LOST_AT_REST,
        do(BEGINS + HOUR, "change", rate=10.0),
        topics=TOPICS,
    ),
    chosen_incident(
        "All instances are lost while another application reads the same topics",
        DOWN,
        steady(3, changelogs=("sums",)),
        do(TRAFFIC, "read"),
        start(["o0"], HOUR, **_OTHER),
        do(HOUR + 30, "read", group="audit", log_of="app"),
        stop(names(3), BEGINS, action="kill"),
        topics={**TOPICS, "sums": 12},
    ),
    chosen_incident(
        "A source topic is deleted under an application that never committed; brokers clean its group up",
        DOWN,
        start(names(2), BEGINS - 90),
        do(BEGINS - 60, "read", rate=0.0),
        do(BEGINS, "set_topic", topic="in", partitions=None),
        hours=3,
    ),
    incident(
        "An application fails at its first record, and never commits",
        STALLED,
        start(names(2), BEGINS),
        do(BEGINS + 30, "read", capacity=0.0),
        hours=3,
    ),
    chosen_incident(
        "Retention of half an hour overtakes an application whose threads hang",
        f"{STALLED} GroupLosing",
        working(2, keeps_seconds=1800.0),
        hang(names(2), BEGINS),
    ),
    chosen_incident(
        "An application is retired on purpose while records come, which somebody says once they are paged",
        DOWN,
        working(2, rate=1.0),
        stop(names(2), BEGINS),
        do(BEGINS + 20 * MINUTE, "end_incidents", reason="retired"),
        hours=12,
    ),
    chosen_incident(
        "The alert of an application that was lost is ignored, the application comes back, and nothing is ignored",
        DOWN,
        working(2),
        stop(names(2), BEGINS, action="crash"),
        start(names(2), BEGINS + 40 * MINUTE),
        later_settings=_IGNORED,
    ),
    chosen_incident(
        "The alert of an application that was lost is ignored for a while, and the application does not come back",
        DOWN,
        working(2),
        stop(names(2), BEGINS, action="crash"),
        later_settings=_IGNORED,
    ),
    chosen_incident(
        "Five groups lack their descriptions, then one more does, and one gets it",
        "GroupDescriptionMissing",
        do(0, "set_plugin", mode="stored"),
        *(start([f"a{n}"], BEGINS + n, group=f"app-{n}", pushes=False) for n in range(5)),
        start(["a5"], ONE_MORE, group="app-5", pushes=False),
        start(["b0"], MENDED, group="app-0"),
        hours=6,
        settings={"descriptions": "always"},
    ),
    chosen_incident(
        "An unclean election cuts the log of one partition to below what the application has committed",
        STALLED,
        working(2),
        do(BEGINS, "truncate", partitions=[3], to=1_000.0),
        hours=3,
    ),
    chosen_incident(
        "Three applications on one host die of different causes within ten minutes",
        DOWN,
        _of_teams(),
        *(stop(names(2, team), at, action="crash") for team, at in DEATHS.items()),
        topics={"in": 12, **dict.fromkeys(TEAMS, 12)},
    ),
    # Groups with the same topology on the same topics
    chosen_incident(
        "Three applications with state of their own read one topic, and die one after the other",
        DOWN,
        _of_one_topic(),
        topics={"in": 2, **{f"{group}-{store}-changelog": 2 for group, store in _STORES.items()}},
    ),
    chosen_incident(
        "An application gets another topology under another id, which nobody declares as the successor",
        DOWN,
        _blue(),
        start(_RIGHT, BEGINS, group="green", changelogs=("other",)),
        do(BEGINS + 5, "read", group="green", log_of="blue", begins="latest"),
        stop(_LEFT, BEGINS + HOUR),
        begins=BEGINS + HOUR,
        topics={**FEW_AND_LOG, "other": 2},
    ),
    chosen_incident(
        "The successor that was declared dies together with the application that it is to take over",
        DOWN,
        _blue(),
        _green(BEGINS),
        stop(_LEFT, BEGINS + HOUR),
        stop(_RIGHT, BEGINS + HOUR + 60, action="kill"),
        begins=BEGINS + HOUR,
        topics=FEW_AND_LOG,
        settings={"successors": {"blue": "green"}},
    ),
)
