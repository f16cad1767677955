"""Several hosts with a slow and lossy network between them, on one machine."""
