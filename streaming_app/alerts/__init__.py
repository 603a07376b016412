"""Alerts at run time: the loop that looks, the table that remembers, the sinks that tell. Rules are in `core/`."""
