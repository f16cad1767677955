"""What a finished run is good for: predicting, sorting, exporting."""
