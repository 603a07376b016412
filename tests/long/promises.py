"""What users have been promised, the tests that hold it, and for each promise a defect that these tests must find.

`test_promises.py` puts each defect into a copy of the project and runs the tests there. The table of CONTRIBUTING is
made from this list.
"""

from typing import NamedTuple


class Promise(NamedTuple):
    """A promise, the test that fails without it, and a defect that breaks it: `before` becomes `after` in a file."""

    promise: str
    test: str
    file: str
    before: str
    after: str


PROMISES = (
    Promise(
        "Rows are equal to the broker's.",
        "tests/recorded/test_recorded.py::test_the_tables_match_the_descriptions_of_the_broker",
        "streaming_app/groups/state_rules.py",
        "lambda g: (g.group_epoch or 0) > g.assignment_epoch_or_first",
        "lambda g: (g.group_epoch or 0) >= g.assignment_epoch_or_first",
    ),
    Promise(
        "Nothing is doubled, however often the job reads a record.",
        "tests/groups/test_fold_properties.py::test_what_is_read_twice_changes_nothing",
        "streaming_app/groups/fold.py",
        "            if record.offset > self.group.last_offset:\n",
        "            if True:\n",
    ),
    Promise(
        "Nothing is lost or overwritten when another job takes over.",
        "tests/tables/test_fence.py::test_a_write_of_an_earlier_term_is_refused_wherever_it_was_paused",
        "streaming_app/tables/fence.py",
        "        if term_in(table, self.application) > self.term:\n            self._refuse()",
        "        term_in(table, self.application)",
    ),
    Promise(
        "Of two jobs for one cluster one is active, and the other one waits until it is gone.",
        "tests/job/test_owner.py::test_a_job_waits_while_signs_come_and_takes_over_after_the_last_one",
        "streaming_app/job/owner.py",
        "            self._seen, self._seen_at = seen, now",
        "            self._seen = seen",
    ),
    Promise(
        "History of records that the brokers lost is marked as void.",
        "tests/stream/test_truncation.py",
        "streaming_app/stream/truncation.py",
        ">= {cut.start} AND",
        "> {cut.start} AND",
    ),
    Promise(
        "A group that is read again keeps the facts that only its row proves.",
        "tests/stream/test_marked_rows.py",
        "streaming_app/groups/marked_rows.py",
        '    group.first_seen_at = group.first_seen_at or row["first_seen_at"]\n',
        "",
    ),
    Promise(
        "Damage to what the job remembers costs a batch at most.",
        "tests/stream/test_stream_state.py",
        "streaming_app/stream/stream_state.py",
        """if found["crc32"] == _sum(found["state"]):""",
        """if found["state"]:""",
    ),
    Promise(
        "Committed offsets that are read again stand until they are replaced.",
        "tests/stream/test_start_decisions.py::"
        "test_commits_that_are_read_again_stand_until_they_are_appended_again_or_the_log_has_none",
        "streaming_app/stream/start.py",
        "(tables.mark if marked_until else tables.delete)(outdated)",
        "tables.delete(outdated)",
    ),
    Promise(
        "A record that cannot be folded goes to quarantine, and stops no other.",
        "tests/stream/test_fold_stage.py::"
        "test_a_record_that_cannot_be_folded_goes_to_quarantine_and_the_other_records_count",
        "streaming_app/stream/fold_stage.py",
        "            self._refuse(row, error)\n            self._fold_again()\n            self._take",
        "            self._fold_again()\n            self._take",
    ),
    Promise(
        "A batch is complete or it has failed.",
        "tests/relations/test_e_fold.py::test_an_error_while_reading_fails_the_batch_wherever_it_comes",
        "streaming_app/stream/fold_stage.py",
        "    for batch in batches:\n        for part in _parts(batch):\n",
        "    import contextlib\n\n    with contextlib.suppress(Exception):\n      for batch in batches:\n"
        "        for part in _parts(batch):\n",
    ),
    Promise(
        "A group that is too large is set aside alone.",
        "tests/stream/test_set_aside.py",
        "streaming_app/groups/budget.py",
        "if size > most\n",
        "if size > most and not group.members\n",
    ),
    Promise(
        "In an object store a batch is written once, whoever writes it first.",
        "tests/tables/test_kept_table.py::test_a_batch_that_another_process_has_written_meanwhile_is_not_written_again",
        "streaming_app/tables/rust_table.py",
        "        return written is not None and written >= self.number",
        "        return False",
    ),
    Promise(
        "A user's own Spark session is enough.",
        "tests/job/test_given_session.py::"
        "test_read_committed_in_the_client_properties_does_not_stop_the_reading_at_an_open_transaction",
        "streaming_app/stream/source.py",
        '"isolation.level": "read_uncommitted"',
        '"isolation.level": "read_committed"',
    ),
    Promise(
        "The job runs for months: files that no version needs are removed.",
        "tests/tables/test_old_files.py::test_after_many_commits_the_files_are_those_of_the_versions_within_retention",
        "streaming_app/tables/maintenance.py",
        "    current.table.vacuum(dry_run=False)\n    current.table.create_checkpoint()",
        "    current.table.create_checkpoint()",
    ),
    Promise(
        "An upgrade loses and doubles nothing, whatever happens meanwhile.",
        "tests/upgrade/test_upgrade.py::test_what_other_jobs_commit_meanwhile_is_kept",
        "streaming_app/tables/upgrade_steps.py",
        "        if one.name in still:",
        "        if one.name:",
    ),
    Promise(
        "Each group has one verdict: one that is NotReady beyond its time is Down.",
        "tests/health/test_verdict.py::test_not_ready_beyond_its_time_is_down_whatever_waits",
        "streaming_app/health/conditions.py",
        "    if since is None:\n        return None\n    reason",
        "    if since is None or facts.waits is None:\n        return None\n    reason",
    ),
    Promise(
        "Old groups are watched: also one whose creation is no longer in the log.",
        "tests/relations/test_c_compacted_logs.py::"
        "test_a_compacted_log_brings_the_same_verdicts_and_alerts_as_the_whole_one",
        "streaming_app/health/conditions.py",
        "    if facts.group.state != EMPTY or facts.successor:\n",
        "    if facts.group.state != EMPTY or facts.successor or facts.group.first_seen_at is None:\n",
    ),
    Promise(
        "What is hidden is not well.",
        "tests/relations/test_hidden.py::test_what_is_hidden_makes_nothing_better_and_changes_no_other_group",
        "streaming_app/health/judge.py",
        "    is_part = bool(work.unknown) and (",
        "    is_part = False and (",
    ),
    Promise(
        "Page, commands and SQL say the same.",
        "tests/web/test_same_numbers.py::test_page_commands_and_sql_say_the_same",
        "streaming_app/queries/group_list.py",
        "        kinds.append(OTHERS)\n",
        "        pass\n",
    ),
    Promise(
        "An unknown value is null, never 0.",
        "tests/queries/test_lag.py::test_metrics_are_the_same_sums",
        "streaming_app/metrics/lag_metrics.py",
        "    lag: int | None = None",
        "    lag: int | None = 0",
    ),
    Promise(
        "`verify` finds a row that differs from the broker's.",
        "tests/checks/test_compare.py::test_every_field_that_differs_is_reported",
        "streaming_app/checks/compare.py",
        "if ours[path] != theirs[path]}",
        "if ours[path] != ours[path]}",
    ),
    Promise(
        "The demo shows real groups in every state.",
        "tests/sandbox/test_demo_groups.py::test_the_demo_shows_every_state_that_a_group_can_have",
        "streaming_app/sandbox/demo_groups.py",
        'return DemoGroup("nightly-settlement", "Empty",',
        'return DemoGroup("nightly-settlement", "Stable",',
    ),
    Promise(
        "Text of tenants is escaped for each reader.",
        "tests/cli/test_hostile_text.py",
        "streaming_app/text.py",
        '    return "".join(one if is_visible(one) else one.encode("unicode_escape").decode("ascii") for one in text)',
        "    return text",
    ),
)
