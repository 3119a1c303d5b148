"""Measures mooring beside the SDK it stands on and beside its peers. Start it with `make bench`."""
