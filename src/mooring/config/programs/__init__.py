"""Configuration files of other programs: read, written and converted."""
