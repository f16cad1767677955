"""A run to look at: the report page, its live form, the comparison of runs."""
