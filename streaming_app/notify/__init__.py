"""Notifications: the kinds of sinks, which alerts are sent together and when, the texts, and mutes."""
