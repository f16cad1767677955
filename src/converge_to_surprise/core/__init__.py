"""Pure functions: tensors in, tensors out; randomness only through a passed ``torch.Generator``."""
