"""What a command and the terminal that it runs in tell each other: output, progress, signals, exit codes."""
