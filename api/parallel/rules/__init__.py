"""Decisions on parallel work: which record may be handled next, and how far may be committed. Pure."""
