"""Sources of images: named data sets, arrays, and the user's own pictures."""
