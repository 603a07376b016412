"""Notifications: a sink of each kind, what is sent together and when, their text, and mutes."""
