"""The actions of a history that are about records and offsets."""

from __future__ import annotations

from collections.abc import Iterable

from tests.histories.clients import START, Clients
from tests.histories.traffic import PASS, Partition, Traffic

_SUBTOPOLOGY = "0"
SWEEP, OFFSETS_KEPT = 600.0, 7 * 86_400.0  # seconds, the defaults of the release


class TrafficActions(Clients):
    """Actions on the topics that a group reads, and on how it processes them."""

    def read(
        self,
        group: str = "app",
        *,
        rate: float = 10.0,
        capacity: float = 50.0,
        commit_interval: float = PASS,
        transactional: bool = False,
        restore_seconds: float = 0.0,
        log_of: str | None = None,
        begins: str = "earliest",
        keeps_seconds: float | None = None,
    ) -> None:
        """Let records be produced into the topics of a group, which processes them; the job sees it at each pass.

        With `log_of` it reads the same logs as another group, and `begins` there as `Traffic` says.
        """
        made = Traffic(self._groups[group], rate, capacity, commit_interval, transactional, restore_seconds)
        made.log_of, made.begins, made.keeps_seconds = self._traffic.get(log_of or ""), begins, keeps_seconds
        if not self._traffic:
            self._after(SWEEP, self._clean_up)
        self._traffic[group] = made
        self._at(self.now - self.now % PASS + PASS, lambda: self._pass(made))

    def stop(self, name: str) -> None:
        """Stop an instance in an orderly way: it commits, and its members leave."""
        if traffic := self._traffic.get(self._instances[name].group.group_id):
            traffic.step(self.now, self._running(traffic))
            traffic.close(name, self.now)
        super().stop(name)

    def crash(self, name: str) -> None:
        """Let the threads of an instance end with an exception: its members leave, and nothing is committed."""
        super().stop(name)

    def change(self, group: str = "app", **values: float) -> None:
        """Change `rate`, `capacity` or another number of `read`."""
        for name, value in values.items():
            setattr(self._traffic[group], name, value)

    def stick(
        self, partitions: Iterable[int] | None = None, *, commits_again: bool = False, group: str = "app"
    ) -> None:
        """Let partitions make no progress: a record that is tried again and again, or a topic that is not read."""
        for one in self._traffic[group].of(partitions):
            one.is_stuck, one.commits_again = True, commits_again

    def hang_processing(self, name: str, *, hung: bool = True, group: str = "app") -> None:
        """Let the threads of an instance hang, or go on; its heartbeats go on."""
        (self._traffic[group].hung.add if hung else self._traffic[group].hung.discard)(name)

    def lose_leaders(self, partitions: Iterable[int], seconds: float, *, group: str = "app") -> None:
        """Let the broker that leads these partitions be away for so long, without another one that could lead them."""
        self._traffic[group].without_leader |= dict.fromkeys(partitions, self.now + seconds)

    def retention(self) -> dict[str, float]:
        """Return how many seconds each topic keeps its records, of those that do not keep them for ever."""
        return {
            topic: one.keeps_seconds
            for one in self._traffic.values()
            if one.keeps_seconds is not None
            for topic in one.group.sources
        }

    def delete_records(self, *, group: str = "app") -> None:
        """Let retention delete all records but the newest hundred of each partition."""
        for one in self._traffic[group].of(None):
            one.start = max(one.start, one.end - 100)

    def end_transaction(self, offsets: int, *, denied: bool = False, group: str = "app") -> None:
        """Write so many offsets of markers and aborted records after the last record of each partition.

        With `denied` the job may not read the topic.
        """
        for one in self._traffic[group].of(None):
            one.trailing, one.trailing_is_denied = offsets, denied

    def expire_all(self, *, group: str = "app") -> None:
        """Let retention delete everything, up to the end of each log."""
        for one in self._traffic[group].of(None):
            one.start = one.end + one.trailing

    def truncate(self, partitions: Iterable[int], to: float, *, group: str = "app") -> None:
        """Let a log end at an offset, as after an unclean election; the group stays where it is."""
        for one in self._traffic[group].of(partitions):
            one.end, one.is_stuck = to, True

    def recreate_topics(self, *, group: str = "app") -> None:
        """Delete the topics and create them again, with the same number of partitions."""
        self._traffic[group].recreate(self.now)

    def go_back(self, partitions: Iterable[int] | None = None, *, by: float = 5_000.0, group: str = "app") -> None:
        """Commit lower offsets and go on from there."""
        for one in self._traffic[group].of(partitions):
            one.position = max(0.0, one.position - by)
            one.committed, one.committed_at = int(one.position), self.now

    def leave_over(self, topic: str, *, group: str = "app") -> None:
        """Leave the offsets of a topic that the group does not read any more, and that is still written."""
        self._traffic[group].left_over[topic, 0] = Partition(committed=0, committed_at=self.now)

    def _clean_up(self) -> None:
        """Delete groups without members and offsets, as brokers do at intervals; offsets expire before that."""
        for group_id, traffic in self._traffic.items():
            group = self._groups[group_id]
            if group.members or not group.exists:
                traffic.empty_since = None
                continue
            traffic.empty_since = self.now if traffic.empty_since is None else traffic.empty_since
            if self.now - traffic.empty_since > OFFSETS_KEPT:
                traffic.forget()
            if all(one.committed is None for one in traffic.partitions.values()):
                group.delete()
        self._after(SWEEP, self._clean_up)

    def _pass(self, traffic: Traffic) -> None:
        traffic.group = self._groups[traffic.group.group_id]
        if not traffic.group.exists:
            traffic.forget()
        traffic.step(self.now, self._running(traffic))
        clock = self._clock.get(traffic.group.group_id, self._clock_of_all)
        self.lag.append(traffic.seen(self.now, START.timestamp() + clock))
        self._after(PASS, lambda: self._pass(traffic))

    def _running(self, traffic: Traffic) -> dict[int, str]:
        """Return the instance that runs the task of each partition."""
        running = {
            member.member_id: instance.name for instance in self._instances.values() for member in instance.members
        }
        return {
            number: running[member.member_id]
            for member in traffic.group.members.values()
            for subtopology, number in member.tasks
            if subtopology == _SUBTOPOLOGY and member.member_id in running
        }
