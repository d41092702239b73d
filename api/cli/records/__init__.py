"""Records in the hands of a person: which ones to read, as text on stdout, and as text from stdin."""
