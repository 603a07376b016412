"""Notifications: a sink of each kind, what is sent together and when, mutes, and the sinks' threads."""
