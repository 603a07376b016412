"""The number of examples of the property tests: HYPOTHESIS_PROFILE is `fast`, the default, or `exhaustive`."""

import os

from hypothesis import HealthCheck, settings

_SLOW_MACHINES = [HealthCheck.too_slow]  # CI runners share their cores

settings.register_profile("fast", max_examples=150, deadline=None, suppress_health_check=_SLOW_MACHINES)
settings.register_profile("exhaustive", max_examples=20_000, deadline=None, suppress_health_check=_SLOW_MACHINES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
