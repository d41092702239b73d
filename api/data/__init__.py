"""Topics as Datasets of Ray Data: `raylog.data` is its face. Needs the extra `data`."""
