"""What comes from disk: named data sets, arrays of images, and the user's own pictures."""
