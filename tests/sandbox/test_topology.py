from streaming_app.sandbox.member import build_description, internal_topic, subtopology, topology


def test_copartition_groups_are_given_by_name_and_sent_as_indexes_of_the_sorted_lists() -> None:
    built = subtopology(
        "1",
        source_topics=["orders", "accounts"],
        source_topic_regex=["audit-.*"],
        repartition_source_topics=[internal_topic("z"), internal_topic("by-key")],
        copartition_groups=[["orders", "by-key"], ["accounts", "audit-.*"]],
    )
    assert built["source_topics"] == ["accounts", "orders"]
    assert [topic["name"] for topic in built["repartition_source_topics"]] == ["by-key", "z"]
    assert built["copartition_groups"] == [
        {"source_topics": [1], "source_topic_regex": [], "repartition_source_topics": [0]},
        {"source_topics": [0], "source_topic_regex": [0], "repartition_source_topics": []},
    ]


def test_a_description_has_the_sources_stores_and_sinks_of_its_topology() -> None:
    part = subtopology(
        "0",
        source_topics=["in"],
        repartition_source_topics=[internal_topic("app-by-key-repartition")],
        repartition_sink_topics=["app-other-repartition"],
        state_changelog_topics=[internal_topic("app-totals-changelog")],
    )
    (described,) = build_description(topology(part))["subtopologies"]
    source, processor, sink = described["nodes"]
    assert [node["node_type"] for node in described["nodes"]] == [1, 2, 3]
    assert source["source_topics"] == ["in", "app-by-key-repartition"]
    assert source["successors"] == [processor["name"]]
    assert processor["stores"] == ["app-totals"]
    assert processor["successors"] == [sink["name"]]
    assert sink["sink_topic"] == "app-other-repartition"
