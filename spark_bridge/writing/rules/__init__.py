"""What a write takes as options, and which columns make records. Pure."""
