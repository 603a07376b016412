"""A small client of the streams group protocol (KIP-1071, KIP-1331)."""
