"""The tests, one folder per kind; what a test may use, and how long it may take, goes by its folder."""
