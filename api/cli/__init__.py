"""The command line: `raylog`. Modules here import Ray, the clients and rich only where a command runs."""
