"""Configuration files of other programs: read, written, translated."""
