"""Several gateways as one: placement, membership and forwarding."""
