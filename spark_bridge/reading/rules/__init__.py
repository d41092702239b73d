"""Options of a read, where it begins and ends, what is read next. Pure."""
