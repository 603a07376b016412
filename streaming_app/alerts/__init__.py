"""Alerts at run time: evaluation of the rules every few seconds, the `alerts` table, and the notifications."""
