"""`make bench`: every benchmark, one after the other; `BENCH_ARGS="throughput --commits 20000000"` chooses."""

import argparse

from tests.bench import catchup, decode, freshness, rules, throughput, touched
from tests.bench.scene import scene

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("which", nargs="*", default=["decode", "rules", "throughput", "freshness", "touched", "catchup"])
parser.add_argument("--commits", type=int, default=10_000_000, help="offset commits of throughput")
parser.add_argument("--groups", type=int, default=1_000, help="groups among them")
asked = parser.parse_args()

if "decode" in asked.which:
    decode.run()
if "rules" in asked.which:
    rules.run()
if {"throughput", "freshness", "touched", "catchup"} & set(asked.which):
    with scene() as shared:
        if "throughput" in asked.which:
            throughput.run(shared, asked.commits, asked.groups)
        if "freshness" in asked.which:
            for groups in (100, 10_000):
                freshness.run(shared, groups)
        if "touched" in asked.which:
            touched.run(shared)
        if "catchup" in asked.which:
            catchup.run(shared, 10_000, 10)
