"""All of pools that imports Ray: their actors, and what a supervisor does with them."""
