"""`describe --topology --description` with a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable

from click.testing import CliRunner, Result

from streaming_app.cli.main import main
from streaming_app.groups.description import describe_topology
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.member import SimulatedMember, build_description, settle, subtopology, topology


def fetch(broker: Broker, group_id: str, *options: str) -> Result:
    arguments = ["--group", group_id, "--topology", "--description", "--bootstrap-server", broker.bootstrap_server]
    return CliRunner().invoke(main, ["describe", *arguments, *options])


def test_a_description_that_the_broker_stores_is_printed_and_one_that_it_does_not_is_a_line(
    broker: Broker, client: StreamsGroupClient, group_id: str, unique: Callable[[str], str]
) -> None:
    topic = unique("in")
    client.create_topic(topic, 2)
    described = topology(subtopology("0", source_topics=[topic]))
    member = SimulatedMember(client, group_id, described)
    member.join()
    settle([member])
    before = fetch(broker, group_id)
    assert (before.exit_code, before.stdout, before.stderr.count("\n")) == (1, "", 1)
    assert before.stderr.startswith(f"Error: No topology description of {group_id}: its broker has no plugin")
    assert before.stderr.endswith("(NOT_STORED)\n")
    member.push_description()
    after = fetch(broker, group_id)
    assert (after.exit_code, after.stderr) == (0, "")
    assert after.stdout == describe_topology(build_description(described))
    printed = json.loads(fetch(broker, group_id, "--json").stdout)
    assert (printed["status"], printed["description"]["subtopologies"][0]["subtopology_id"]) == ("AVAILABLE", "0")
    unknown = fetch(broker, unique("unknown"))
    assert (unknown.exit_code, unknown.stdout, unknown.stderr.count("\n")) == (1, "", 1)
    assert "GROUP_ID_NOT_FOUND" in unknown.stderr or "not found" in unknown.stderr
