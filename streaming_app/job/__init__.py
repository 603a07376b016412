"""The Spark job: a thin shell around the core. Nothing outside this folder (and `open_warehouse`) starts Spark."""
