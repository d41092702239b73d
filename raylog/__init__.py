"""raylog: a durable, replicated, partitioned log whose moving parts are Ray actors.

This folder holds the public names, the base layer that every other folder may import (`errors`, `config`),
and one symlink per folder at the top of the repository: `raylog.storage` is `../storage`, and so on. Import a
folder only under its `raylog.` name.

Importing any part, say `raylog.storage.record_batch`, runs this file first, so it imports nothing: a replica
process stays small, and unit tests (which forbid Ray) can import every pure module. A public name whose
module imports Ray has to be looked up on first use (a module `__getattr__`), not imported here.
"""

__version__ = "0.1.0"
