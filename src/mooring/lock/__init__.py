"""Approved definitions of servers: `mooring.lock`, its comparison with listings, and the cache."""
