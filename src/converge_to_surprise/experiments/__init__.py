"""The paper's tables and figures: the plan of runs, the runs, and the output."""
