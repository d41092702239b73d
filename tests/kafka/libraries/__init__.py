"""The same few actions with each client library: write, read, commit, take part in a group, and go on under load."""
