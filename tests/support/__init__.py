"""Set-up that tests of several rooms share."""
