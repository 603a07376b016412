"""How the page writes names, numbers, and the states, statuses and labels of groups. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from streaming_app.health.verdict import BEHIND, DOWN, LOSING, OK, RESTORING, STALLED, UNKNOWN, UNSTABLE, VERDICTS
from streaming_app.queries.history import act_text
from streaming_app.text import digest, escape, host_of

_MAX_SHOWN = 96  # characters of a name in a table
_TAIL = 16
_MAX_IN_URL = 500  # bytes of a group id in a URL or a form
NOTHING = "\N{EN DASH}"
"""What is shown where there is no value."""


class Meaning(NamedTuple):
    """How the page shows a state or a status: the class of its colour, and its meaning in one sentence."""

    tone: str
    """`bad`, `warning`, `busy`, `good`, `idle` or `unknown`."""
    text: str


STATES = {
    "NotReady": "Its topology cannot run: the group has members, and they have no tasks.",
    "Reconciling": "Members revoke and take over tasks until they have their target assignment.",
    "Assigning": "The coordinator computes a new assignment.",
    "Unknown": "The log does not contain the group's state: Kafka 4.1 does not write it, or it was not read yet.",
    "Empty": "The group has no members.",
    "Stable": "Every member has its target assignment.",
    "Dead": "The group was deleted.",
}
"""What the states of the protocol mean. They have no colours, as they do not say whether records are processed."""
_TONES = {
    **dict.fromkeys((LOSING, DOWN, STALLED), "bad"),
    **dict.fromkeys((BEHIND, UNSTABLE), "warning"),
    RESTORING: "busy",
    UNKNOWN: "unknown",
    OK: "good",
}
HEALTH = {name: Meaning(_TONES.get(name, "idle"), text) for name, text in VERDICTS.items()}
DESCRIPTIONS = {
    "CURRENT": Meaning("good", "The broker stores a description of this topology."),
    "FAILED": Meaning("bad", "The broker rejected the description of this topology, and does not ask for it again."),
    "UNCERTAIN": Meaning("unknown", "A member has sent a description, and whether it was stored is not known."),
    "NEVER_STORED": Meaning("idle", "The broker has never stored a description of this group."),
    "STALE": Meaning("busy", "The stored description is one of another topology epoch."),
    "NO_TOPOLOGY": Meaning("idle", "The group has no topology."),
}
NO_MEANING = Meaning("unknown", "")
"""Of a status of a later release."""
CAUSES = {
    "member_joined": "a member joined",
    "member_left": "a member left or timed out",
    "member_replaced": "a member was replaced",
    "rack": "a member has another rack",
    "tags": "a member has other client tags",
    "process": "a member has another process",
    "topics_changed": "the topics changed",
    "config_changed": "the configuration changed",
    "topology_changed": "the topology changed",
    "while_empty": "while the group was Empty",
    "while_running": "while the group had members",
    "expired": "they were older than the brokers keep them",
    "deleted": "somebody deleted them, or their topic",
    "group_deleted": "the group was deleted",
    "deleted_or_expired": "deleted or expired",
    "warmup": "a step of warm-ups, no active or standby task moved",
    "protocol_changed": "the application changed its protocol",
    "no_task_moved": "no active or standby task moved",
    "unknown": "the log does not say why",
}


def health_meaning(verdict: str) -> Meaning:
    """Return how a verdict is shown; a verdict of a later release as unknown."""
    return HEALTH.get(verdict, NO_MEANING)


def event_text(event: Mapping[str, Any]) -> str:
    """Return one event in words, without its time."""
    kind, old, new = event["kind"], event["old"], event["new"]
    name = "member left or timed out" if kind == "member_left" else kind.replace("_", " ")
    if kind in {"created", "deleted"}:
        text = name
    elif kind == "unsolicited_push":
        text = "description sent that the broker had not asked for"
    elif kind in {"member_joined", "member_left"}:
        host = host_of(event.get("client_host"))
        text = f"{name} ({host})" if host else name
    elif event.get("topic"):
        text = f"{name}: {act_text(event)}"
    elif kind == "deployment":
        text = f"deployment of {new}"
    elif kind == "not_ready_reason":
        text = f"reason: {new}" if new else "reason no longer holds"
    else:
        ends = [NOTHING if one is None else one for one in (old, new)]
        text = f"{name}: {' → '.join(ends if old is not None else ends[1:])}"
    causes = causes_text(event["cause"])
    return f"{text} ({causes})" if causes else text


def causes_text(causes: str | None) -> str:
    """Return the causes of a column `cause` in words; empty for none."""
    return ", ".join(CAUSES.get(one, one) for one in causes.split(",")) if causes else ""


def short_name(name: str, limit: int = _MAX_SHOWN) -> str:
    """Return a name on one line, without invisible characters, in `limit` (24 or more) characters.

    A longer name loses its middle. Different names stay different.
    """
    shown = escape(name[: 2 * limit] + name[-limit:] if len(name) > 3 * limit else name)
    if len(shown) <= limit and len(name) <= limit:
        return shown or "(empty name)"
    differs = digest(name, 6)
    end = f" ({len(name):,} characters, {differs})" if limit >= _MAX_SHOWN else f" ({differs})"
    room = limit - len(end) - 1
    tail = min(_TAIL, room // 2)
    return f"{shown[: room - tail]}…{shown[-tail:]}{end}"


def group_key(group_id: str) -> str:
    """Return a key for a group in a URL, for an id that is too long for it."""
    return digest(group_id, 32)


def group_fields(group_id: str, **others: str | int | None) -> dict[str, str | int]:
    """Return parameters for a URL or a form about this group, without those that are None.

    HTML changes some characters in values of forms: such an id, and one that is too long, is addressed by its hash.
    """
    is_plain = group_id.isprintable() and len(group_id.encode()) < _MAX_IN_URL
    named = {"id": group_id} if is_plain else {"key": group_key(group_id)}
    return {**named, **{name: value for name, value in others.items() if value is not None}}


def group_query(group_id: str, **others: str | int | None) -> str:
    """Return the query part of a URL with these parameters."""
    return urlencode(group_fields(group_id, **others))


def number(value: float | None) -> str:
    """Return a whole number with separators, a dash for None."""
    return NOTHING if value is None else f"{round(value):,}"


def label_text(label: tuple[str, str]) -> str:
    """Return a label as it is written in a URL and shown."""
    name, value = label
    return f"{name}:{value}"
