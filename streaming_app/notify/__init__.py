"""Notifications: a sink of each kind, what is sent together and when, silences, summaries, and the sinks' threads."""
