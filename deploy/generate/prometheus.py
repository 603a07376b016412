"""The alert rules of Prometheus about the verdicts on groups, made of the rules of the job.

They stand between two comments in `deploy/prometheus/streams-groups.rules.yml`; the other rules are written by hand.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from streaming_app.alerts.health_rules import HEALTH_RULES, HealthRule
from streaming_app.health.verdict import VERDICTS

PAGE = Path(__file__).parents[2] / "deploy" / "prometheus" / "streams-groups.rules.yml"
RUNBOOK = "https://streams-groups.example/RUNBOOK.md"
"""Where the rules say that the runbook is; the chart has `prometheusRule.runbookUrl` instead, a link to your copy."""
_INDENT = " " * 6


def page() -> str:
    """Return the text of the whole file."""
    rules = "".join(map(_rule, HEALTH_RULES))
    return re.sub(
        r"(# verdicts, written by .*?\n).*?(      # end of verdicts\n)",
        lambda match: match[1] + rules + match[2],
        PAGE.read_text("utf-8"),
        flags=re.DOTALL,
    )


def _rule(rule: HealthRule) -> str:
    about = f"{VERDICTS[rule.verdict]} Run `streams-groups why --group {{{{ $labels.group }}}}` to see why."
    lines = (
        f"- alert: {rule.name}",
        f'  expr: streams_group_health{{verdict="{rule.verdict}", severity!="none"}} == 1',
        "  labels:",
        '    severity: "{{ $labels.severity }}"',
        "  annotations:",
        "    summary: >-",
        f"      {{{{ $labels.group }}}} is {rule.verdict}",
        "    description: >-",
        *textwrap.wrap(about, 100, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False),
        f"    runbook_url: {RUNBOOK}#{rule.name.lower()}",
    )
    return "".join(f"{_INDENT}{line}\n" for line in lines)
