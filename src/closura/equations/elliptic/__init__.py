"""Elliptic equations in the plane."""
