"""Real applications in each state that they get into: all commands equal Kafka's own tool, and the verdict is right."""

from tests.long.rig import Rig

_LONG_SESSION = {"streams.session.timeout.ms": 60_000}


def test_a_join_with_standbys_and_tags_rebalances_while_an_instance_is_frozen(rig: Rig) -> None:
    topics = {"orders": 4, "customers": 4, "by-region": 4}
    racks = {"streams.num.standby.replicas": 1, "streams.rack.aware.assignment.tags": "zone"}
    rig.client.configure_group("enriched", {**_LONG_SESSION, **racks})
    tagged = {"client.tag.zone": "a", "rack.aware.assignment.tags": "zone"}
    first = rig.application("enriched", "join", topics, "1", properties=tagged)
    second = rig.application("enriched", "join", topics, "2", properties={**tagged, "client.tag.zone": "b"})
    first.produce(on=True)
    group = rig.compared("enriched", first, second)
    rig.await_verdict("enriched", "Ok")
    first.produce(on=False)
    group.await_equal("Stable")
    rows = rig.rows("SELECT client_tags FROM members WHERE group_id = 'enriched'")
    assert {dict(row["client_tags"])["zone"] for row in rows} == {"a", "b"}
    first.freeze(on=True)
    third = rig.application("enriched", "join", topics, "3", properties={**tagged, "client.tag.zone": "a"})
    group.applications.append(third)
    group.await_equal("Reconciling", answering=False)
    first.freeze(on=False)
    group.await_equal("Stable")
    lines = rig.run("streams-groups describe enriched --members --verbose").splitlines()
    assert [sum(f"zone={zone}" in line for line in lines) for zone in "ab"] == [2, 1]
    processes = rig.copies("enriched")["processes"]
    assert sorted(one["client_tags"]["zone"] for one in processes) == ["a", "a", "b"]


def test_an_exactly_once_filter_and_a_global_table_are_equal_while_they_run_and_when_they_are_stopped(
    rig: Rig,
) -> None:
    exactly_once = {"processing.guarantee": "exactly_once_v2"}
    filtered = rig.application("filtered", "filter", {"events": 2, "passed": 2}, properties=exactly_once)
    located = rig.application("located", "global", {"sales": 2, "regions": 1, "located-sales": 2})
    for one in (filtered, located):
        one.produce(on=True)
        rig.await_verdict(one.application_id, "Ok")
        one.produce(on=False)
        rig.compared(one.application_id, one).await_equal("Stable")
        one.stop()
        rig.compared(one.application_id).await_equal("Empty")
        rig.await_verdict(one.application_id, "Off", "Idle")


def test_a_topic_that_is_deleted_under_an_application_is_down_and_well_again_once_it_is_back(rig: Rig) -> None:
    rig.client.configure_group("orphaned", _LONG_SESSION)
    topics = {"lines": 2, "counts": 2}
    one = rig.application("orphaned", "words", topics)
    one.produce(on=True)
    rig.await_verdict("orphaned", "Ok")
    rig.client.delete_topics(["lines"])
    group = rig.compared("orphaned", one)
    group.await_equal("NotReady", answering=False)
    rig.await_verdict("orphaned", "Down")
    one.kill()
    again = rig.application("orphaned", "words", topics, "2")
    again.produce(on=True)
    group.applications = [again]
    rig.await_verdict("orphaned", "Ok")
    again.produce(on=False)
    group.await_equal("Stable", answering=False)
