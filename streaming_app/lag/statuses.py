"""What offsets prove about a group in a partition; docs/lag.md says what each means."""

LEFT_OVER = "LEFT_OVER"
RECREATED = "RECREATED"
AHEAD = "AHEAD"
UNKNOWN = "UNKNOWN"
LOST = "LOST"
OK = "OK"
HELD = "HELD"
REWOUND = "REWOUND"
UNOWNED = "UNOWNED"
WAITS = "WAITS"
STATUSES = (LEFT_OVER, RECREATED, AHEAD, UNKNOWN, LOST, HELD, OK, REWOUND, UNOWNED, WAITS)
"""In their order of precedence."""
