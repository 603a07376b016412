"""`make bench` runs all benchmarks one after another; `BENCH_ARGS="idle --minutes 60"` chooses some."""

import argparse
from collections.abc import Callable

from bench import decode, floor, idle, kminion, page, parts, rules, store_requests
from bench.bench_harness import Harness, open_harness

ALONE: dict[str, Callable[[], object]] = {
    "decode": decode.run,
    "rules": rules.run,
    "page": page.run,
    "page-costs": page.run_costs,
}
WITH_A_BROKER: dict[str, Callable[[Harness, argparse.Namespace], object]] = {
    "floor": lambda shared, _: [floor.run(shared, groups) for groups in (100, 10_000)],
    "parts": lambda shared, asked: parts.run(shared, asked.groups),
    "kminion": lambda shared, asked: kminion.run(shared, asked.commits, asked.keys),
    "idle": lambda shared, asked: idle.run(shared, asked.minutes),
    "trickle": lambda shared, asked: idle.run(shared, asked.minutes, trickle=True),
    "small-cluster": lambda shared, asked: idle.run(shared, asked.minutes, idle.SMALL),
    "store-requests": lambda shared, asked: store_requests.run(shared, asked.minutes),
}
EVERY = (*ALONE, *WITH_A_BROKER)
_WITHOUT_SPARK = {"idle", "trickle", "small-cluster", "store-requests"}


def main() -> None:
    """Run the benchmarks that are asked for, in the order of `EVERY`; without names all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000_000, help="offset commits of kminion")
    parser.add_argument("--minutes", type=float, default=20, help="of idle, trickle, small-cluster and store-requests")
    parser.add_argument("--groups", type=int, nargs="+", default=parts.SIZES, help="sizes of parts")
    parser.add_argument("--keys", type=int, default=50_000, help="keys of the commits of kminion")
    parser.add_argument("which", nargs="*", metavar="BENCHMARK", help=", ".join(EVERY))
    asked = parser.parse_args()
    if unknown := set(asked.which) - set(EVERY):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    names = [name for name in EVERY if name in asked.which or not asked.which]
    for name in names:
        if name in ALONE:
            ALONE[name]()
    if wanted := [name for name in names if name in WITH_A_BROKER]:
        with open_harness(with_spark=not set(wanted) <= _WITHOUT_SPARK) as shared:
            for name in wanted:
                WITH_A_BROKER[name](shared, asked)


if __name__ == "__main__":
    main()
