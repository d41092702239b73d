"""How a command line is read: types of arguments, options under former names, groups that import their commands late.
"""
