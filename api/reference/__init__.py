"""The page that lists every option and setting, made from their definitions."""
