"""What `check` says is hidden, and the command that grants the right."""

from streaming_app.checks.hidden import hidden_parts


def test_what_is_hidden_is_counted_by_the_right_that_is_missing_with_the_command_that_grants_it() -> None:
    errors = {
        "GROUP_AUTHORIZATION_FAILED": {"group a", "group b c"},
        "TOPIC_AUTHORIZATION_FAILED": {f"t{n}" for n in range(9)},
        "whether records wait (TOPIC_AUTHORIZATION_FAILED)": {"orders"},
        "LEADER_NOT_AVAILABLE": {"away"},
    }
    found = list(hidden_parts(errors))
    assert [(one.right, one.kind, len(one.names)) for one in found] == [
        ("Describe", "group", 2),
        ("Describe", "topic", 9),
        ("Read", "topic", 1),
    ]
    groups, topics, unread = (one.line for one in found)
    command = "grant it with kafka-acls.sh --add --allow-principal User:... --operation"
    assert groups.startswith("2 groups may not be described (a, b c): ")
    assert groups.endswith(f"; {command} Describe --group a --group 'b c'")
    assert topics.endswith(f"; {command} Describe --topic '*'")
    assert unread.endswith(f"; {command} Read --topic orders")
    assert not list(hidden_parts({}))
