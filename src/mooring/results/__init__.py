"""What happens to a result between the server and the model."""
