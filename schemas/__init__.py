"""Data only: one file per record of `__consumer_offsets`, per table and per request, and the functions that load them."""
