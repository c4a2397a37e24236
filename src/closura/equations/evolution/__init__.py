"""Evolution equations on an interval or a rectangle."""
