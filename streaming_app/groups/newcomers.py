"""Which groups come first where there is not room for all: those known the longest, then the new ones, host by host.

Theory of operation
-------------------
Everything that has a limit, such as series of metrics and notifications, is a place where a flood of groups could push
out others. A tenant chooses the ids of its groups and the text in them, but neither when they were first seen nor the
address that the broker saw their clients have. So groups known for a day come first, in the order of their age, and a
tenth of the room is for newcomers. These are taken in turns from each host, the oldest first: a host with a thousand
groups gets no more of it than one with three.

A group whose creation the log does not prove was there before, and counts as old. Pure: callers pass the time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from operator import itemgetter
from types import MappingProxyType

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.text import EPOCH, host_of

NEW_FOR = timedelta(days=1)
_SHARE = 10  # one in so many places is for newcomers
_NEVER = datetime.max.replace(tzinfo=timezone.utc)
_COMMON = 0.8  # of the newcomers have their prefix in common
_LONGEST_PREFIX = 100
_NAMED_HOSTS = 3


def is_newcomer(group: GroupSnapshot, now: datetime) -> bool:
    """Return whether a group is known for less than a day."""
    return group.first_seen_at is not None and now - group.first_seen_at < NEW_FOR


def in_turns(
    newcomers: Iterable[GroupSnapshot], waiting: Mapping[str, datetime] = MappingProxyType({})
) -> list[GroupSnapshot]:
    """Return the newcomers in turns from each host, of each the oldest first, after those that wait since some time."""
    ordered = sorted(newcomers, key=lambda one: (waiting.get(one.group_id, _NEVER), *_age(one)))
    taken: Counter[str | None] = Counter()
    turns = []
    for group in ordered:
        turns.append(taken[group.client_host])
        taken[group.client_host] += 1
    return [group for _, group in sorted(zip(turns, ordered, strict=True), key=itemgetter(0))]


def select(groups: Iterable[GroupSnapshot], most: int, now: datetime) -> list[GroupSnapshot]:
    """Return so many of the groups at most."""
    chosen = list(groups)
    if len(chosen) <= most:
        return chosen
    new = in_turns(group for group in chosen if is_newcomer(group, now))
    old = sorted((group for group in chosen if not is_newcomer(group, now)), key=_age)
    for_new = max(most - len(old), min(len(new), most // _SHARE))
    return [*old[: most - for_new], *new[:for_new]]


def ranks(groups: Mapping[str, GroupSnapshot], group_ids: Iterable[str], now: datetime) -> dict[str, int]:
    """Return the place of each newcomer among these groups, from 1 on; older groups have none."""
    wanted = (groups[one] for one in group_ids if one in groups)
    new = in_turns(group for group in wanted if is_newcomer(group, now))
    return {group.group_id: place for place, group in enumerate(new, 1)}


def _age(group: GroupSnapshot) -> tuple[datetime, str]:
    return group.first_seen_at or EPOCH, group.group_id


@dataclass(frozen=True)
class Newcomers:
    """The groups of a cluster that are new."""

    count: int
    since: datetime
    """When the first of them was seen."""
    prefix: str
    """What most of their ids begin with; empty if nothing."""
    hosts: Mapping[str, int]
    """The hosts with the most of them."""
    without_alerts: int = 0
    """So many of them have alerts of their own that are left out."""
    unjudged: int = 0
    """So many of them have waited for their verdict for some time."""
    unjudged_hosts: Mapping[str, int] = field(default_factory=dict)
    """The hosts with the most of those."""


def survey_newcomers(
    groups: Iterable[GroupSnapshot], now: datetime, without_alerts: int = 0, unjudged: Container[str] = ()
) -> Newcomers | None:
    """Return what is known of the groups that are new; None if there are none."""
    new = [group for group in groups if is_newcomer(group, now)]
    if not new:
        return None
    late = [group for group in new if group.group_id in unjudged]
    return Newcomers(
        len(new),
        min(group.first_seen_at or now for group in new),
        common_prefix([group.group_id for group in new]),
        _hosts(new),
        without_alerts,
        len(late),
        _hosts(late),
    )


def _hosts(groups: Iterable[GroupSnapshot]) -> dict[str, int]:
    """Return the hosts with the most of these groups."""
    hosts = Counter(host_of(group.client_host) or "an unknown host" for group in groups)
    return dict(hosts.most_common(_NAMED_HOSTS))


def common_prefix(group_ids: Sequence[str]) -> str:
    """Return the longest text with which four of five ids begin, of 100 characters at most."""
    enough = max(2.0, _COMMON * len(group_ids))
    ids: Collection[str] = group_ids
    prefix = ""
    while ids and len(prefix) < _LONGEST_PREFIX:
        place = len(prefix)
        following: dict[str, list[str]] = defaultdict(list)
        for one in ids:
            following[one[place : place + 1]].append(one)
        character, ids = max(following.items(), key=lambda item: len(item[1]))
        if not character or len(ids) < enough:
            break
        prefix += character
    return prefix
