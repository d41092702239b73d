"""The directories of a broker and of a partition: whose they are, what is set aside in them, what is doubtful."""
