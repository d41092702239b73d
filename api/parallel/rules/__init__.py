"""Which record may be handled next, and how far may be committed. Pure."""
