"""Commands and options of 0.2.0 that this release removed. Each one prints what to use instead, and exits with 2."""

from __future__ import annotations

import click

from streaming_app.cli.printing import LineError

INSTEAD = {
    "config": "`streams-groups check --show-config`, with --json instead of --format json",
    "copies": "`streams-groups describe GROUP --copies`",
    "diff": "`streams-groups history GROUP --topology`, with the same --from",
    "incidents": "`streams-groups alerts`, and `streams-groups alerts end ID --reason retired`",
    "report": "`streams-groups why --group ID --json` has the evidence",
    "silence": "`streams-groups alerts mute PATTERN --for 2h`, and --for 0s ends it; Alertmanager can silence one rule",
    "alerts --silenced": "`streams-groups alerts --check --muted`",
    "alerts backtest": "nothing replaces it",
    "run --profile": "the metric `streams_groups_job_batch_seconds_total` has the duration of each phase of batches",
    "init": "`streams-groups check --write-config FILE`",
    "jars": "`streams-groups check --fetch-jars DIR`, and the job verifies its jars at each start",
    "quarantine": "`streams-groups status` shows groups that are set aside, and --release GROUP reads one again",
    "web --bootstrap-server": "the page asks no broker, it shows the table `descriptions`",
    "web --command-config": "the page asks no broker, it shows the table `descriptions`",
    "demo --story": "`streams-groups demo --web`",
    "demo --pace": "`streams-groups demo --web`",
}
"""Removed command, or command and option -> what to use instead."""


class CommandGroup(click.Group):
    """A group of commands that also knows the removed ones in `INSTEAD`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name. Raises UsageError, also for a removed one."""
        command = " ".join([*ctx.command_path.split()[1:], args[0]])
        for path in (command, *(f"{command} {one.partition('=')[0]}" for one in args[1:])):
            if path in INSTEAD:
                raise LineError(f"`{path}` was removed: {INSTEAD[path]}.")
        return super().resolve_command(ctx, args)
