"""Processing of results between the server and the model."""
