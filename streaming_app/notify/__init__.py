"""Notifications: which are sent together and when, silences, daily summaries, and a thread for each sink."""
