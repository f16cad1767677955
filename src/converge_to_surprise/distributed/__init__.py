"""Everything that handles more than one process."""
