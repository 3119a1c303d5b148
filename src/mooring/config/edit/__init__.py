"""Configuration files edited in place, with comments and layout kept."""
