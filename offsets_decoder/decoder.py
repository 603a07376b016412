"""The door everyone comes through."""

from offsets_decoder.reference import reference_decode as decode

__all__ = ["decode"]
