"""The figures that occur in several files of `deploy/` and in documents, such as the version, ports and memory.

Each figure has one source: a value in the code, or a line below. A pattern says where a file repeats it; `@` is its
place.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from offsets_decoder.definitions import load_toml
from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.jvm.spark_session import MAX_CORES

ROOT = Path(__file__).parents[2]
_VALUE = r"\d+(?:\.\d+)*"
_VALUES = "deploy/charts/streams-groups/values.yaml"
_IMAGE = "streams-groups:@"


class Figure(NamedTuple):
    """A value, and by file the patterns in which it occurs, each at least once."""

    value: str
    places: Mapping[str, tuple[str, ...]]


def version() -> str:
    """Return the version of the package."""
    return str(load_toml(ROOT / "pyproject.toml")["project"]["version"])


FIGURES: Mapping[str, Figure] = {
    "version of the package": Figure(
        version(),
        {
            "deploy/Dockerfile": (_IMAGE, "ARG VERSION=@\n"),
            "deploy/README.md": (_IMAGE,),
            "deploy/compose.yaml": (_IMAGE,),
            "deploy/charts/streams-groups/Chart.yaml": ("\nversion: @\n", "\nappVersion: @\n"),
        },
    ),
    "release of Kafka": Figure(KAFKA_VERSION, {"deploy/compose.yaml": ("image: apache/kafka:@\n",)}),
    "port of the metrics": Figure(
        "9464",
        {
            "deploy/image/config.yaml": ("listen: 0.0.0.0:@\n",),
            "deploy/Dockerfile": ("EXPOSE @\n",),
            "deploy/image/health.py": ("for port in (@,",),
            "deploy/compose.yaml": ("the job's metrics at :@,", 'service_healthy}\n    ports: ["127.0.0.1:@:@"]'),
            "deploy/compose/prometheus.yaml": ('["streams-groups:@"]',),
            "deploy/README.md": (" -p @:@ -e ", "metrics.listen: 0.0.0.0:@`"),
            "docs/metrics.md": ("metrics.listen: 127.0.0.1:@`", "METRICS__LISTEN=127.0.0.1:@ "),
            _VALUES: ("\nmetrics:\n  port: @\n",),
        },
    ),
    "port of the page": Figure(
        "8080",
        {
            "deploy/README.md": ("--listen 0.0.0.0:@`",),
            _VALUES: ("  port: @\n  resources:",),
            "deploy/compose.yaml": ('"0.0.0.0:@"]',),
        },
    ),
    "GiB of memory": Figure(
        "5",
        {
            "deploy/systemd/streams-groups.service": ("\nMemoryMax=@G\n",),
            "deploy/compose.yaml": ("mem_limit: @g\n",),
            "deploy/README.md": ("Start with @ GiB of memory", "--memory @g"),
            "docs/operating.md": ("Start with @ GiB of memory",),
            _VALUES: ("limits: {memory: @Gi}",),
        },
    ),
    "GiB of heap": Figure(
        "2",
        {
            "deploy/systemd/streams-groups.service": ("# @ GiB of heap",),
            "deploy/README.md": ("(@ GiB of it for the heap",),
            "docs/operating.md": ("of memory, @ GiB of it heap",),
            _VALUES: ("# @ GiB of heap",),
        },
    ),
    "most cores by default": Figure(
        str(MAX_CORES),
        {
            "deploy/systemd/streams-groups.service": ("at most @ Python workers",),
            "deploy/README.md": ("(`spark.master: local[@]`)",),
            "docs/operating.md": ("(`spark.master: local[@]`)",),
            _VALUES: ("the cores of the node, up to @,",),
        },
    ),
    "seconds until the job is killed": Figure(
        "20",
        {
            "deploy/systemd/streams-groups.service": ("\nTimeoutStopSec=@\n",),
            "deploy/compose.yaml": ("stop_grace_period: @s",),
            _VALUES: ("\nterminationGracePeriodSeconds: @\n",),
        },
    ),
    "user of the container": Figure(
        "10001",
        {
            "deploy/Dockerfile": ("--gid @ ", "--uid @ ", " -o @ -g @ ", "\nUSER @:@\n"),
            "deploy/README.md": ("runs as user @.", "user @, no capabilities"),
            _VALUES: ("runAsUser: @\n", "runAsGroup: @\n", "fsGroup: @\n"),
        },
    ),
    "version of Hadoop": Figure(
        "3.5.0",
        {
            "deploy/charts/examples/s3.yaml": ("hadoop-aws:@ ",),
            "deploy/README.md": ("hadoop-aws:@`", "hadoop-aws:@\n"),
            "docs/operating.md": ("hadoop-aws:@\n",),
        },
    ),
}


def files() -> dict[str, str]:
    """Return the text of every file with a figure, by its path in the project. Raises ValueError for a lost pattern."""
    texts: dict[str, str] = {}
    for name, figure in FIGURES.items():
        for file, patterns in figure.places.items():
            text = texts.get(file) or (ROOT / file).read_text("utf-8")
            for pattern in patterns:
                found = _VALUE.join(map(re.escape, pattern.split("@")))
                text, count = re.subn(found, pattern.replace("@", figure.value).replace("\\", r"\\"), text)
                if not count:
                    raise ValueError(f"{file} has no {pattern!r}, for the {name}")
            texts[file] = text
    return texts
