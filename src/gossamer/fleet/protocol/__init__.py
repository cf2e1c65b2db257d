"""How devices exchange vectors so that the mean stays exact."""
