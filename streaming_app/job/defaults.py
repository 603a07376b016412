"""What the job does unless told otherwise: for the command's --help and for `JobConfig`. Constants only."""

TOPIC = "__consumer_offsets"
TRIGGER_SECONDS = 0.5
MAX_OFFSETS_PER_TRIGGER = 10_000_000
RETENTION_DAYS = 30.0
