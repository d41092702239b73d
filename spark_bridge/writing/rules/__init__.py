"""Options of a write, and which columns make records. Pure."""
