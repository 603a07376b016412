"""Since when the cluster keeps topology descriptions (KIP-1331): the one place that decides it.

A missing description is worth an alert only where the brokers have a description plugin. The setting
`alerts.descriptions` decides it, or, with `auto`, one of these is evidence: the brokers' configuration names a plugin,
a group's records prove a push, or an earlier run of the job found either. It ends once the brokers' configuration was
read and names none, until there is newer evidence: what the plugin stored before stays in the groups' records.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Literal

from streaming_app.alerts.survey import ClusterSurvey

DescriptionMode = Literal["auto", "always", "never"]

_EPOCH = datetime.fromtimestamp(0, timezone.utc)


class DescriptionSupport:
    """Whether and since when the cluster keeps descriptions; with `auto` it keeps the earliest time of any evidence.

    This time stays known if the group with the evidence is deleted: the heartbeat file keeps `known_since` across
    restarts.
    """

    def __init__(self, mode: DescriptionMode, *, known_since: datetime | None = None) -> None:
        """Start from what an earlier run knew."""
        self._mode = mode
        self._plugin_since: datetime | None = None
        self._removed_at: datetime | None = None
        self.known_since = known_since

    @property
    def required(self) -> bool:
        """Every group is to have a description, whether it is known to be able to send one or not."""
        return self._mode == "always"

    def plugin_found(self, at: datetime) -> None:
        """Record that the brokers' configuration named a plugin at this time."""
        self._plugin_since = self._plugin_since or at
        self._removed_at = None

    def plugin_absent(self, at: datetime) -> None:
        """Record that the brokers' configuration was read at this time and named no plugin."""
        self._plugin_since = self.known_since = None
        self._removed_at = self._removed_at or at

    def since(self, survey: ClusterSurvey) -> datetime | None:
        """Return since when the cluster keeps descriptions; None if it does not, or there is no evidence yet."""
        if self._mode == "never":
            return None
        if self._mode == "always":
            return _EPOCH
        pushed_at = survey.newest_push_at
        if self._removed_at is None:
            evidence = survey.plugin_since
        else:  # only what came after that is evidence
            evidence = pushed_at if pushed_at and pushed_at > self._removed_at else None
        known = (self.known_since, self._plugin_since, evidence)
        self.known_since = min((since for since in known if since), default=None)
        return self.known_since
