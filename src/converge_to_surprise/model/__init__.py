"""What can be saved and used: networks, heads, backbones, the merge tree, inference, model files."""
