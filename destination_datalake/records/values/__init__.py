"""The rules that convert JSON values to column types, with one module per family of types.

The connector applies these rules to all values that the faster native decoder does not accept.
"""
