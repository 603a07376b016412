"""Tests on a real broker that are new in a release, ten times each, while other tests load the machine.

ROUNDS is how often. A test that fails once waits for something by time, or expects an order that nothing gives.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROUNDS = int(os.environ.get("ROUNDS", "10"))
TESTS = {
    "tests/job/test_broker_facts.py": (
        "test_an_overdue_transaction_on_the_offsets_topic_is_a_fact_and_one_line_until_it_ends",
    ),
    "tests/job/test_descriptions.py": (
        "test_groups_whose_coordinator_is_away_do_not_keep_the_others_from_being_asked",
    ),
    "tests/job/test_first_look.py": (
        "test_a_group_that_waits_for_a_transaction_is_counted_and_stalled_once_that_is_open_for_too_long",
        "test_the_groups_are_counted_by_verdict_and_the_bad_ones_named_and_none_is_a_line",
    ),
    "tests/job/test_lag_pass.py": (
        "test_a_transaction_upstream_is_no_outage_of_its_readers_until_it_is_open_for_longer_than_one_may_be",
        "test_what_came_before_the_start_of_the_job_waits_for_members_that_never_committed",
    ),
    "tests/security/test_check.py": (
        "test_what_the_job_would_say_names_the_groups_and_topics_that_are_hidden_from_it",
    ),
    "tests/security/test_hidden.py": (
        "test_a_commit_that_is_open_or_aborted_ends_no_wait_of_a_group_that_may_not_be_described",
        "test_a_group_that_may_not_be_described_ends_the_description_of_no_other",
        "test_a_group_with_a_topic_that_may_not_be_described_is_not_idle_and_its_sum_is_a_lower_bound",
    ),
}
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", range(ROUNDS))
def test_no_new_test_fails_in_any_round(number: int) -> None:
    names = [f"{file}::{name}" for file, of_file in TESTS.items() for name in of_file]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (number, done.stdout[-5_000:])
