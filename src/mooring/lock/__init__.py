"""What servers were approved to be: `mooring.lock`, its comparison with listings, and the cache."""
