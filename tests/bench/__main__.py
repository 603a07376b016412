"""`make bench`: every benchmark, one after the other; `BENCH_ARGS="throughput --commits 20000000"` chooses."""

import argparse

from tests.bench import (
    catchup,
    cluster,
    decode,
    floor,
    freshness,
    idle,
    kminion,
    lag_freshness,
    list_offsets,
    notification,
    offsets,
    page,
    rules,
    startup,
    throughput,
    touched,
    week,
)
from tests.bench.bench_harness import open_harness

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--commits", type=int, default=10_000_000, help="offset commits of throughput")
parser.add_argument("--minutes", type=float, default=20, help="for how long idle and week run")
parser.add_argument("--groups", type=int, default=1_000, help="groups among them")

ALONE = {
    "decode": decode.run,
    "rules": rules.run,
    "lag": list_offsets.run_pure,
    "page": page.run,
    "page-costs": page.run_costs,
}
WITH_A_BROKER = {
    "throughput": lambda shared: throughput.run(shared, asked.commits, asked.groups),
    "freshness": lambda shared: [freshness.run(shared, groups) for groups in (100, 10_000)],
    "floor": lambda shared: [floor.run(shared, groups) for groups in (100, 10_000)],
    "startup": startup.run,
    "touched": touched.run,
    "catchup": lambda shared: catchup.run(shared, 10_000, 10),
    "notification": lambda shared: notification.run(shared, 10_000),
    "offsets": lambda shared: offsets.run(shared, asked.commits, asked.keys),
    "kminion": lambda shared: kminion.run(shared, asked.commits, asked.keys),
    "cluster": lambda shared: cluster.run(shared, asked.commits, asked.keys),
    "offsets-memory": lambda shared: offsets.run_memory(shared, 1_000_000),
    "offsets-freshness": lambda shared: offsets.run_freshness(shared, 100, 5_000, asked.keys),
    "lag-freshness": lag_freshness.run,
    "idle": lambda shared: idle.run(shared, asked.minutes),
    "week": lambda shared: week.run(shared, asked.minutes),
    "list_offsets": list_offsets.run,
}
EVERY = [*ALONE, *WITH_A_BROKER]
parser.add_argument("which", nargs="*", default=EVERY, metavar="BENCHMARK", help=", ".join(EVERY))
parser.add_argument("--keys", type=int, default=50_000, help="keys of the commits of offsets")
asked = parser.parse_args()

for name, bench in ALONE.items():
    if name in asked.which:
        bench()
if wanted := [name for name in WITH_A_BROKER if name in asked.which]:
    with open_harness(with_spark=not set(wanted) <= {"idle", "startup", "week"}) as shared:
        for name in wanted:
            WITH_A_BROKER[name](shared)
