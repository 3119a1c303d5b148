"""Configuration files: their places, their contents, and the secrets they refer to."""

from mooring.config.load import FoundFile, found_files, from_document, load, read_files
from mooring.config.secrets import GetSecret, default_lookup, resolve

__all__ = [
    "FoundFile",
    "GetSecret",
    "default_lookup",
    "found_files",
    "from_document",
    "load",
    "read_files",
    "resolve",
]
