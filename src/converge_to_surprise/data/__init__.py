"""What comes from disk: named data sets and arrays of images."""
