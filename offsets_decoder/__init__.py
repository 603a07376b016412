"""Bytes of `__consumer_offsets` to records, with Construct. No Spark and no I/O may live here."""
