"""The defaults that both `Settings` and the --help of the commands need. Constants only."""

from streaming_app.groups.partition import OFFSETS_TOPIC

WAREHOUSE = "warehouse"
CLUSTER = "default"
TOPIC = OFFSETS_TOPIC
TRIGGER_SECONDS = 0.5
