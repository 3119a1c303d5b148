"""Configuration files: where they are, what may stand in them, and the secrets they refer to."""
