"""The ways of a command to its terminal: output, progress, signals, exit codes."""
