"""A metrics server in a process of its own with few file descriptors: `python -m tests.web.small_server LIMIT`.

Prints the URL of the server, and serves until standard input is closed. No time passes for it meanwhile.
"""

import resource
import sys

from streaming_app.config.sections import MetricsSettings
from streaming_app.metrics.collector import make_registry
from streaming_app.stream.job_state import JobState
from streaming_app.web.monitoring import monitoring_server
from tests.support.metrics_harness import group, scraped
from tests.web.server_clock import ServerClock


def main(limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    health = JobState()
    registry = make_registry(scraped([group(f"group-{n}") for n in range(100)], health=health), MetricsSettings())
    server = monitoring_server("127.0.0.1:0", registry, health, "prod")
    server.start()
    clock = ServerClock(server)
    print(server.url, flush=True)
    sys.stdin.read()
    clock.resume()
    server.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
