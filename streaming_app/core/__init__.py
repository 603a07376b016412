"""The pure core: what a streams group is, and what a record of the log does to it.

No pyspark, no clock and no I/O may be imported here; `tests/test_layers.py` sees to it.
"""
