"""`make bench`: every benchmark, one after the other."""

from tests.bench import decode

decode.run()
