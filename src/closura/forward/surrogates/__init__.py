"""Networks in place of a solver."""
