"""The careful rules, which convert values that the fast native decoder does not accept.

Each family of types has a module.
"""
