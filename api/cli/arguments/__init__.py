"""Reading of a command line: types of arguments, options under former names, groups that import their commands late."""
