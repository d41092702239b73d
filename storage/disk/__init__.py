"""Files as the log needs them, and small files that are replaced whole."""
