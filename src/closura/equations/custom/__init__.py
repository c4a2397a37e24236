"""A solver of the user's own."""
