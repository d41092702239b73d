"""Users, rules of access, and the decisions about who may do what (rule 36). All of it is pure.

`access_rules.py` decides whether a request is allowed. `security_state.py` is what the metadata log says of users and
rules, and `security_changes.py` decides which changes of that are taken.
"""
