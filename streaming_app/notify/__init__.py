"""Notifications: the kinds of sinks, the decision which alerts are sent together and when, the texts, and mutes."""
