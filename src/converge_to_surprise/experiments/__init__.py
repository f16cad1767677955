"""The paper's tables and figures: which runs they need, the runs themselves, and what is made of them."""
