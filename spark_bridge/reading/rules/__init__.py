"""What a read takes as options, where it begins and ends, what is read next. Pure."""
