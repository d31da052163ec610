"""What is found by listening: of a clip to clone, of the words typed for it, and of takes. Runs no model itself."""
